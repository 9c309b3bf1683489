"""Network outputs -> rows. The rows of a step are collected in columns, in input order; any stream may fill them.

Shape letters: S records of the step, N pictures of a batch, K classes kept, C all classes, D features.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bulkinfer.model.card import ModelCard
from bulkinfer.model.scores import softmax
from bulkinfer.types import Array, Batch, Facts, Record, Step


@dataclass(frozen=True, slots=True)
class Task:
    """The content of a row. `columns` are the outputs that are saved unchanged, with the shape of one row.

    `classified` is the output that the best classes are taken from; for a network without classes (`num_classes` 0), its first
    output.
    """

    top_k: int
    save: frozenset[str]  # topk, and names of outputs
    scores_are_logits: bool
    num_classes: int
    labels: tuple[str, ...]
    classified: str
    columns: dict[str, tuple[int, ...]]
    precision: str = "fp32"  # of the columns: fp32 or fp16

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the numbers in `columns`."""
        return np.dtype(np.float16 if self.precision == "fp16" else np.float32)

    @property
    def outputs(self) -> list[str]:
        """Graph outputs to compute. `classified` is computed even if no column needs it: otherwise nothing would be run."""
        wanted = [self.classified] if "topk" in self.save or not self.columns else []
        return wanted + [name for name in self.columns if name not in wanted]


def task_for(
    card: ModelCard, save: tuple[str, ...], top_k: int, output_shapes: Mapping[str, Any], precision: str = "fp32"
) -> Task:
    """The task for a card and the columns that the user chose. `output_shapes`: name -> shape, including the batch."""
    num_classes = int(output_shapes[card.classified][-1]) if card.classified else 0
    return Task(
        top_k=min(top_k, num_classes),
        save=frozenset(save) - {"none"},
        scores_are_logits=card.outputs.get(card.classified) == "logits",
        num_classes=num_classes,
        labels=card.labels,
        classified=card.classified or next(iter(card.outputs)),
        columns={name: tuple(map(int, output_shapes[name][1:])) for name in card.outputs if name in save},
        precision=precision,
    )


def top_classes(logits_NC: Array, k: int) -> Array:
    """The k best class ids of each row, N x k int32, best first; equal scores in order of class id, NaN last."""
    count, num_classes = logits_NC.shape
    if k >= num_classes or np.isnan(logits_NC).any():
        return np.argsort(-logits_NC, axis=1, kind="stable")[:, :k].astype(np.int32)
    kth_N1 = np.partition(logits_NC, num_classes - k, axis=1)[:, num_classes - k, None]  # a sixth of the time of a sort
    rows, ids = np.nonzero(logits_NC >= kth_N1)  # k per row, and more where others tie with the last one
    order = np.lexsort((-logits_NC[rows, ids], rows))  # stable: row by row, best first, ties in order of class id
    starts = np.searchsorted(rows, np.arange(count))
    best: Array = ids[order[starts[:, None] + np.arange(k)]].astype(np.int32)
    return best


@dataclass
class StepRows:
    """The rows of one step. `fill` is called once per batch, from any stream thread; a record has no row before."""

    step: Step
    task: Task
    batch_size: int
    records: list[Record | None] = field(init=False)
    facts: list[Facts | None] = field(init=False)
    errors: dict[int, tuple[str, str]] = field(default_factory=dict)  # position in the step -> stage, message
    non_finite: set[int] = field(default_factory=set)
    class_ids_SK: Array | None = None
    scores_SK: Array | None = None
    saved: dict[str, Array] = field(default_factory=dict)  # by output, S x D

    def __post_init__(self) -> None:
        size, task = len(self.step), self.task
        self.records, self.facts = [None] * size, [None] * size
        if "topk" in task.save:
            self.class_ids_SK = np.zeros((size, task.top_k), np.int32)
            self.scores_SK = np.zeros((size, task.top_k), np.float32)
        self.saved = {name: np.zeros((size, math.prod(shape)), task.dtype) for name, shape in task.columns.items()}
        self._finished = bytearray(-(-size // self.batch_size))  # one byte per batch
        self._lock = threading.Lock()

    def fill(self, batch: Batch, outputs: Mapping[str, Array]) -> bool:
        """Take the rows of a finished batch (`outputs` is empty if all its pictures failed); True if the step is complete."""
        start, count = batch.offset, batch.count
        self.records[start : start + count] = batch.records[:count]
        self.facts[start : start + count] = batch.facts[:count]
        for index, error in batch.errors.items():
            self.errors[start + index] = error
        if outputs:
            self._fill_outputs(batch, {name: values[:count] for name, values in outputs.items()})
        with self._lock:
            self._finished[start // self.batch_size] = 1
            return 0 not in self._finished

    def _fill_outputs(self, batch: Batch, outputs: Mapping[str, Array]) -> None:
        place = slice(batch.offset, batch.offset + batch.count)
        for values in outputs.values():
            self._flag_non_finite(batch, values)
        if self.class_ids_SK is not None and self.scores_SK is not None:
            logits = outputs[self.task.classified]
            best = top_classes(logits, self.task.top_k)
            scores = softmax(logits) if self.task.scores_are_logits else logits
            self.class_ids_SK[place] = best
            self.scores_SK[place] = np.take_along_axis(scores, best, axis=1)
        for name, values_SD in self.saved.items():
            with np.errstate(over="ignore"):  # numbers too large for float16 become infinite, and are flagged
                values_SD[place] = outputs[name].reshape(batch.count, -1)
            if values_SD.dtype != outputs[name].dtype:
                self._flag_non_finite(batch, values_SD[place])

    def _flag_non_finite(self, batch: Batch, values: Array) -> None:
        """Note the pictures whose values contain NaN or infinity."""
        finite = np.isfinite(values.reshape(batch.count, -1)).all(axis=1)
        self.non_finite.update(batch.offset + int(i) for i in np.flatnonzero(~finite) if i not in batch.errors)

    def finished_prefix(self) -> int:
        """The number of records from the start of the step that have rows: the part of an interrupted step to publish."""
        with self._lock:
            batches = self._finished.find(0)
        return len(self.step) if batches < 0 else batches * self.batch_size
