"""tools/compare_releases.py: what counts as a difference, and how it is shown."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tools.compare_releases import Release, checkout, contents, difference, without_new_flags

ROWS = [
    {"key": "a.jpg", "status": "ok", "scores": [0.5, 0.25], "error": None},
    {"key": "b.jpg", "status": "error", "scores": None, "error": "no picture"},
]


def table(*changes: dict[str, Any]) -> pa.Table:
    """The rows with changes to the first of them, the second and so on."""
    padded = [*changes, *[{}] * len(ROWS)]
    return pa.Table.from_pylist([{**row, **change} for row, change in zip(ROWS, padded, strict=False)])


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (table(), ""),
        (table({"scores": [0.5, math.nextafter(0.25, 1)]}), "scores of 'a.jpg' was [0.5, 0.25], is [0.5, 0.25000000000000006]"),
        (table({}, {"error": "none"}), "error of 'b.jpg' was 'no picture', is 'none'"),
        (table({"key": "c.jpg"}), "2 rows became 2, keys differ: 'a.jpg'"),
        (table().slice(1), "2 rows became 1, keys differ: 'a.jpg'"),
        (pa.concat_tables([table(), table()]), "2 rows became 4, keys differ: 'a.jpg'"),
        (table().drop_columns(["error"]), "columns key string, status string, scores list<item: double>, error string be"),
    ],
    ids=["same", "last bit", "text", "key", "fewer", "doubled", "column"],
)  # fmt: skip
def test_rows_are_compared_bit_for_bit(new: pa.Table, told: str) -> None:
    found = difference(table(), new)
    assert found.startswith(told)
    assert bool(found) == bool(told)


def test_only_a_flag_that_is_new_is_left_out() -> None:
    def flagged(*flags: list[str]) -> pa.Table:
        rows = [{"key": name, "flags": found} for name, found in zip("abc", flags, strict=True)]
        return pa.Table.from_pylist(rows, pa.schema([("key", pa.string()), ("flags", pa.list_(pa.string()))]))

    old = flagged([], ["icc_profile"], ["non_finite"])
    new, count = without_new_flags(old, flagged(["icc_profile"], ["icc_profile"], ["non_finite", "icc_profile"]))
    assert (new, count) == (old, 2)
    for other in (flagged(["scaled_16bit"], ["icc_profile"], ["non_finite"]), flagged([], [], ["non_finite"])):
        new, count = without_new_flags(old, other)
        assert (new, count) == (other, 0)
        assert difference(old, new)


def test_what_is_no_number_is_itself_and_minus_zero_is_not_zero() -> None:
    nan = table({"scores": [math.nan, 0.0]})
    assert difference(nan, table({"scores": [math.nan, 0.0]})) == ""
    assert difference(nan, table({"scores": [math.nan, -0.0]})).startswith("scores of 'a.jpg' was [nan, 0.0], is [nan, -0.0]")


def test_files_are_compared_by_name_and_hash() -> None:
    old = {"model.onnx": "ab", "weights.bin": "cd"}
    assert difference(old, dict(reversed(old.items()))) == ""
    assert difference(old, {**old, "model.onnx": "ef"}) == "1 differ, the first is model.onnx"
    assert difference(old, {"model.onnx": "ab", "other.bin": "cd"}) == "2 differ, the first is other.bin"


def test_what_was_compared_is_shown_with_its_hash() -> None:
    assert contents(table()).startswith("2 rows (1 ok, 1 errors) x 4 columns, sha256 ")
    assert contents(table()) == contents(table())
    assert contents(table()) != contents(table({"status": "error"}))
    assert contents({"a": "1"}).startswith("1 sha256, together ")


def test_either_name_of_the_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "inference").mkdir()
    assert checkout(str(tmp_path), tmp_path / "unused") == Release(str(tmp_path), "inference", tmp_path)
    (tmp_path / "inference" / "bulkinfer").mkdir()
    assert Release.of("new", tmp_path) == Release("new", "bulkinfer", tmp_path / "inference")


def test_what_is_no_commit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no-such-commit is no folder, and no commit of "):
        checkout("no-such-commit", tmp_path / "checkout")
