"""The record batches of an Arrow file or stream, each in memory of its own that is filled only where it is needed.

A file that is mapped into memory ends the process if somebody makes it shorter meanwhile, so files are read. The pictures of a
batch may take gigabytes and nobody looks at them to list them: a batch gets memory of its size that is not touched, and the
few buffers that are used are read into it. The framing of messages is that of Arrow's columnar format, "Encapsulated message
format"; the numbers of fields are those
of Message.fbs and File.fbs.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

_FILE_MARK = b"ARROW1"
_FEATHER_1 = b"FEA1"
_CONTINUED = 0xFFFFFFFF  # before the length of a message; files of Arrow before 0.15 lack it
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3  # types of messages
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3  # fields of Message
_NODES, _BUFFERS, _COMPRESSION = 1, 2, 3  # of RecordBatch
_DATA = 1  # of DictionaryBatch: a RecordBatch
_SCHEMA_OF_FILE, _DICTIONARIES, _BATCHES = 1, 2, 3  # of Footer
_ENDIANNESS = 0  # of Schema: 0 is little
_BLOCK = struct.Struct("<qi4xq")  # of Footer: where a message lies, the bytes of its metadata and of its body
_NODE = struct.Struct("<qq")  # of RecordBatch: the values of a column, and how many of them are null
_BUFFER = struct.Struct("<qq")  # of RecordBatch: where in the body a buffer begins, and its bytes
_MOST_METADATA = 1 << 28
_NORESERVE = 0x4000  # MAP_NORESERVE of Linux, which `mmap` names from Python 3.12 on
_UNTOUCHED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE  # takes memory where it is written to


class _Message(NamedTuple):
    """A message: its type, where it begins in the file, the bytes of its framing and metadata, and those of its body."""

    kind: int
    offset: int
    head: bytes
    body_bytes: int


@dataclass(frozen=True, eq=False)
class Batch:
    """A record batch of `file`, which holds nothing until `fill` has read it; `columns` are those of the file."""

    columns: pa.RecordBatch
    file: Any
    memory: mmap.mmap
    address: int  # of the memory
    shift: int  # from a place in the memory to that in the file
    body: int  # where in the memory the body begins

    def place(self, buffer: pa.Buffer | None) -> int:
        """Where in the file a buffer lies. Raises ValueError if it is not of the file."""
        return self._begin(buffer) + self.shift if buffer is not None and buffer.size else 0

    def fill(self, buffers: Iterable[pa.Buffer | None]) -> None:
        """Read these buffers. Raises ValueError if the file has become shorter."""
        for buffer in buffers:
            if buffer is not None and buffer.size:
                begin = self._begin(buffer)
                self.file.seek(begin + self.shift)
                with memoryview(self.memory)[begin : begin + buffer.size] as part:
                    if self.file.readinto(part) < buffer.size:
                        raise ValueError("it ends within a record batch")

    def _begin(self, buffer: pa.Buffer) -> int:
        """Where in the memory a buffer begins. Raises ValueError if it lies elsewhere."""
        begin = int(buffer.address) - self.address
        if not self.body <= begin <= len(self.memory) - buffer.size:  # pyarrow has made another of it
            raise ValueError("a buffer of its columns does not lie in their message")
        return begin


def read_batches(file: Any) -> Iterator[Batch]:
    """The record batches of an open file, in order; the first one that is given has no rows, for the columns.

    Raises ValueError or an error of pyarrow if it is damaged or cut off.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    mark = file.read(len(_FILE_MARK))
    if mark.startswith(_FEATHER_1):
        raise ValueError("it is of version 1 of Feather")
    before, messages = _of_file(file, size) if mark == _FILE_MARK else _of_stream(file, size)
    yield _batch(file, before, None)
    for message in messages:
        if message.kind == _DICTIONARY:
            before += message.head + _read(file, message.offset + len(message.head), message.body_bytes)
        elif message.kind == _BATCH:
            yield _batch(file, before, message)


def _of_file(file: Any, size: int) -> tuple[bytes, Iterator[_Message]]:
    """The columns of a file as a message, and its other messages, which the footer lists."""
    file.seek(0)
    schema = bytes(pa.ipc.open_file(pa.PythonFile(file, "r")).schema.serialize())  # it checks the footer
    length = struct.unpack("<i", _read(file, size - 10, 4))[0]
    footer = _read(file, size - 10 - length, length)
    table = _Table(footer, struct.unpack_from("<I", footer)[0])
    _check_order(table.table(_SCHEMA_OF_FILE))
    places = [at for field in (_DICTIONARIES, _BATCHES) for at in table.structures(field, _BLOCK)]
    return schema, (_listed(file, at, size) for at, _, _ in places)


def _listed(file: Any, at: int, size: int) -> _Message:
    if (message := _message(file, at, size)) is None:
        raise ValueError(f"no message begins at its byte {at}, where its list has one")
    return message


