"""Adds up rows with known classes, a part at a time. Memory: one count for each pair of classes that occurs.

Shape letters: N rows, K classes kept in a row, M classes that count as right, padded with -1.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from bulkinfer.types import Array

NUM_BINS = 15
_PAD = -1  # no class has this number
_BITS = 32  # of one class of a pair in an int64
_LOWER = (1 << _BITS) - 1


@dataclass
class Tally:
    """What was counted.

    `first_hits_K` counts the rows whose first right class has that rank, from 0. `confusion` counts (class, answer) of the rows
    with one right class; `num_several` rows have several, and are not in it. Of each of the equal bins of scores in (0, 1],
    there are the rows, those that were right, and the sum of their scores; `num_without_score` rows have a score that is no
    number.
    """

    first_hits_K: Array
    num_scored: int = 0
    num_several: int = 0
    confusion: Counter[tuple[int, int]] = field(default_factory=Counter)
    bin_rows: Array = field(default_factory=lambda: np.zeros(NUM_BINS, np.int64))
    bin_right: Array = field(default_factory=lambda: np.zeros(NUM_BINS, np.int64))
    bin_scores: Array = field(default_factory=lambda: np.zeros(NUM_BINS))
    num_without_score: int = 0
    are_probabilities: bool = True

    @classmethod
    def of(cls, top_k: int) -> Tally:
        """An empty one for rows that keep `top_k` classes."""
        return cls(np.zeros(top_k, np.int64))

    def add(self, class_ids_NK: Array, scores_N: Array, right_NM: Array) -> None:
        """Count rows: their kept classes, best first, the score of the best one, and the classes that are right."""
        hits_NK = (class_ids_NK[:, :, None] == right_NM[:, None, :]).any(axis=2)
        is_hit_N = hits_NK.any(axis=1)
        ranks = hits_NK.argmax(axis=1)[is_hit_N]
        self.first_hits_K += np.bincount(ranks, minlength=len(self.first_hits_K))
        self.num_scored += len(hits_NK)
        is_single_N = (right_NM != _PAD).sum(axis=1) == 1
        self.num_several += int((~is_single_N).sum())
        pairs, counts = np.unique(
            right_NM[is_single_N, 0] << _BITS | class_ids_NK[is_single_N, 0].astype(np.int64), return_counts=True
        )
        self.confusion.update(
            {(pair >> _BITS, pair & _LOWER): count for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True)}
        )
        self._add_scores(scores_N.astype(np.float64), hits_NK[:, 0])

    def _add_scores(self, scores_N: Array, is_right_N: Array) -> None:
        known = np.isfinite(scores_N)
        self.num_without_score += int((~known).sum())
        scores, right = scores_N[known], is_right_N[known]
        if len(scores) and not (scores.min() >= 0 and scores.max() <= 1 + 1e-6):
            self.are_probabilities = False
        bins = np.clip(np.ceil(scores * NUM_BINS).astype(np.int64) - 1, 0, NUM_BINS - 1)
        self.bin_rows += np.bincount(bins, minlength=NUM_BINS)
        self.bin_right += np.bincount(bins[right], minlength=NUM_BINS)
        self.bin_scores += np.bincount(bins, weights=scores, minlength=NUM_BINS)


def padded(classes: list[tuple[int, ...]]) -> Array:
    """The right classes of rows as N x M int64; every row has at least one."""
    most = max(map(len, classes), default=1)
    if most == 1:  # the usual case, which needs no loop of our own
        return np.fromiter((found[0] for found in classes), np.int64, len(classes))[:, None]
    right_NM = np.full((len(classes), most), _PAD, np.int64)
    for row, found in enumerate(classes):
        right_NM[row, : len(found)] = found
    return right_NM
