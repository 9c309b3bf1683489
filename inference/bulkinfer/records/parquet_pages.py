"""One page of a Parquet file at a time: the values of a page are read without those before it, and without their row group.

pyarrow reads row groups, which may be as large as the file. So a page, with the dictionary of its column chunk if it needs
that, is put into a Parquet file of its own, in memory, with a footer that describes it; pyarrow decodes that. The structures
are those of parquet.thrift. Columns that hold lists are not read: their pages need not begin with a row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bulkinfer.host.number_text import size_text
from bulkinfer.records.parquet_footer import read_structure
from bulkinfer.records.thrift_compact import Long, compact

Leaf = tuple[str, ...]
Read = Callable[[int, int], bytes]  # offset, count -> bytes, fewer at the end of the file

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_MOST_FOOTER_BYTES = 1 << 30
_HEADER_BYTES = 1 << 13  # read for the header of a page; one with long statistics takes more
_MOST_HEADER_BYTES = 1 << 20
_MOST_PAGE_BYTES = 1 << 29  # once decompressed; reading takes up to five times that
_MOST_VALUES = 1 << 24  # in a page
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3  # types of pages
_BYTES = 6
_TYPES = {"INT32": 1, "INT64": 2, "BYTE_ARRAY": _BYTES}
_CODECS = (0, 1, 2, 4, 5, 6, 7)  # none, Snappy, gzip, Brotli, LZ4, Zstandard, LZ4 without frames
_PLAIN, _PLAIN_DICTIONARY, _RLE, _DELTAS, _DELTA_LENGTHS, _RLE_DICTIONARY = 0, 2, 3, 5, 6, 8
_BY_DICTIONARY = (_PLAIN_DICTIONARY, _RLE_DICTIONARY)
# Others may turn a few bytes into gigabytes.
_DECODED = (_PLAIN, _DELTA_LENGTHS, *_BY_DICTIONARY)  # and _DELTAS, of whole numbers


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column in one row group: where its pages begin and end in the file, the number of its values; `dictionary` is -1 or
    where that page lies."""

    start: int
    end: int
    num_values: int
    dictionary: int
    codec: int


class Page(NamedTuple):
    """A data page: where it lies in the file, with its header, and how many values it has; whether they are codes."""

    offset: int
    size_bytes: int
    num_values: int
    by_dictionary: bool


class Footer(NamedTuple):
    """What a footer says: the columns as Parquet and as Arrow has them, and the row groups, by the numbers of their fields."""

    columns: pq.ParquetSchema
    schema: pa.Schema
    groups: list[dict[int, Any]]


