"""Rows of two jobs brought together by key: in memory, and by way of buckets on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bulkinfer.insight.comparison.join import joined
from bulkinfer.results.reader import Results, read_results

from tests.made_jobs import write_job

NUM = 500


def jobs(tmp_path: Path) -> list[Results]:
    """Two jobs in another order, each with a hundred keys that the other lacks; the best class is the number of the key."""
    random = np.random.default_rng(3)
    found = []
    for name, numbers in (("a", np.arange(NUM - 100)), ("b", np.arange(100, NUM))):
        order = random.permutation(numbers).tolist()
        ids = [[number, number + 1] for number in order]
        keys = [b"\xff%d.jpg" % number for number in order]
        found.append(read_results(write_job(tmp_path / name, keys, ids, part_rows=73, name=name)))
    return found


@pytest.mark.parametrize("bucket_rows", [1000, 60, 1])
def test_every_row_comes_once_with_its_partner(tmp_path: Path, bucket_rows: int) -> None:
    pairs = list(joined(*jobs(tmp_path), tmp_path, bucket_rows))
    assert len(pairs) == {1000: 1, 60: 7, 1: 400}[bucket_rows]
    both, first, second = list[bytes](), list[bytes](), list[bytes]()
    for pair in pairs:
        assert pair.one["key"].equals(pair.other["key"])
        assert pair.one["class_ids"].to_pylist() == pair.other["class_ids"].to_pylist()
        for key, ids in zip(pair.one["key"].to_pylist(), pair.one["class_ids"].to_pylist(), strict=True):
            assert key == b"\xff%d.jpg" % ids[0]
        both += pair.one["key"].to_pylist()
        first += pair.only_one["key"].to_pylist()
        second += pair.only_other["key"].to_pylist()
    assert sorted(both) == sorted(b"\xff%d.jpg" % number for number in range(100, NUM - 100))
    assert sorted(first) == sorted(b"\xff%d.jpg" % number for number in range(100))
    assert sorted(second) == sorted(b"\xff%d.jpg" % number for number in range(NUM - 100, NUM))


def test_the_temporary_files_are_removed(tmp_path: Path) -> None:
    pairs = joined(*jobs(tmp_path), tmp_path, 60)
    next(pairs)
    assert len(list(tmp_path.glob(".compare-*"))) == 1
    pairs.close()
    assert list(tmp_path.glob(".compare-*")) == []
