"""Arrow files (IPC, as of Feather and Hugging Face's `datasets`) as archives: a column has the bytes of pictures.

table_columns.py says which column. Both forms are read: the file, with a list of its record batches at the end, and the stream.
A picture lies there as it was written, so its place is a number of bytes in the file, and reading it needs no pyarrow.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from bulkinfer.errors import UsageError, first_line
from bulkinfer.records.sources.archives import ArchiveFile, ListedPicture, PictureReader, read_part
from bulkinfer.records.sources.arrow_messages import Batch, read_batches
from bulkinfer.records.sources.table_columns import Leaf, PictureNames, find_columns
from bulkinfer.types import printable

_VIEW = np.dtype([("length", "<i4"), ("prefix", "<i4"), ("buffer", "<i4"), ("offset", "<i4")])
_INLINE_BYTES = 12  # of a value that lies in its view itself


def list_pictures(file: Any, path: bytes, _left_out: Counter[str], columns: tuple[str, ...] = ()) -> Iterator[ListedPicture]:
    """The pictures of an open file in order; see archives.Kind."""
    shown = printable(path)
    if file.seek(0, 2) == 0:
        raise UsageError(f"{shown} is empty: fetch it again")
    row, names = 0, PictureNames()
    try:
        batches = read_batches(file)
        found = find_columns(next(batches).columns.schema, path, columns)
        for batch in batches:
            texts = _python(batch, found.name)
            labels = _python(batch, found.label)
            for offset, size in _places(batch, found.picture):
                name = names.unique(next(texts), row)
                picture = ListedPicture(name, None if offset < 0 else size, offset, max(size, 0))
                yield found.with_label(picture, next(labels))
                row += 1
    except (pa.ArrowException, ValueError, struct.error, OSError) as error:
        raise UsageError(f"{shown} cannot be read as an Arrow file ({first_line(error)}): fetch or write it again") from None


def reader(file: ArchiveFile, _columns: tuple[str, ...] = ()) -> PictureReader:
    """Reads pictures as they lie in the file; see archives.Kind."""
    return partial(read_part, file)


def _python(batch: Batch, leaf: Leaf | None) -> Iterator[Any]:
    """The values of a column."""
    if leaf is None:
        return repeat(None)
    array = _leaf(batch, leaf)
    batch.fill(array.buffers())  # those of a dictionary were read before
    array.validate(full=True)
    return iter(array.to_pylist())


def _leaf(batch: Batch, leaf: Leaf) -> pa.Array:
    """A column, or a field of one that is a struct. Of the struct only the validity is read."""
    array = batch.columns.column(leaf[0])
    if len(leaf) > 1:
        batch.fill(array.buffers()[:1])
        array = array.flatten()[array.type.get_field_index(leaf[1])]
    if len(array) != batch.columns.num_rows:
        raise ValueError(f"a column has {len(array)} values for {batch.columns.num_rows} rows")
    return array


def _places(batch: Batch, leaf: Leaf) -> Iterator[tuple[int, int]]:
    """Where in the file each value lies, and its size; an offset of -1 for one that is null. The values are not read."""
    values = _leaf(batch, leaf)
    batch.fill(values.buffers()[:2])
    values.validate()
    starts, sizes = (_of_views if pa.types.is_binary_view(values.type) else _of_offsets)(batch, values)
    is_there = values.is_valid().to_numpy(zero_copy_only=False)
    yield from zip(np.where(is_there, starts, -1).tolist(), np.where(is_there, sizes, 0).tolist(), strict=True)


def _of_offsets(batch: Batch, values: pa.Array) -> tuple[Any, Any]:
    width = "<i8" if pa.types.is_large_binary(values.type) else "<i4"
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    sizes, held = np.diff(ends), data.size if data else 0
    if len(sizes) and (sizes.min() < 0 or ends[0] < 0 or ends[-1] > held):
        raise ValueError(f"its offsets lead out of a column of {held} bytes")
    return ends[:-1] + batch.place(data), sizes


def _of_views(batch: Batch, values: pa.Array) -> tuple[Any, Any]:
    """Values of another layout, in which each has the number of its buffer; short ones lie in the list of them."""
    _, views, *buffers = values.buffers()
    found = np.frombuffer(views, _VIEW)[values.offset : values.offset + len(values)]
    numbers = np.arange(values.offset, values.offset + len(values))
    inline = batch.place(views) + numbers * _VIEW.itemsize + 4
    begins = np.array([batch.place(buffer) for buffer in buffers] or [0], np.int64)
    held = np.array([buffer.size for buffer in buffers] or [0], np.int64)
    is_inline = found["length"] <= _INLINE_BYTES
    number, lengths = np.where(is_inline, 0, found["buffer"]), found["length"].astype(np.int64)
    if (lengths < 0).any() or (number < 0).any() or (number >= len(begins)).any():
        raise ValueError("its views lead to buffers that are not there")
    ends = found["offset"].astype(np.int64) + lengths
    if (~is_inline & ((found["offset"] < 0) | (ends > held[number]))).any():
        raise ValueError("its views lead out of their buffers")
    return np.where(is_inline, inline, begins[number] + found["offset"]), lengths
