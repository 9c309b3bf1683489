"""Split a sorted list of records among partitions: by count or by bytes, always in contiguous ranges."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

_Sums = np.ndarray[Any, np.dtype[np.int64]]  # sums[i]: bytes of the first i records


def even_split(num_records: int, num_partitions: int) -> list[tuple[int, int]]:
    """Contiguous intervals [start, end) that cover 0..num_records in order.

    The first `num_records % num_partitions` of them hold one record more; some are empty if there are fewer records.
    """
    assert num_records >= 0, num_records
    assert num_partitions >= 1, num_partitions
    size, remainder = divmod(num_records, num_partitions)
    starts = [index * size + min(index, remainder) for index in range(num_partitions + 1)]
    return list(pairwise(starts))


def even_bytes_split(sizes_bytes: Iterable[int | None], num_partitions: int) -> list[tuple[int, int]]:
    """Contiguous intervals [start, end) that cover the records in order; the largest share of bytes is as small as possible.

    An unknown size (None) counts as 0. Within this condition each cut is as near as possible to the cut of equal shares of
    bytes, and among cuts of equal bytes to the cut of equal counts. So no share exceeds the ideal share by more than the
    largest record. An interval is empty only if there are fewer records than partitions.
    """
    assert num_partitions >= 1, num_partitions
    sums = np.cumsum(np.fromiter((size or 0 for size in sizes_bytes), np.int64))
    sums = np.concatenate((np.zeros(1, np.int64), sums))
    num_records = len(sums) - 1
    if num_records <= num_partitions:
        return even_split(num_records, num_partitions)
    limit = _least_limit(sums, num_partitions)
    earliest = [num_records]  # per cut, from the last: an earlier cut would leave more than the remaining partitions hold
    for index in range(num_partitions - 1, 0, -1):
        earliest.append(max(index, int(np.searchsorted(sums, sums[earliest[-1]] - limit))))
    cuts = [0]
    for index, low in zip(range(1, num_partitions), reversed(earliest[1:]), strict=True):
        high = min(_reach(sums, cuts[-1], limit), num_records - (num_partitions - index))
        cuts.append(min(max(_ideal_cut(sums, index, num_partitions), low, cuts[-1] + 1), high))
    return list(pairwise([*cuts, num_records]))


def _reach(sums: _Sums, start: int, limit: int) -> int:
    """The largest end for which start..end holds at most `limit` bytes."""
    return int(np.searchsorted(sums, sums[start] + limit, "right")) - 1


def _least_limit(sums: _Sums, num_partitions: int) -> int:
    """The smallest limit of bytes per partition with which all records fit."""
    low = -(-int(sums[-1]) // num_partitions)
    high = low + int(np.diff(sums).max())
    while low < high:
        limit = (low + high) // 2
        if _fits(sums, num_partitions, limit):
            high = limit
        else:
            low = limit + 1
    return low


def _fits(sums: _Sums, num_partitions: int, limit: int) -> bool:
    end = 0
    for _ in range(num_partitions):
        end = _reach(sums, end, limit)
    return end == len(sums) - 1


def _ideal_cut(sums: _Sums, index: int, num_partitions: int) -> int:
    """The cut before partition `index` that is nearest to equal bytes; among equals, the one nearest to equal counts."""
    target = int(sums[-1]) * index // num_partitions
    after = int(np.searchsorted(sums, target))
    nearest = min(int(sums[max(after - 1, 0)]), int(sums[after]), key=lambda found: abs(found - target))
    first, last = int(np.searchsorted(sums, nearest)), int(np.searchsorted(sums, nearest, "right")) - 1
    return min(max((len(sums) - 1) * index // num_partitions, first), last)
