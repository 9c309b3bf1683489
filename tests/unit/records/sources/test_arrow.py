"""arrow.py: pictures lie in Arrow files as they were written; files of other programs, and broken ones."""

from __future__ import annotations

import itertools
import os
import re
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.feather
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.sources.archives import ListedPicture
from bulkinfer.records.sources.arrow import list_pictures

from tests.archives import picture_table, write_arrow

Values = list[bytes | None]
VALUES: Values = [None if number % 7 == 3 else bytes([number]) * (number * number % 40) for number in range(60)]


def listed(path: Path, columns: tuple[str, ...] = ()) -> list[ListedPicture]:
    with path.open("rb") as file:
        return list(list_pictures(file, os.fsencode(path), Counter(), columns))


def check(path: Path, expected: Values) -> None:
    """Each value lies at its place in the file."""
    content, found = path.read_bytes(), listed(path)
    assert [each.size_bytes for each in found] == [None if value is None else len(value) for value in expected]
    assert [content[each.offset : each.offset + each.span] if each.offset >= 0 else None for each in found] == expected


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_each_form_of_a_file(tmp_path: Path, kind: pa.DataType, *, is_stream: bool) -> None:
    column = pa.chunked_array([pa.array(VALUES[:20], kind), pa.array([None, *VALUES[20:]], kind)[1:]])  # of an offset
    check(write_arrow(tmp_path / "a.arrow", pa.table({"data": column}), is_stream=is_stream), VALUES)


@pytest.mark.parametrize("is_stream", [False, True])
def test_names_and_labels_of_hugging_face(tmp_path: Path, *, is_stream: bool) -> None:
    files = {f"{number}.jpg": value for number, value in enumerate(VALUES)}
    table = picture_table(files, {name: number % 2 for number, name in enumerate(files)}, ["cat", "dog"])
    path = write_arrow(tmp_path / "a.arrow", table, is_stream=is_stream)
    check(path, VALUES)
    assert [(each.name, each.label, each.class_name) for each in listed(path)[:2]] == [
        (b"0.jpg", 0, "cat"), (b"1.jpg", 1, "dog"),
    ]  # fmt: skip


def by_feather(path: Path) -> None:
    pyarrow.feather.write_feather(pa.table({"data": VALUES}), path, compression="uncompressed")


def by_polars(path: Path) -> None:
    polars.DataFrame({"data": VALUES}).write_ipc(path)


@pytest.mark.parametrize("write", [by_feather, by_polars])
def test_files_of_other_programs(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "a.feather")
    check(tmp_path / "a.feather", VALUES)


@pytest.mark.parametrize("is_stream", [False, True])
def test_names_and_labels_by_dictionary(tmp_path: Path, *, is_stream: bool) -> None:
    names = [f"{number}.jpg" for number in range(len(VALUES))]
    labels = pa.array(["cat", "dog", None] * 20).dictionary_encode()
    table = pa.table({"data": VALUES, "file_name": pa.array(names).dictionary_encode(), "label": labels})
    found = listed(write_arrow(tmp_path / "a.arrow", table, is_stream=is_stream))
    assert [each.name.decode() for each in found] == names
    assert [each.class_name for each in found] == ["cat", "dog", ""] * 20


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_file_that_becomes_shorter_meanwhile(tmp_path: Path, *, is_stream: bool) -> None:
    """It ends the listing, not the process, as a mapped file would."""
    path = write_arrow(tmp_path / "a.arrow", pa.table({"data": [bytes(1 << 16)] * 12}), is_stream=is_stream)
    with path.open("rb") as file:
        pictures = list_pictures(file, os.fsencode(path), Counter())
        next(pictures)
        os.truncate(path, 1 << 12)
        with pytest.raises(UsageError, match="cannot be read as an Arrow file"):
            list(pictures)


def test_pictures_are_not_read_to_list_them(tmp_path: Path) -> None:
    size = 1 << 26
    path = write_arrow(tmp_path / "a.arrow", pa.table({"data": [bytes(size)] * 2, "label": [0, 1]}))
    with path.open("rb") as file:
        counting = CountedReads(file)
        found = list(list_pictures(counting, os.fsencode(path), Counter()))
    assert [each.size_bytes for each in found] == [size, size]
    assert counting.count < 1 << 16


class CountedReads:
    """A file that counts the bytes that are read."""

    def __init__(self, file: Any) -> None:
        self._file, self.count, self.closed = file, 0, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, count: int = -1) -> bytes:
        data: bytes = self._file.read(count)
        self.count += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        count: int = self._file.readinto(buffer)
        self.count += count
        return count


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        listed(path)
    return str(caught.value).removeprefix(f"{path} ")


