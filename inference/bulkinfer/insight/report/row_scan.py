"""One pass over the rows of a job: counts, classes, scores, and the rows worth showing. Memory: one part, and what is kept.

Shape letters: N ok rows of a part, K classes kept per row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.insight.class_columns import matrix
from bulkinfer.records.manifest_rows import raw_key_column
from bulkinfer.results.reader import Results
from bulkinfer.types import Array

NUM_BINS = 20  # of the best scores, from 0 to 1
FIRST_ERRORS = 100  # rows kept of each stage, the first ones
_CLASSES = ("class_ids", "scores")


@dataclass(frozen=True)
class Sample:
    """A row worth showing: its key, partition, best classes with scores (ok rows), stage and message (error rows)."""

    key: bytes
    partition: int
    class_ids: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    stage: str = ""
    error: str = ""


@dataclass
class Extremes:
    """The `most` ok rows with the largest (`sign` -1) or smallest (1) best score, best first; of equal ones the first."""

    sign: int
    most: int
    kept: list[tuple[float, int, Sample]] = field(default_factory=list)  # sign x score, number of the row, row

    def add(self, best_N: Array, first: int, sample_of: SampleOf) -> None:
        """Consider the ok rows of a part by their best scores; `first` is the number of the first of them in the job."""
        values_N = np.where(np.isfinite(best_N), self.sign * best_N.astype(np.float64), np.inf)
        if not self.most:
            return
        limit = self.kept[-1][0] if len(self.kept) == self.most else np.inf
        candidates = np.flatnonzero(values_N < limit)
        if len(candidates) > self.most:
            candidates = candidates[np.argsort(values_N[candidates], kind="stable")[: self.most]]
        new = [(float(values_N[row]), first + int(row), sample_of(int(row))) for row in candidates]
        self.kept = sorted([*self.kept, *new], key=lambda each: each[:2])[: self.most]

    @property
    def samples(self) -> list[Sample]:
        return [sample for _, _, sample in self.kept]


@dataclass(frozen=True)
class SampleOf:
    """Makes the Sample of an ok row of a part, by its position among the ok rows."""

    ok: pa.Table
    class_ids_NK: Array
    scores_NK: Array

    def __call__(self, row: int) -> Sample:
        one = self.ok.slice(row, 1)
        ids = tuple(int(number) for number in self.class_ids_NK[row])
        scores = tuple(float(score) for score in self.scores_NK[row])
        return Sample(raw_key_column(one)[0].as_py(), one["partition"][0].as_py(), ids, scores)


@dataclass
class RowScan:
    """What the rows of a job hold. `classes` counts ok rows by best class, `score_bins` by best score.

    `labelled` counts the ok rows with a label in their own column. `errors` are the first error rows by stage.
    """

    num_ok: int = 0
    stages: Counter[str] = field(default_factory=Counter)
    errors: dict[str, list[Sample]] = field(default_factory=dict)
    classes: Counter[int] = field(default_factory=Counter)
    score_bins: Array = field(default_factory=lambda: np.zeros(NUM_BINS, np.int64))
    score_sum: float = 0.0
    num_without_score: int = 0
    sure: Extremes = field(default_factory=lambda: Extremes(-1, 0))
    unsure: Extremes = field(default_factory=lambda: Extremes(1, 0))
    labelled: int = 0

    @property
    def num_errors(self) -> int:
        return self.stages.total()

    @property
    def num_scored(self) -> int:
        return int(self.score_bins.sum())


def scan_rows(results: Results, most_samples: int) -> RowScan:
    """Read every part once. Raises the errors of Results.tables."""
    has_classes = "top_k" in results.job["identity"]
    columns = ("key", "key_bytes", "partition", "stage", "error", "label", *(_CLASSES if has_classes else ()))
    found = RowScan(sure=Extremes(-1, most_samples), unsure=Extremes(1, most_samples))
    for table in results.tables(columns):
        is_ok = pc.is_null(table["stage"])
        _add_errors(found, table.filter(pc.invert(is_ok)))
        ok = table.filter(is_ok)
        if has_classes and len(ok):
            _add_classes(found, ok)
        found.num_ok += len(ok)
    return found


def _add_errors(found: RowScan, failed: pa.Table) -> None:
    for entry in pc.value_counts(failed["stage"]).to_pylist() if len(failed) else ():
        found.stages[entry["values"]] += entry["counts"]
    for stage in found.stages:
        kept = found.errors.setdefault(stage, [])
        if len(failed) and len(kept) < FIRST_ERRORS:
            rows = failed.filter(pc.equal(failed["stage"], stage)).slice(0, FIRST_ERRORS - len(kept))
            kept += _error_samples(rows)


def _error_samples(rows: pa.Table) -> Iterator[Sample]:
    names = ("partition", "stage", "error")
    keys, columns = raw_key_column(rows).to_pylist(), (rows[name].to_pylist() for name in names)
    for key, partition, stage, error in zip(keys, *columns, strict=True):
        yield Sample(key, partition, stage=stage, error=error or "")


def _add_classes(found: RowScan, ok: pa.Table) -> None:
    class_ids_NK, scores_NK = (matrix(ok[name]) for name in _CLASSES)
    best_N = scores_NK[:, 0]
    is_finite = np.isfinite(best_N)
    bins = np.clip((best_N[is_finite] * NUM_BINS).astype(np.int64), 0, NUM_BINS - 1)
    found.score_bins += np.bincount(bins, minlength=NUM_BINS)
    found.score_sum += float(best_N[is_finite].sum(dtype=np.float64))
    found.num_without_score += int((~is_finite).sum())
    for number, count in zip(*np.unique(class_ids_NK[:, 0], return_counts=True), strict=True):
        found.classes[int(number)] += int(count)
    sample_of = SampleOf(ok, class_ids_NK, scores_NK)
    found.sure.add(best_N, found.num_ok, sample_of)
    found.unsure.add(best_N, found.num_ok, sample_of)
    found.labelled += len(ok) - ok["label"].null_count
