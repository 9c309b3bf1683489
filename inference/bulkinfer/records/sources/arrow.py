"""Arrow files (IPC, as of Feather and Hugging Face's `datasets`) as archives: a column has the bytes of pictures.

table_columns.py says which column. Both forms are read: the file, with a list of its record batches at the end, and the stream.
A picture lies there as it was written, so its place is a number of bytes in the file, and reading it needs no pyarrow.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from bulkinfer.errors import UsageError, first_line
from bulkinfer.records.sources.archives import ArchiveFile, ListedPicture, PictureReader, read_part
from bulkinfer.records.sources.table_columns import Leaf, PictureNames, find_columns
from bulkinfer.types import printable

_FILE_MARK = b"ARROW1"
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"
_FEATHER_1 = b"FEA1"
_VIEW = np.dtype([("length", "<i4"), ("prefix", "<i4"), ("buffer", "<i4"), ("offset", "<i4")])
_INLINE_BYTES = 12  # of a value that lies in its view itself


def list_pictures(file: Any, path: bytes, _left_out: Counter[str], columns: tuple[str, ...] = ()) -> Iterator[ListedPicture]:
    """The pictures of an open file in order; see archives.Kind."""
    shown = printable(path)
    if file.seek(0, 2) == 0:
        raise UsageError(f"{shown} is empty: fetch it again")
    content = _content(file)
    row, names = 0, PictureNames()
    try:
        schema, batches = _batches(content)
        found = find_columns(schema, path, columns)
        for batch in batches:
            texts = _python(batch, found.name)
            labels = _python(batch, found.label)
            for offset, size in _places(content, _leaf(batch, found.picture)):
                name = names.unique(next(texts), row)
                picture = ListedPicture(name, None if offset < 0 else size, offset, max(size, 0))
                yield found.with_label(picture, next(labels))
                row += 1
    except (pa.ArrowException, ValueError, OSError) as error:
        raise UsageError(f"{shown} cannot be read as an Arrow file ({first_line(error)}): fetch or write it again") from None


def reader(file: ArchiveFile, _columns: tuple[str, ...] = ()) -> PictureReader:
    """Reads pictures as they lie in the file; see archives.Kind."""
    return partial(read_part, file)


def _content(file: Any) -> pa.Buffer:
    """The bytes of a file, mapped into memory; what is no file of this machine is read as a whole."""
    try:
        descriptor = file.fileno()
    except OSError:
        file.seek(0)
        return pa.py_buffer(file.read())
    return pa.py_buffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))


def _batches(content: pa.Buffer) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns and the record batches of a file or stream, in its own memory."""
    begin = content.slice(0, min(content.size, len(_FILE_MARK))).to_pybytes()
    if begin.startswith(_FEATHER_1):
        raise ValueError("it is of version 1 of Feather")
    if begin != _FILE_MARK:
        if content.slice(max(0, content.size - len(_STREAM_END))).to_pybytes() != _STREAM_END:
            raise ValueError("it is no Arrow file, or is cut off: it does not end as a stream does")
        stream = pa.ipc.open_stream(pa.BufferReader(content))
        return stream.schema, iter(stream)
    file = pa.ipc.open_file(pa.BufferReader(content))
    return file.schema, (file.get_batch(number) for number in range(file.num_record_batches))


def _leaf(batch: pa.RecordBatch, leaf: Leaf) -> pa.Array:
    array = batch.column(leaf[0])
    array.validate(full=True)  # its offsets are used below
    return array.flatten()[array.type.get_field_index(leaf[1])] if len(leaf) > 1 else array


def _python(batch: pa.RecordBatch, leaf: Leaf | None) -> Iterator[Any]:
    return repeat(None) if leaf is None else iter(_leaf(batch, leaf).to_pylist())


def _places(content: pa.Buffer, values: pa.Array) -> Iterator[tuple[int, int]]:
    """Where in the file each value lies, and its size; an offset of -1 for one that is null."""
    starts, sizes = (_of_views if pa.types.is_binary_view(values.type) else _of_offsets)(content, values)
    is_there = values.is_valid().to_numpy(zero_copy_only=False)
    yield from zip(np.where(is_there, starts, -1).tolist(), np.where(is_there, sizes, 0).tolist(), strict=True)


def _of_offsets(content: pa.Buffer, values: pa.Array) -> tuple[Any, Any]:
    width = "<i8" if pa.types.is_large_binary(values.type) else "<i4"
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return ends[:-1] + _begin(content, data), np.diff(ends)


def _of_views(content: pa.Buffer, values: pa.Array) -> tuple[Any, Any]:
    """Values of another layout, in which each has the number of its buffer; short ones lie in the list of them."""
    _, views, *buffers = values.buffers()
    found = np.frombuffer(views, _VIEW)[values.offset : values.offset + len(values)]
    numbers = np.arange(values.offset, values.offset + len(values))
    inline = _begin(content, views) + numbers * _VIEW.itemsize + 4
    begins = np.array([_begin(content, buffer) for buffer in buffers] or [0], np.int64)
    is_inline = found["length"] <= _INLINE_BYTES
    elsewhere = begins[np.where(is_inline, 0, found["buffer"])] + found["offset"]
    return np.where(is_inline, inline, elsewhere), found["length"].astype(np.int64)


def _begin(content: pa.Buffer, buffer: pa.Buffer | None) -> int:
    """Where in the file a buffer lies. Raises ValueError if it is none of the file: then it was compressed there."""
    if buffer is None or not buffer.size:
        return 0
    begin = int(buffer.address - content.address)
    if not 0 <= begin <= content.size - buffer.size:
        raise ValueError("its columns are compressed, as write_feather does: write it with compression='uncompressed'")
    return begin
