"""What the footer of a Parquet file says about its column chunks, read without pyarrow, which ends the process on some damage.

The footer is one structure of the compact protocol of Apache Thrift; the field numbers are those of parquet.thrift.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

_ROW_GROUPS = 4  # of FileMetaData
_COLUMNS, _META = 1, 3  # of RowGroup, of ColumnChunk
_TYPE, _PATH, _CODEC, _NUM_VALUES, _UNCOMPRESSED = 1, 3, 4, 5, 6  # of ColumnMetaData
_CODECS = range(8)
_DEEPEST = 16  # structures in each other; a footer has six


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column of one row group: its top-level name, physical type, values with those of lists, bytes once decompressed."""

    name: str
    kind: int
    num_values: int
    size_bytes: int


def read_chunks(file: Any) -> list[list[Chunk]]:
    """The column chunks of each row group of an open Parquet file. Raises ValueError if the footer is damaged."""
    end = file.seek(0, 2)
    if end < 12:
        raise ValueError("too small for a Parquet file")
    file.seek(end - 8)
    length = struct.unpack("<I4x", file.read(8))[0]
    if length > end - 12:
        raise ValueError("its footer is longer than the file")
    file.seek(end - 8 - length)
    try:
        footer = _Compact(file.read(length)).structure(0)
        return [[_chunk(column[_META]) for column in group[_COLUMNS]] for group in footer[_ROW_GROUPS]]
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its footer is damaged ({type(error).__name__})") from None


def read_structure(data: bytes) -> tuple[dict[int, Any], int]:
    """The structure at the beginning of some bytes: field number -> value; and how many bytes it takes.

    Raises IndexError or ValueError if there is none.
    """
    reader = _Compact(data)
    found = reader.structure(0)
    return found, reader.at


def _chunk(meta: dict[int, Any]) -> Chunk:
    numbers = [meta[field] for field in (_TYPE, _NUM_VALUES, _UNCOMPRESSED)]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("its footer holds negative sizes")
    if meta[_CODEC] not in _CODECS:
        raise ValueError(f"its footer names compression {meta[_CODEC]}, which does not exist")
    return Chunk(meta[_PATH][0].decode(), *numbers)


class _Compact:
    """Reads values of the compact protocol. Raises IndexError at the end of the bytes, ValueError for what cannot be."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def structure(self, depth: int) -> dict[int, Any]:
        """Field number -> value."""
        if depth > _DEEPEST:
            raise ValueError("its footer is nested too deeply")
        found, field = dict[int, Any](), 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._integer()
            found[field] = self._value(head & 15, depth, in_list=False)
        return found

    def _value(self, kind: int, depth: int, *, in_list: bool) -> Any:
        if kind in (1, 2):
            return self._byte() == 1 if in_list else kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._natural())
        if kind in (9, 10):
            return self._items(depth)
        if kind == 12:
            return self.structure(depth + 1)
        raise ValueError(f"its footer holds a value of kind {kind}")

    def _items(self, depth: int) -> list[Any]:
        head = self._byte()
        count = self._natural() if head >> 4 == 15 else head >> 4
        if count > len(self._data) - self.at:
            raise ValueError("its footer holds a list that is longer than the footer")
        return [self._value(head & 15, depth, in_list=True) for _ in range(count)]

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _bytes(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self._data):
            raise ValueError("its footer ends too early")
        return self._data[self.at - count : self.at]

    def _natural(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            if (shift := shift + 7) > 63:
                raise ValueError("its footer holds a number of more than 64 bits")

    def _integer(self) -> int:
        number = self._natural()
        return (number >> 1) ^ -(number & 1)
