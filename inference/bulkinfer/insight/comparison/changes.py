"""Counts what differs between two jobs, a bucket of rows at a time, and keeps the pictures that changed most.

Shape letters: N rows that are ok in both jobs, K classes kept in a row.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.insight.class_columns import matrix
from bulkinfer.insight.comparison.join import Pair
from bulkinfer.types import Array, key_text

MOST_KEPT = 24  # changed pictures for the contact sheet
_NAMED = 3  # keys that only one of the jobs has, and are named


class Answer(NamedTuple):
    """The best class of a picture, and its score."""

    number: int
    score: float


class Change(NamedTuple):
    """A picture that two jobs answer differently. `drop` is what the first answer lost in the second job, at least."""

    drop: float
    key: bytes
    partition: int
    one: Answer
    other: Answer


class Uncompared(NamedTuple):
    """A picture without two answers: what each job has for it, in words."""

    key: bytes
    one: str
    other: str


@dataclass
class Changes:
    """What was counted. `same` and `changed` rows are ok in both jobs; the others have an error in one of them, or no row.

    `drift_sum` and `drift_largest` (with its key) are over `num_drift` rows: by how much the score of the first job's best
    class differs in the second, where that keeps the class. `most` are the pictures that changed most.
    """

    same: int = 0
    changed: int = 0
    error_in_one: int = 0
    error_in_other: int = 0
    error_in_both: int = 0
    only_one: int = 0
    only_other: int = 0
    first_only_one: list[str] = field(default_factory=list)
    first_only_other: list[str] = field(default_factory=list)
    num_drift: int = 0
    drift_sum: float = 0.0
    drift_largest: float = 0.0
    drift_key: str = ""
    most: list[Change] = field(default_factory=list)

    @property
    def num_compared(self) -> int:
        return self.same + self.changed

    @property
    def agreement(self) -> float:
        """The share of the rows that are ok in both jobs whose best class is the same."""
        return self.same / self.num_compared

    def most_changed(self) -> list[Change]:
        """The kept pictures, the largest drop first."""
        return sorted(self.most, key=lambda change: (-change.drop, change.key))

    def add(self, pair: Pair) -> tuple[list[Change], list[Uncompared]]:
        """Count a pair of buckets; returns the changed pictures, and those that cannot be compared, in their order."""
        is_ok = [pc.is_null(table["stage"]).to_numpy(zero_copy_only=False) for table in (pair.one, pair.other)]
        self.error_in_one += int((~is_ok[0] & is_ok[1]).sum())
        self.error_in_other += int((is_ok[0] & ~is_ok[1]).sum())
        self.error_in_both += int((~is_ok[0] & ~is_ok[1]).sum())
        self._add_only(pair)
        both = np.flatnonzero(is_ok[0] & is_ok[1])
        found = self._add_answers(pair.one.take(both), pair.other.take(both)) if len(both) else []
        rest = np.flatnonzero(~(is_ok[0] & is_ok[1]))
        return found, [*_uncompared(pair, rest)]

    def _add_only(self, pair: Pair) -> None:
        self.only_one += len(pair.only_one)
        self.only_other += len(pair.only_other)
        for named, table in ((self.first_only_one, pair.only_one), (self.first_only_other, pair.only_other)):
            named += map(key_text, table["key"].slice(0, _NAMED - len(named)).to_pylist())

    def _add_answers(self, one: pa.Table, other: pa.Table) -> list[Change]:
        ids_NK, scores_NK = matrix(one["class_ids"]), matrix(one["scores"]).astype(np.float64)
        other_ids_NK, other_scores_NK = matrix(other["class_ids"]), matrix(other["scores"]).astype(np.float64)
        is_kept_NK = other_ids_NK == ids_NK[:, :1]
        is_kept_N = is_kept_NK.any(axis=1)
        # a class that is not kept has at most the smallest score that is
        after_N = np.where(is_kept_N, np.where(is_kept_NK, other_scores_NK, 0).sum(axis=1), other_scores_NK[:, -1])
        self._add_drift(np.abs(scores_NK[:, 0] - after_N), is_kept_N, one["key"])
        is_changed_N = ids_NK[:, 0] != other_ids_NK[:, 0]
        self.changed += int(is_changed_N.sum())
        self.same += int((~is_changed_N).sum())
        places = np.flatnonzero(is_changed_N)
        found = [
            Change(drop, key, partition, Answer(a, score), Answer(b, other_score))
            for drop, key, partition, a, score, b, other_score in zip(
                np.nan_to_num(scores_NK[places, 0] - after_N[places]).tolist(),
                one["key"].take(places).to_pylist(), one["partition"].take(places).to_pylist(),
                ids_NK[places, 0].tolist(), scores_NK[places, 0].tolist(),
                other_ids_NK[places, 0].tolist(), other_scores_NK[places, 0].tolist(), strict=True,
            )
        ]  # fmt: skip
        self.most = heapq.nlargest(MOST_KEPT, [*self.most, *found], key=lambda change: change.drop)
        return found

    def _add_drift(self, drift_N: Array, is_kept_N: Array, keys: pa.ChunkedArray) -> None:
        """Add the differences of scores; those with a score that is no number are left out."""
        places = np.flatnonzero(is_kept_N & np.isfinite(drift_N))
        if not len(places):
            return
        self.num_drift += len(places)
        self.drift_sum += float(drift_N[places].sum())
        largest = places[drift_N[places].argmax()]
        if drift_N[largest] > self.drift_largest:
            self.drift_largest, self.drift_key = float(drift_N[largest]), key_text(keys[int(largest)].as_py())


def _uncompared(pair: Pair, rest: Array) -> Iterator[Uncompared]:
    one, other = pair.one.take(rest), pair.other.take(rest)
    for key, stage, other_stage in zip(
        one["key"].to_pylist(), one["stage"].to_pylist(), other["stage"].to_pylist(), strict=True
    ):
        yield Uncompared(key, _state(stage), _state(other_stage))
    for key, stage in zip(pair.only_one["key"].to_pylist(), pair.only_one["stage"].to_pylist(), strict=True):
        yield Uncompared(key, _state(stage), "no row")
    for key, stage in zip(pair.only_other["key"].to_pylist(), pair.only_other["stage"].to_pylist(), strict=True):
        yield Uncompared(key, "no row", _state(stage))


def _state(stage: str | None) -> str:
    return "ok" if stage is None else f"error ({stage})"
