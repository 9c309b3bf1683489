"""What `--precision auto` becomes: the cheaper precision that a device computes in natively, if the network's answers stay.

    python -m inference.precision PARENT_PID

reads a question as JSON from stdin, runs the first pictures in both precisions, and answers with the verdict of the gate.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from inference.card import Recipe
from inference.child import answer, ask
from inference.decode import prepare_decoder
from inference.errors import RecordError
from inference.gate import compare, compare_values, objection
from inference.graph_checks import read_golden
from inference.kept import keep, read_kept
from inference.loader import Limits, load_record
from inference.metrics import Meter
from inference.preprocess import normalise
from inference.providers import SessionSpec
from inference.runlog import processor, say, versions
from inference.session import Session
from inference.types import Record

KEPT_FILE = "precision.json"
_PICTURES = 64  # the first readable ones judge
OFFERED = 4 * _PICTURES  # records among which they are looked for
_GOLDEN = "the golden pictures"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """Two sessions on one network, and what it is judged by.

    `classified` is the output whose values are those of classes, `are_logits` what they are; empty: `outputs` are compared.
    `golden` is the file of golden pictures, which judge where there are no others.
    """

    exact: SessionSpec
    cheaper: SessionSpec
    cheaper_sha256: str
    recipe: Recipe
    classified: str
    are_logits: bool
    outputs: list[str]
    golden: str
    limits: Limits
    devices: list[str]
    cores: list[int]

    @property
    def precision(self) -> str:
        return self.cheaper.precision


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the cheaper precision may be taken, and the figures, or what hindered it, in words."""

    passes: bool
    told: str


class _Entry(TypedDict):
    """One verdict that is kept; the facts under which it holds stand beside it."""

    objection: str
    figures: str
    is_measurable: bool
    offered: int


def judge(question: Question, records: Iterable[Record], graph_sha256: str, kept: Path, *, only_kept: bool) -> Verdict | None:
    """The verdict on the first readable `records`, or on the golden pictures where there are none.

    It is taken from the file `kept` if it holds one for this network, provider, precision, processor and versions; one that
    could measure no agreement holds for no more pictures than it had. With `only_kept`, None where nothing is kept.
    """
    offered = list(itertools.islice(records, OFFERED))
    facts = _as_read(
        {
            "graph_sha256": graph_sha256,
            "cheaper_sha256": question.cheaper_sha256,
            "recipe": asdict(question.recipe),
            "provider": question.cheaper.provider,
            "precision": question.precision,
            "devices": question.devices,
            "processor": processor(),
            "versions": versions(),
        }
    )
    for entry in reversed(read_kept(kept, "judged", _Entry)):
        holds = entry["is_measurable"] or entry["offered"] >= min(len(offered), _PICTURES)
        if holds and all(entry.get(name) == value for name, value in facts.items()):
            return _verdict(question, entry)
    if only_kept:
        return None
    on = f"up to {_PICTURES} pictures" if offered else _GOLDEN
    say(f"precision: auto judges {question.precision} on {question.cheaper.provider} by {on}, once for this network")
    pictures = [{"path": os.fsdecode(record.path), "label": record.label} for record in offered]
    subject = f"--precision {question.precision}"
    found = ask("inference.precision", {**asdict(question), "pictures": pictures}, subject)
    if isinstance(found, str):
        return Verdict(False, f"{question.precision} does not run: {found.removeprefix(f'{subject}: ')}")
    entry = {**facts, **found, "offered": len(offered)}
    keep(kept, "judged", _Entry, entry)
    return _verdict(question, entry)


def _as_read(facts: dict[str, Any]) -> dict[str, Any]:
    """As they come back from a file: tuples as lists."""
    read: dict[str, Any] = json.loads(json.dumps(facts))
    return read


def _verdict(question: Question, entry: dict[str, Any]) -> Verdict:
    if entry["objection"]:
        return Verdict(False, f"{question.precision} does not pass: {entry['figures']}; {entry['objection']}")
    return Verdict(True, entry["figures"])


def _find(value: dict[str, Any]) -> dict[str, Any]:
    """What the child process answers: the objection, the figures in words, and whether agreement could be measured."""
    pictures = value.pop("pictures")
    sessions = {name: SessionSpec(**value[name]) for name in ("exact", "cheaper")}
    question = Question(**{**value, **sessions, "recipe": Recipe(**value["recipe"]), "limits": Limits(**value["limits"])})
    os.sched_setaffinity(0, question.cores)
    images_NHWC, labels = _load(pictures, question.recipe, question.limits)
    on = f"{len(images_NHWC)} pictures"
    if not len(images_NHWC):
        images_NHWC, labels, on = read_golden(Path(question.golden)).images_NHWC, [], _GOLDEN
    expected, found = (_values(sessions[name], question, images_NHWC) for name in ("exact", "cheaper"))
    if question.classified:
        num_classes = expected.shape[1]
        known = [label if label is not None and 0 <= label < num_classes else None for label in labels]
        figures = compare(expected, found, are_logits=question.are_logits, labels=known)
    else:
        figures = compare_values(expected, found)
    return {
        "objection": objection(figures, question.precision),
        "figures": f"{figures}, on {on}",
        "is_measurable": figures.is_measurable,
    }


def _load(pictures: list[dict[str, Any]], recipe: Recipe, limits: Limits) -> tuple[Array, list[int | None]]:
    """The first pictures that can be read, prepared, with their labels."""
    prepare_decoder()
    images, labels = np.zeros((min(_PICTURES, len(pictures)), recipe.height, recipe.width, 3), np.uint8), list[int | None]()
    for number, picture in enumerate(pictures):
        if len(labels) == _PICTURES:
            break
        record = Record(number, b"", os.fsencode(picture["path"]))
        try:
            load_record(record, recipe, limits, images[len(labels)], Meter())
        except RecordError:  # the run itself will say so, in the picture's row
            continue
        labels.append(picture["label"])
    return images[: len(labels)], labels


def _values(spec: SessionSpec, question: Question, images_NHWC: Array) -> Array:
    """What the network gives, N x D: class values, or all outputs in a row."""
    names = [question.classified] if question.classified else question.outputs
    session = Session(spec, names)
    size, parts = session.batch_shape[0], []
    for start in range(0, len(images_NHWC), size):
        part = images_NHWC[start : start + size]
        batch = np.zeros((size, *part.shape[1:]), np.uint8)
        batch[: len(part)] = part
        outputs = session.run(batch if session.dtype == np.uint8 else normalise(batch, question.recipe))
        parts.append(np.concatenate([outputs[name][: len(part)].reshape(len(part), -1) for name in names], axis=1))
    return np.concatenate(parts)


if __name__ == "__main__":
    answer(_find, lambda value: f"--precision {value['cheaper']['precision']}")
