"""What `--precision auto` becomes: the cheaper precision that a device supports natively, if the answers of the network stay.

A separate process, precision_trial.py, decodes the pictures and runs the network: the launcher imports no decoder.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from bulkinfer.files.atomic import canonical_json
from bulkinfer.host.isolated_call import ask
from bulkinfer.host.versions import processor, versions
from bulkinfer.model.measurements import add_measurement, read_measurements
from bulkinfer.model.recipe import Recipe
from bulkinfer.records.place import file_of, place_as_json
from bulkinfer.runtime.providers import SessionSpec
from bulkinfer.types import Record

log = logging.getLogger("bulkinfer")

KEPT_FILE = "precision.json"
PICTURES = 64  # the first readable ones are compared
OFFERED = 4 * PICTURES  # records that are tried until enough pictures are readable
GOLDEN = "the golden pictures"
_LIMIT_S = 1800.0  # for two sessions, which may build engines, and a slow network on 64 pictures


@dataclass(frozen=True, slots=True)
class Question:
    """Two sessions of one network, and what they are compared by.

    `classified` is the output with the class values, which are logits if `are_logits`; if it is empty, `outputs` are compared.
    `golden` is the file of golden pictures, used if there are no others. Pictures are read under the limits of loader.Limits.
    """

    exact: SessionSpec
    cheaper: SessionSpec
    cheaper_sha256: str
    recipe: Recipe
    classified: str
    are_logits: bool
    outputs: list[str]
    golden: str
    max_pixels: int
    max_file_bytes: int
    reduce_to: int
    devices: list[str]
    cores: list[int]

    @property
    def precision(self) -> str:
        return self.cheaper.precision


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the cheaper precision may be taken; `reason` holds the figures, or why it may not, in words."""

    passes: bool
    reason: str


class _Verdict(TypedDict):
    """One cached verdict; the conditions under which it holds are stored beside it."""

    objection: str
    figures: str
    is_measurable: bool
    pictures: int  # how many were compared; 0: the golden ones


class _Entry(_Verdict, total=False):
    """The same, with a hash of the files that were offered, of which some may not be readable."""

    offered: str


def judge(question: Question, records: Iterable[Record], graph_sha256: str, kept: Path, *, only_kept: bool) -> Verdict | None:
    """The verdict by the first readable `records`, or by the golden pictures if there are none.

    It comes from the cache file `kept` if that holds one for this network, provider, precision, processor and versions; a
    verdict that could measure no agreement is not used for more pictures than it had. With `only_kept`, None if none is cached.
    """
    offered = list(itertools.islice(records, OFFERED))
    facts = _as_read(
        {
            "graph_sha256": graph_sha256,
            "cheaper_sha256": question.cheaper_sha256,
            "recipe": question.recipe.facts(),
            "judged_by": [question.classified, question.are_logits, question.outputs],
            "provider": question.cheaper.provider,
            "precision": question.precision,
            "devices": question.devices,
            "processor": processor(),
            "versions": versions(),
        }
    )
    for entry in reversed(read_measurements(kept, "judged", _Entry)):
        enough = entry["pictures"] >= min(len(offered), PICTURES) or entry.get("offered") == _digest(offered)
        holds = entry["is_measurable"] or enough
        if holds and all(entry.get(name) == value for name, value in facts.items()):
            return _verdict(question, entry)
    if only_kept:
        return None
    on = f"up to {PICTURES} pictures" if offered else GOLDEN
    log.info(f"precision: auto judges {question.precision} on {question.cheaper.provider} by {on}, once for this network")
    pictures = [{"place": place_as_json(record.place), "label": record.label} for record in offered]
    subject = f"--precision {question.precision}"
    found = ask("bulkinfer.launch.auto.precision_trial", {**asdict(question), "pictures": pictures}, subject, limit_s=_LIMIT_S)
    if isinstance(found, str):
        return Verdict(False, f"{question.precision} does not run: {found.removeprefix(f'{subject}: ')}")
    entry = {**facts, **found, "offered": _digest(offered)}
    add_measurement(kept, "judged", _Entry, entry)
    return _verdict(question, entry)


def _digest(offered: list[Record]) -> str:
    """A hash of pictures as they are now: by place, and size and time of the file; a missing one counts too."""
    found = []
    for record in offered:
        try:
            status = os.stat(file_of(record.place))
            found.append([place_as_json(record.place), status.st_size, status.st_mtime_ns])
        except (OSError, ValueError):
            found.append([place_as_json(record.place)])
    return hashlib.sha256(canonical_json(found).encode()).hexdigest()


def _as_read(facts: dict[str, Any]) -> dict[str, Any]:
    """`facts` as they are read back from a file: tuples become lists."""
    read: dict[str, Any] = json.loads(json.dumps(facts))
    return read


def _verdict(question: Question, entry: dict[str, Any]) -> Verdict:
    if entry["objection"]:
        later = "" if entry["pictures"] else "; a launch with pictures that can be read judges it by those"
        return Verdict(False, f"{question.precision} does not pass: {entry['figures']}; {entry['objection']}{later}")
    return Verdict(True, entry["figures"])
