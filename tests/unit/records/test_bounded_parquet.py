"""bounded_parquet.py: files of a few kilobytes that stand for gigabytes are refused before they take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulkinfer.errors import RunError
from bulkinfer.records import bounded_parquet
from bulkinfer.records.bounded_parquet import BoundedParquet
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_rows import Entry
from bulkinfer.results.parquet_parts import read_part, write_part
from bulkinfer.types import Step

from tests.rows import filled_rows, task

STEP = Step(0, 0, 4)


def repeated(text: str, count: int) -> pa.Array:
    """A text `count` times, by a code each: a small file, and large once it is decoded."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))


def opened(path: Path, table: pa.Table) -> BoundedParquet:
    pq.write_table(table, path, compression="zstd", store_schema=False)
    return BoundedParquet(pa.BufferReader(path.read_bytes()), path.stat().st_size)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "text": pa.array(["a", None, "", "ü" * 50]),
        "bytes": pa.array([b"\xff", b"", None, b"a"]),
        "lists": pa.array([["a", "b"], [], None, ["c"]], pa.list_(pa.string())),
        "fixed": pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float16(), 2)),
        "numbers": pa.array([1, 2, None, 4], pa.int32()),
    }
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "x", row_group_size=3)
    found = BoundedParquet(pa.BufferReader((tmp_path / "x").read_bytes()), 1)
    assert found.read(table.column_names).equals(table)
    assert found.read(["lists", "text"], [1]).to_pylist() == table.select(["lists", "text"]).slice(3).to_pylist()
    with pytest.raises(pa.ArrowException):
        BoundedParquet(pa.BufferReader(b"PAR1"), 4)


@pytest.mark.parametrize(
    "values",
    [
        repeated("x" * 1000, 2000),
        pa.nulls(200_000, pa.int32()),
        pa.array([[0] * 300_000, []], pa.list_(pa.int32())),
        pa.array([[0.0] * 300_000, None], pa.list_(pa.float32(), 300_000)),
        pa.ListArray.from_arrays([0, 2000], repeated("x" * 1000, 2000)),
    ],
    ids=["text", "rows", "list", "fixed list", "list of text"],
)
def test_c48_what_grows_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: pa.Array) -> None:
    table = pa.table({"values": values})
    found = opened(tmp_path / "x", table)
    assert found.read(["values"]).num_rows == len(values)
    monkeypatch.setattr(bounded_parquet, "_MOST_BYTES", 700_000)
    assert (tmp_path / "x").stat().st_size < 15_000
    with pytest.raises(ValueError, match=r"its rows would take [\d.]+ [kMG]B of memory"):
        opened(tmp_path / "x", table).read(["values"])


def test_c48_a_part_that_stands_for_much_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by verify, by a launch before it goes on, by retry and by read_results."""
    write_part(tmp_path, filled_rows(STEP, task()), len(STEP), {"fingerprint": "f" * 64})
    (path,) = tmp_path.glob("part-*")
    table = pq.read_table(path)
    bomb = table.set_column(table.column_names.index("error"), "error", pa.array(["x" * 1_000_000] * 4))
    pq.write_table(bomb.replace_schema_metadata(table.schema.metadata), path, compression="zstd")
    assert path.stat().st_size < 20_000
    read_part(tmp_path, STEP, "f" * 64)
    monkeypatch.setattr(bounded_parquet, "_MOST_BYTES", 2_500_000)
    with pytest.raises(RunError, match=r"is damaged or not a part of a job \(its rows would take [\d.]+ [kMG]B of memory\)"):
        read_part(tmp_path, STEP, "f" * 64)


def test_c48_a_manifest_that_stands_for_much_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "manifest.parquet"
    Manifest.from_entries([Entry(b"x" * 1000, number) for number in range(5000)], b"/").write(path)
    assert path.stat().st_size < 30_000
    assert Manifest.read(path).num_records == 5000
    monkeypatch.setattr(bounded_parquet, "_MOST_BYTES", 1_000_000)
    with pytest.raises(RunError, match=r"manifest.parquet is damaged \(its rows would take [\d.]+ [kMG]B of memory\)"):
        Manifest.read(path)