class ColumnPages:
    """The pages of one column; `read` reads the file. Raises ValueError for a damaged column, or one that is not read here."""

    def __init__(self, read: Read, footer: Footer, leaf: Leaf) -> None:
        self._read = read
        number = _number_of(footer.columns, leaf)
        column = footer.columns.column(number)
        shown = ".".join(leaf)
        if column.max_repetition_level or column.physical_type not in _TYPES:
            raise ValueError(f"its column {shown} is of a type that is not read: {column.physical_type}")
        self._type, self._level = _TYPES[column.physical_type], int(column.max_definition_level)
        self._chunks = [_chunk(group, number) for group in footer.groups]
        self._in_file = sorted(self._chunks, key=_start)

    def pages(self) -> Iterator[Page]:
        """The data pages in order, by their headers alone."""
        for chunk in self._chunks:
            at, left = chunk.start, chunk.num_values
            while left > 0:
                if at >= chunk.end:
                    raise ValueError(f"its column chunk at byte {chunk.start} ends {left:,} values too early")
                header, size = self._header(at)
                if header[1] in (_DATA, _DATA_V2):
                    page = self._page(at, header, size)
                    left -= page.num_values
                    if page.num_values:
                        yield page
                at += size

    def page_at(self, offset: int) -> Page:
        """The data page at a byte of the file."""
        header, size = self._header(offset)
        return self._page(offset, header, size)

    def values(self, page: Page) -> pa.Array:
        """The values of a page: binary or integers with nulls, or codes of a dictionary."""
        chunk = self._in_file[bisect_right(self._in_file, page.offset, key=_start) - 1]
        dictionary = b""
        if page.by_dictionary:
            begin = chunk.start if chunk.dictionary < 0 else chunk.dictionary  # some writers do not say where it is
            header, size = self._header(begin)
            if header[1] != _DICTIONARY:
                raise ValueError(f"its page at byte {page.offset} needs a dictionary, and there is none")
            dictionary = self._whole(begin, size)
        data = self._whole(page.offset, page.size_bytes)
        footer = compact(self._footer(page.num_values, chunk.codec, len(dictionary), len(data)))
        file = b"".join((_MAGIC, dictionary, data, footer, len(footer).to_bytes(4, "little"), _MAGIC))
        del dictionary, data
        codes = [".".join(["v"] * max(1, self._level))] if page.by_dictionary and self._type == _BYTES else None
        parquet = pq.ParquetFile(pa.BufferReader(file), read_dictionary=codes, page_checksum_verification=True)
        (array,) = parquet.read(use_threads=False).column(0).chunks
        while pa.types.is_struct(array.type):
            (array,) = array.flatten()
        if len(array) != page.num_values:
            raise ValueError(f"its page at byte {page.offset} has {len(array):,} values in place of {page.num_values:,}")
        return array

    def _whole(self, offset: int, size: int) -> bytes:
        data = self._read(offset, size)
        if len(data) < size:
            raise ValueError(f"it ends within its page at byte {offset}")
        return data

    def _header(self, offset: int) -> tuple[dict[int, Any], int]:
        """The header of a page, and the bytes of header and page together."""
        count = _HEADER_BYTES
        while True:
            try:
                header, length = read_structure(data := self._read(offset, count))
                break
            except (IndexError, ValueError):
                if len(data) < count or count >= _MOST_HEADER_BYTES:
                    raise ValueError(f"no page begins at its byte {offset}") from None
                count *= 8
        numbers = [number for field in (1, 2, 3) if isinstance(number := header.get(field), int) and number >= 0]
        if len(numbers) < 3:
            raise ValueError(f"no page begins at its byte {offset}")
        _, unpacked, packed = numbers
        if (size := max(unpacked, packed)) > _MOST_PAGE_BYTES:
            most = size_text(_MOST_PAGE_BYTES)
            raise ValueError(
                f"its page at byte {offset} has {size_text(size)}, and {most} is the most: write smaller row groups"
            )
        return header, length + packed

    def _page(self, offset: int, header: dict[int, Any], size: int) -> Page:
        about = header.get(5 if header[1] == _DATA else 8)
        if not isinstance(about, dict):
            raise ValueError(f"no page of values begins at its byte {offset}")
        count, encoding = about.get(1), about.get(2 if header[1] == _DATA else 4)
        if not isinstance(count, int) or not 0 <= count <= _MOST_VALUES:
            raise ValueError(f"its page at byte {offset} claims {count} values, and {_MOST_VALUES:,} is the most")
        if encoding not in _DECODED and not (encoding == _DELTAS and self._type != _BYTES):
            raise ValueError(f"its page at byte {offset} has the encoding {encoding}, which is not read: write it as PLAIN")
        return Page(offset, size, count, encoding in _BY_DICTIONARY)

    def _footer(self, count: int, codec: int, dictionary_bytes: int, data_bytes: int) -> dict[int, Any]:
        """The footer of a file with one page, whose column has the same levels: optional groups around an optional value."""
        groups = [{3: 1, 4: b"v", 5: 1}] * (self._level - 1)
        schema = [{4: b"page", 5: 1}, *groups, {1: self._type, 3: int(self._level > 0), 4: b"v"}]
        begin = len(_MAGIC)
        column: dict[int, Any] = {
            1: self._type, 2: [_PLAIN, _RLE, _RLE_DICTIONARY], 3: [b"v"] * max(1, self._level), 4: codec, 5: Long(count),
            6: Long(data_bytes), 7: Long(dictionary_bytes + data_bytes), 9: Long(begin + dictionary_bytes),
        }  # fmt: skip
        if dictionary_bytes:
            column[11] = Long(begin)
        group = {1: [{2: Long(begin), 3: column}], 2: Long(data_bytes), 3: Long(count)}
        return {1: 2, 2: schema, 3: Long(count), 4: [group]}


def open_footer(read: Read, size_bytes: int) -> Footer:
    """The footer of a file; only that is read.

    Raises ValueError or an error of pyarrow if there is none. What it says of row groups is not asked of pyarrow, which ends
    the process on some damage there.
    """
    end = read(max(0, size_bytes - 8), 8)
    if end[4:] == _ENCRYPTED:
        raise ValueError("it is encrypted")
    if end[4:] != _MAGIC:
        raise ValueError("its end is not that of a Parquet file")
    length = int.from_bytes(end[:4], "little") + 8
    if length > min(size_bytes, _MOST_FOOTER_BYTES):
        raise ValueError("its footer is longer than the file")
    data = read(size_bytes - length, length)
    found, _ = read_structure(data)
    file = pq.ParquetFile(pa.BufferReader(data))
    return Footer(file.schema, file.schema_arrow, found[4])


def _start(chunk: Chunk) -> int:
    return chunk.start


def _number_of(schema: pq.ParquetSchema, leaf: Leaf) -> int:
    for number in range(len(schema)):
        if schema.column(number).path == ".".join(leaf):
            return number
    raise ValueError(f"it has no column {'.'.join(leaf)}")


def _chunk(group: dict[int, Any], number: int) -> Chunk:
    """A column chunk, by ColumnMetaData of parquet.thrift."""
    meta = group[1][number][3]
    codec, num_values, size_bytes, start, dictionary = (meta.get(field, 0) for field in (4, 5, 7, 9, 11))
    if not all(isinstance(value, int) and value >= 0 for value in (codec, num_values, size_bytes, start, dictionary)):
        raise ValueError("its footer holds negative sizes")
    if codec not in _CODECS:
        raise ValueError(f"it is compressed in a way that is not read: {codec}")
    start = min(start, dictionary) if dictionary else start
    return Chunk(start, start + size_bytes, num_values, dictionary or -1, codec)