def test_compressed_columns_are_refused(tmp_path: Path) -> None:
    pyarrow.feather.write_feather(pa.table({"data": VALUES}), tmp_path / "a.feather", compression="zstd")
    assert "(its columns are compressed, as write_feather does: write it with compression='uncompressed')" in refusal(
        tmp_path / "a.feather"
    )
    (tmp_path / "a.feather").write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    assert "(it is of version 1 of Feather)" in refusal(tmp_path / "a.feather")


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_file_that_is_cut_off_is_refused_at_every_length(tmp_path: Path, *, is_stream: bool) -> None:
    """Also a stream that ends behind one of its record batches."""
    whole = write_arrow(tmp_path / "whole.arrow", pa.table({"data": VALUES}), is_stream=is_stream).read_bytes()
    path = tmp_path / "a.arrow"
    for length in range(0, len(whole) - 1, 8):
        path.write_bytes(whole[:length])
        assert refusal(path).startswith(("cannot be read as an Arrow file (", "is empty: fetch it again")), length


def test_offsets_that_lead_out_of_the_file_are_refused(tmp_path: Path) -> None:
    table = pa.table({"data": pa.array([b"a" * 100, b"b" * 100], pa.binary())})
    whole = write_arrow(tmp_path / "whole.arrow", table).read_bytes()
    offsets = b"".join(number.to_bytes(4, "little") for number in (0, 100, 200))
    assert whole.count(offsets) == 1
    path = tmp_path / "a.arrow"
    for wrong in ((0, 100, 1 << 30), (0, 300, 200), (1 << 31, 100, 200)):
        path.write_bytes(whole.replace(offsets, b"".join(number.to_bytes(4, "little") for number in wrong)))
        assert refusal(path).startswith("cannot be read as an Arrow file ("), wrong


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("is_dictionary", [False, True])
def test_lengths_of_columns_that_make_no_sense_are_refused(tmp_path: Path, *, is_dictionary: bool, is_stream: bool) -> None:
    """Pyarrow itself ends the process over some of them. What is not shorter may give the same pictures."""
    files: dict[str, bytes | None] = {f"{number}.jpg": b"x" * number for number in range(3)}
    table = picture_table(files, dict.fromkeys(files, 1), ["cat", "dog"])
    if is_dictionary:
        names = pa.array(list(files)).dictionary_encode()
        table = pa.table({"data": list(files.values()), "file_name": names, "label": pa.array(names.tolist())})
    whole = write_arrow(tmp_path / "whole.arrow", table, is_stream=is_stream).read_bytes()
    path, node = tmp_path / "a.arrow", struct.pack("<qq", 3, 0)
    path.write_bytes(whole)
    expected, places = listed(path), [each.start() for each in re.finditer(re.escape(node), whole)]
    assert len(places) >= 4, "lengths of columns, fields and dictionaries"
    for place, wrong in itertools.product(places, ((-1, 0), (-(1 << 62), 0), (2, 0), (0, 0), (4, 0), (1 << 62, 0), (3, 4))):
        path.write_bytes(whole[:place] + struct.pack("<qq", *wrong) + whole[place + len(node) :])
        try:
            found = listed(path)
        except UsageError as error:
            refused = str(error)
        else:
            assert found == expected
            assert wrong[0] >= 3, (place, wrong)
            continue
        assert refused.startswith(f"{path} cannot be read as an Arrow file ("), (place, wrong)


@pytest.mark.parametrize("is_stream", [False, True])
def test_buffers_that_lead_elsewhere_are_refused(tmp_path: Path, *, is_stream: bool) -> None:
    """In the list of buffers each has its place in the body and its bytes."""
    table = pa.table({"data": pa.array([b"a" * 100, b"b" * 100], pa.binary())})
    whole = write_arrow(tmp_path / "whole.arrow", table, is_stream=is_stream).read_bytes()
    path, buffer = tmp_path / "a.arrow", struct.pack("<qq", 16, 200)
    assert whole.count(buffer) == 1
    for wrong in ((-16, 200), (16, -200), (16, 1 << 20), (1 << 40, 200)):
        path.write_bytes(whole.replace(buffer, struct.pack("<qq", *wrong)))
        assert "leads out of the message" in refusal(path), wrong


@pytest.mark.parametrize("is_stream", [False, True])
def test_big_endian_files_are_refused(tmp_path: Path, *, is_stream: bool) -> None:
    """A file has its schema twice. Its table leaves out the byte order, the first field, for little-endian numbers."""
    whole = write_arrow(tmp_path / "whole.arrow", pa.table({"data": VALUES}), is_stream=is_stream).read_bytes()
    fields, marked = struct.pack("<4H", 8, 8, 0, 4), struct.pack("<4H", 8, 8, 4, 4)
    assert whole.count(fields) == (1 if is_stream else 2)
    path = tmp_path / "a.arrow"
    path.write_bytes(whole.replace(fields, marked))
    assert "(its numbers are big-endian: write it on another machine)" in refusal(path)