def _of_stream(file: Any, size: int) -> tuple[bytes, Iterator[_Message]]:
    """The columns of a stream as a message, and its other messages."""
    messages = _in_order(file, size)
    first = next(messages, None)
    if first is None or first.kind != _SCHEMA:
        raise ValueError("it does not begin as an Arrow file or stream does")
    return first.head, messages


def _in_order(file: Any, size: int) -> Iterator[_Message]:
    at = 0
    while (message := _message(file, at, size)) is not None:
        yield message
        at += len(message.head) + message.body_bytes


def _message(file: Any, at: int, size: int) -> _Message | None:
    """The message at a byte; None for the mark of the end of a stream."""
    begin = _read(file, at, 4)
    if struct.unpack("<I", begin)[0] == _CONTINUED:
        begin += _read(file, at + 4, 4)
    length = struct.unpack("<I", begin[-4:])[0]
    if not length:
        return None
    if length > min(size - at, _MOST_METADATA):
        raise ValueError(f"no message begins at its byte {at}, or it is cut off")
    metadata = _read(file, at + len(begin), length)
    table = _Table(metadata, struct.unpack_from("<I", metadata)[0])
    kind, body_bytes = table.number(_HEADER_TYPE, "<B"), table.number(_BODY_LENGTH, "<q")
    if not 0 <= body_bytes <= size - at - len(begin) - length:
        raise ValueError(f"it is cut off: it has {size} bytes, and its message at byte {at} goes on")
    if kind == _SCHEMA:
        _check_order(table.table(_HEADER))
    elif kind in (_BATCH, _DICTIONARY):
        header = table.table(_HEADER)
        _check_columns(header if kind == _BATCH else header.table(_DATA), at, body_bytes)
    return _Message(kind, at, begin + metadata, body_bytes)


def _check_order(schema: _Table) -> None:
    """Raises ValueError for a file of a big-endian machine: pyarrow changes the order of bytes in copies."""
    if schema.number(_ENDIANNESS, "<h"):
        raise ValueError("its numbers are big-endian: write it on another machine")


def _check_columns(batch: _Table, at: int, body_bytes: int) -> None:
    """Raises ValueError for columns that cannot be read. pyarrow ends the process where one has less than no values."""
    if batch.has(_COMPRESSION):
        raise ValueError("its columns are compressed, as write_feather does: write it with compression='uncompressed'")
    for length, nulls in batch.structures(_NODES, _NODE):
        if length < 0 or nulls > length:
            raise ValueError(f"a column of its message at byte {at} has {length} values, and {nulls} of them are null")
    for begin, size in batch.structures(_BUFFERS, _BUFFER):
        if begin < 0 or size < 0 or begin + size > body_bytes:
            raise ValueError(f"a buffer of its message at byte {at} leads out of the message")


class _Table:
    """A table of a flatbuffer. Raises struct.error if a field leads out of the bytes."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - struct.unpack_from("<i", data, at)[0]
        self._count = struct.unpack_from("<H", data, self._fields)[0] // 2 - 2

    def has(self, field: int) -> bool:
        return bool(self._place(field))

    def number(self, field: int, form: str) -> int:
        return int(struct.unpack_from(form, self._data, self._at + place)[0]) if (place := self._place(field)) else 0

    def table(self, field: int) -> _Table:
        return _Table(self._data, self._led_to(field))

    def structures(self, field: int, form: struct.Struct) -> list[tuple[Any, ...]]:
        """The values of a list of structures."""
        if not self.has(field):
            return []
        start = self._led_to(field)
        count = struct.unpack_from("<I", self._data, start)[0]
        return [form.unpack_from(self._data, start + 4 + number * form.size) for number in range(count)]

    def _led_to(self, field: int) -> int:
        place = self._at + self._place(field)
        return place + int(struct.unpack_from("<I", self._data, place)[0])

    def _place(self, field: int) -> int:
        if field >= self._count:
            return 0
        return int(struct.unpack_from("<H", self._data, self._fields + 4 + 2 * field)[0])


def _batch(file: Any, before: bytes, message: _Message | None) -> Batch:
    """A record batch behind the schema and the dictionaries that it needs; without a message, one without rows."""
    head, body_bytes = (message.head, message.body_bytes) if message else (b"", 0)
    body = len(before) + len(head)
    memory = mmap.mmap(-1, body + body_bytes, flags=_UNTOUCHED)
    memory[:body] = before + head
    content = pa.py_buffer(memory)
    reader = pa.ipc.open_stream(pa.BufferReader(content))
    columns = reader.read_next_batch() if message else pa.RecordBatch.from_pylist([], reader.schema)
    shift = message.offset - len(before) if message else 0
    return Batch(columns, file, memory, int(content.address), shift, body)


def _read(file: Any, offset: int, count: int) -> bytes:
    file.seek(offset)
    data = bytes(file.read(count))
    if len(data) < count:
        raise ValueError(f"it is cut off: it ends before byte {offset + count}")
    return data
