"""json_path.py: numbers at a path of a JSON file, and the names that there are where a path leads nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.bench.spec.checked_keys import Place
from bulkinfer.bench.spec.json_path import numbers_at, read_below
from bulkinfer.errors import UsageError

CONTENT = {
    "rate": 2.5,
    "deep": {"median": 3, "name": "x"},
    "runs": [{"who": "a b", "rate": 1, "flags": True}, {"who": "c.d", "rate": 2}, {"who": "a b", "rate": 4}],
    "rows": [[1, 2], [3]],
}


@pytest.mark.parametrize(
    ("path", "numbers"),
    [
        ("rate", [2.5]),
        ("deep.median", [3]),
        ("runs.1.rate", [2]),
        ("runs.*.rate", [1, 2, 4]),
        ("runs[who=a b].rate", [1, 4]),
        ("runs[who=c.d].rate", [2]),
        ("rows.0", [1, 2]),
        ("rows.*.*", [1, 2, 3]),
    ],
)
def test_numbers(path: str, numbers: list[float]) -> None:
    assert numbers_at(CONTENT, path, Place("entry")) == numbers


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("rates", "the file has no 'rates'; it has rate, deep, runs, rows"),
        ("deep.mean", "deep has no 'mean'; it has median, name"),
        ("deep", "deep is no number but a dictionary with median, name"),
        ("deep.name", 'deep.name is no number but "x"'),
        ("runs.0.flags", "is no number but true"),
        ("runs.3.rate", "runs has 3 items, and no '3'"),
        ("runs[who=z].rate", "no item of runs has who=z"),
        ("rate.x", "rate is 2.5, which holds no 'x'"),
    ],
)
def test_faults(path: str, sentence: str) -> None:
    with pytest.raises(UsageError) as failed:
        numbers_at(CONTENT, path, Place("entry"))
    assert sentence in str(failed.value)


def test_the_file_is_searched_below_the_folder(tmp_path: Path) -> None:
    (tmp_path / "job-1").mkdir()
    (tmp_path / "job-1" / "summary.json").write_text('{"a": 1}')
    (tmp_path / "latest").symlink_to("job-1")  # as a launch leaves it: not a second file
    assert read_below(tmp_path, "summary.json", Place("entry")) == {"a": 1}
    with pytest.raises(UsageError, match=r"wrote no file 'bench\.json' into .*, which has summary\.json"):
        read_below(tmp_path, "bench.json", Place("entry"))
    (tmp_path / "job-2").mkdir()
    (tmp_path / "job-2" / "summary.json").write_text("{")
    with pytest.raises(UsageError, match="the command wrote 2 files"):
        read_below(tmp_path, "summary.json", Place("entry"))
    with pytest.raises(UsageError, match="is not JSON"):
        read_below(tmp_path, "job-2/summary.json", Place("entry"))
