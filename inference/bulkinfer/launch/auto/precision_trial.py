"""Two precisions of one network on the first pictures of a job, in a process of its own; see precision.py.

    python -m bulkinfer.launch.auto.precision_trial PARENT_PID

reads a question as JSON from stdin, runs the pictures in both precisions, and answers with what the gate says.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from bulkinfer.errors import RecordError, advising
from bulkinfer.host.isolated_call import answer
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.images.preprocess import normalise
from bulkinfer.launch.auto.precision import GOLDEN, PICTURES, Question
from bulkinfer.model.accuracy_gate import compare, compare_values, objection
from bulkinfer.model.graph_checks import read_golden
from bulkinfer.model.recipe import Recipe
from bulkinfer.records.place import place_from_json
from bulkinfer.runtime.fixed_batch import FixedBatch
from bulkinfer.runtime.providers import SessionSpec
from bulkinfer.runtime.session import Session
from bulkinfer.types import Array, Record
from bulkinfer.worker.loader import Limits, load_record
from bulkinfer.worker.metrics import Meter


def _find(value: dict[str, Any]) -> dict[str, Any]:
    """What the child process answers: the objection, the figures in words, and whether agreement could be measured."""
    pictures = value.pop("pictures")
    sessions = {name: SessionSpec(**value[name]) for name in ("exact", "cheaper")}
    question = Question(**{**value, **sessions, "recipe": Recipe(**value["recipe"])})
    os.sched_setaffinity(0, question.cores)
    images_NHWC, labels = _load(pictures, question)
    on = f"{len(images_NHWC)} pictures"
    judging = len(images_NHWC)
    if not judging:
        with advising("run get_model again"):
            images_NHWC, labels, on = read_golden(Path(question.golden)).images_NHWC, [], GOLDEN
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
        "pictures": judging,
    }


def _load(pictures: list[dict[str, Any]], question: Question) -> tuple[Array, list[int | None]]:
    """The first pictures that can be read, prepared, with their labels."""
    prepare_decoder()
    recipe, limits = question.recipe, Limits(question.max_pixels, question.max_file_bytes, question.reduce_to)
    images, labels = np.zeros((min(PICTURES, len(pictures)), recipe.height, recipe.width, 3), np.uint8), list[int | None]()
    for number, picture in enumerate(pictures):
        if len(labels) == PICTURES:
            break
        record = Record(number, b"", place_from_json(picture["place"]))
        try:
            load_record(record, recipe, limits, images[len(labels)], Meter())
        except RecordError:  # the run itself will say so, in the picture's row
            continue
        labels.append(picture["label"])
    return images[: len(labels)], labels


def _values(spec: SessionSpec, question: Question, images_NHWC: Array) -> Array:
    """What the network gives, N x D: class values, or all outputs in a row; NaN where any output is not finite."""
    session = Session(spec, question.outputs)

    def run_batch(batch_NHWC: Array) -> dict[str, Array]:
        return session.run(batch_NHWC if session.dtype == np.uint8 else normalise(batch_NHWC, question.recipe))

    names = [question.classified] if question.classified else question.outputs
    return FixedBatch(run_batch, session.batch_shape[0]).finite_values(images_NHWC, names)


if __name__ == "__main__":
    answer(_find, lambda value: f"--precision {value['cheaper']['precision']}")
