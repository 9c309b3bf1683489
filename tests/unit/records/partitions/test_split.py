"""split.py: every record is in exactly one partition, and shares are as even as contiguous ranges allow."""

from __future__ import annotations

from itertools import combinations, pairwise

from bulkinfer.records.partitions.split import even_bytes_split, even_split
from hypothesis import given
from hypothesis import strategies as st

SIZES = st.lists(st.none() | st.integers(0, 9) | st.integers(0, 1 << 40), max_size=60)


def covered(intervals: list[tuple[int, int]]) -> list[int]:
    return [number for start, end in intervals for number in range(start, end)]


def shares(sizes: list[int | None], intervals: list[tuple[int, int]]) -> list[int]:
    return [sum(size or 0 for size in sizes[start:end]) for start, end in intervals]


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_split_covers_everything_once_and_evenly(num_records: int, num_partitions: int) -> None:
    intervals = even_split(num_records, num_partitions)
    assert len(intervals) == num_partitions
    assert covered(intervals) == list(range(num_records))
    sizes = [end - start for start, end in intervals]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(SIZES, st.integers(1, 80))
def test_bytes_cover_everything_once_and_no_share_is_too_large(sizes: list[int | None], num_partitions: int) -> None:
    intervals = even_bytes_split(sizes, num_partitions)
    assert len(intervals) == num_partitions
    assert covered(intervals) == list(range(len(sizes)))
    known = [size or 0 for size in sizes]
    assert max(shares(sizes, intervals)) * num_partitions <= sum(known) + max(known, default=0) * num_partitions
    assert sum(start == end for start, end in intervals) == max(0, num_partitions - len(sizes))


@given(st.lists(st.integers(0, 12), min_size=1, max_size=9), st.integers(1, 4))
def test_bytes_have_the_least_possible_largest_share(sizes: list[int], num_partitions: int) -> None:
    places = range(len(sizes) + 1)
    every_split = ([0, *cuts, len(sizes)] for cuts in combinations(sorted([*places] * 3), num_partitions - 1))
    best = min(max(sum(sizes[a:b]) for a, b in pairwise(cuts)) for cuts in every_split)
    assert max(shares([*sizes], even_bytes_split(sizes, num_partitions))) == best


@given(st.integers(0, 200), st.integers(1, 30), st.sampled_from([None, 0, 7]))
def test_equal_sizes_are_split_by_count(num_records: int, num_partitions: int, size: int | None) -> None:
    counts = [end - start for start, end in even_bytes_split([size] * num_records, num_partitions)]
    assert max(counts) - min(counts) <= 1


def test_bytes_by_example() -> None:
    assert even_bytes_split([100, 1, 1, 1], 3) == [(0, 1), (1, 2), (2, 4)]
    assert even_bytes_split([1, 1, 1, 3], 2) == [(0, 3), (3, 4)]
    assert even_bytes_split([5, 5], 4) == [(0, 1), (1, 2), (2, 2), (2, 2)]
    assert even_bytes_split([0, 0, 0, 0, 8, 8], 2) == [(0, 5), (5, 6)]
    assert even_bytes_split([], 2) == [(0, 0), (0, 0)]
    assert even_bytes_split([1 << 60, 1 << 60], 1) == [(0, 2)]
