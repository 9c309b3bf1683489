"""parquet.py: pictures of Parquet files of other programs, read a page at a time; broken files."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest
from bulkinfer.errors import RecordError, UsageError
from bulkinfer.records import parquet_pages
from bulkinfer.records.read_place import read_place
from bulkinfer.records.sources.archives import ListedPicture
from bulkinfer.records.sources.parquet import list_pictures
from bulkinfer.types import Archive, Member

from tests.archives import picture_table, write_parquet

LIMIT = 1 << 20
Values = list[bytes | None]


def values_of(count: int = 700) -> Values:
    """Bytes of many sizes, some of them null or empty."""
    random = np.random.default_rng(3)
    return [None if number % 11 == 5 else random.bytes(number * 7 % 900) for number in range(count)]


def listed(path: Path, columns: tuple[str, ...] = ()) -> list[ListedPicture]:
    with path.open("rb") as file:
        return list(list_pictures(file, os.fsencode(path), Counter(), columns))


def archive_of(path: Path) -> Archive:
    found = path.stat()
    return Archive(os.fsencode(path), "parquet", found.st_size, found.st_mtime_ns)


def read(path: Path, picture: ListedPicture, limit: int = LIMIT) -> bytes:
    return read_place(Member(archive_of(path), picture.offset, picture.span), limit)


def error(path: Path, picture: ListedPicture, limit: int = LIMIT) -> tuple[str, str]:
    with pytest.raises(RecordError) as caught:
        read(path, picture, limit)
    return caught.value.stage, caught.value.message


def check(path: Path, expected: Values) -> list[ListedPicture]:
    """The sizes of the values, and each read by itself, the last first."""
    found = listed(path)
    assert [each.size_bytes for each in found] == [None if value is None else len(value) for value in expected]
    for picture, value in reversed([*zip(found, expected, strict=True)]):
        if value:
            assert read(path, picture) == value
    return found


FORMS: dict[str, dict[str, Any]] = {
    **{
        name: {"compression": name, "write_page_checksum": True} for name in ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
    },
    "small pages": {"data_page_size": 1000, "write_batch_size": 8, "write_page_index": True, "row_group_size": 300},
    "version 2": {"data_page_version": "2.0"},
    "plain": {"use_dictionary": False},
    "lengths first": {"use_dictionary": False, "column_encoding": {"data": "DELTA_LENGTH_BYTE_ARRAY"}},
    "no schema of Arrow": {"store_schema": False},
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_file(tmp_path: Path, form: str) -> None:
    expected = values_of()
    table = pa.table({"data": pa.array(expected, pa.binary()), "number": range(len(expected))})
    check(write_parquet(tmp_path / "a.parquet", table, **{"row_group_size": 1 << 20, **FORMS[form]}), expected)


def test_values_that_repeat_lie_once_in_a_dictionary(tmp_path: Path) -> None:
    expected: Values = [b"x" * 1000, b"", None, b"y" * 2000] * 500
    path = write_parquet(tmp_path / "a.parquet", pa.table({"data": pa.array(expected, pa.large_binary())}), row_group_size=900)
    check(path, expected)
    assert path.stat().st_size < 20_000


@pytest.mark.parametrize("kind", ["required", "struct", "required struct"])
def test_columns_without_nulls_and_fields_of_a_struct(tmp_path: Path, kind: str) -> None:
    expected: Values = [b"a", b"bc", b"def"]
    value = pa.field("bytes", pa.binary(), nullable=kind == "struct")
    column = pa.field("image", value.type if kind == "required" else pa.struct([value]), nullable=kind == "struct")
    rows = expected if kind == "required" else [{"bytes": each} for each in expected]
    table = pa.Table.from_arrays([pa.array(rows, column.type)], schema=pa.schema([column]))
    check(write_parquet(tmp_path / "a.parquet", table), expected)


def by_polars(path: Path, values: Values) -> None:
    polars.DataFrame({"data": values}).write_parquet(path)


def by_duckdb(path: Path, values: Values) -> None:
    table = pa.table({"data": pa.array(values, pa.binary())})
    with duckdb.connect() as connection:
        connection.register("pictures", table)
        connection.execute(f"copy pictures to '{path}' (format parquet, row_group_size 2048)")


@pytest.mark.parametrize("write", [by_polars, by_duckdb])
def test_files_of_other_programs(tmp_path: Path, write: Callable[[Path, Values], None]) -> None:
    write(tmp_path / "a.parquet", values_of())
    check(tmp_path / "a.parquet", values_of())


def test_names_and_labels_of_hugging_face(tmp_path: Path) -> None:
    """Rows without a usable name, and those of a name that is taken, are called by their number."""
    files: dict[str, bytes | None] = {"a/1.jpg": b"1", "b.jpg": b"2", "./b.jpg": b"3", "0000007": b"4", "": b"5"}
    table = picture_table(files, {"a/1.jpg": 0, "b.jpg": 1, "./b.jpg": -1}, ["cat", "dog"])
    found = listed(write_parquet(tmp_path / "a.parquet", table))
    assert [each.name for each in found] == [b"a/1.jpg", b"b.jpg", b"00000002", b"00000003", b"00000004"]
    assert [(each.label, each.class_name) for each in found] == [(0, "cat"), (1, "dog"), (-1, ""), (None, ""), (None, "")]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", pa.table({"data": [b"abc", None, b""]}))
    whole, null, empty = listed(path)
    assert read(path, whole) == b"abc"
    assert error(path, null) == ("read", f"a.parquet has no picture in value 1 of the page at byte {null.offset}")
    assert error(path, empty) == ("decode", "empty file")
    assert error(path, whole, 2) == ("read", "too large: 3 bytes, limit 2")
    assert error(path, whole._replace(offset=0)) == ("read", "a.parquet: no page begins at its byte 0")
    assert error(path, whole._replace(span=3))[0] == "read"


def test_a_damaged_page_costs_its_rows_alone(tmp_path: Path) -> None:
    expected = values_of(90)
    path = write_parquet(
        tmp_path / "a.parquet", pa.table({"data": pa.array(expected, pa.binary())}), row_group_size=30,
        write_page_checksum=True, use_dictionary=False,
    )  # fmt: skip
    before = listed(path)
    content = bytearray(path.read_bytes())
    content[before[30].offset + 2000] ^= 1
    path.write_bytes(content)
    found = listed(path)
    assert [each.size_bytes for each in found[30:60]] == [None] * 30
    assert found[:30] + found[60:] == before[:30] + before[60:]
    stage, message = error(path, found[31])
    assert (stage, message[:10]) == ("read", "a.parquet:")
    assert read(path, found[61]) == expected[61]


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        listed(path)
    return str(caught.value).removeprefix(f"{path} ")


def test_a_file_that_is_cut_off_is_refused_at_every_length(tmp_path: Path) -> None:
    whole = write_parquet(tmp_path / "whole.parquet", pa.table({"data": [b"abc", b"def"]})).read_bytes()
    path = tmp_path / "a.parquet"
    for length in [*range(0, len(whole), 40), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert refusal(path).startswith("is no Parquet file, is cut off or damaged ("), length
    path.write_bytes(whole[:-1] + b"E")
    assert "(it is encrypted)" in refusal(path)


@pytest.mark.parametrize("seed", range(8))
def test_damage_anywhere_is_one_sentence_or_rows_without_a_size(tmp_path: Path, seed: int) -> None:
    expected = values_of(60)
    table = pa.table({"data": pa.array(expected, pa.binary()), "label": range(60)})
    whole = write_parquet(tmp_path / "whole.parquet", table).read_bytes()
    random = np.random.default_rng(seed)
    path = tmp_path / "a.parquet"
    for at in random.integers(0, len(whole), 40).tolist():
        path.write_bytes(whole[:at] + bytes([whole[at] ^ int(random.integers(1, 256))]) + whole[at + 1 :])
        with contextlib.suppress(UsageError):
            assert len(listed(path)) <= len(expected)


def test_pages_that_are_too_large_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "a.parquet", pa.table({"data": [b"x" * 2000]}))
    monkeypatch.setattr(parquet_pages, "_MOST_PAGE_BYTES", 1000)
    assert "has 2 kB, and 1 kB is the most: write smaller row groups)" in refusal(path)


def test_an_encoding_that_could_grow_without_bound_is_refused(tmp_path: Path) -> None:
    table = pa.table({"data": pa.array([b"x" * 1000] * 100, pa.binary())})
    path = write_parquet(tmp_path / "a.parquet", table, use_dictionary=False, column_encoding={"data": "DELTA_BYTE_ARRAY"})
    assert "has the encoding 7, which is not read: write it as PLAIN)" in refusal(path)


def test_pictures_of_a_page_read_the_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "a.parquet", pa.table({"data": [b"%d" % number for number in range(8)]}))
    reads, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *given: reads.append(given) or pread(*given))
    found = listed(path)
    assert [read(path, each) for each in found[4:]] == [b"4", b"5", b"6", b"7"]
    count = len(reads)
    assert [read(path, each) for each in found[4:]] == [b"4", b"5", b"6", b"7"]
    assert len(reads) == count
