"""Parquet files as archives: a column has the bytes of pictures; table_columns.py says which one.

The place of a picture is the page that holds it (the byte at which that begins) and the number of the value in the page. A page
is read as a whole, and the last ones stay in memory, since the next pictures of a step lie in them.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import RecordError, UsageError, first_line
from bulkinfer.records.page_cache import PageCache
from bulkinfer.records.parquet_footer import read_chunks
from bulkinfer.records.parquet_pages import ColumnPages, Page, open_footer
from bulkinfer.records.sources.archives import ArchiveFile, ListedPicture, PictureReader, check_size
from bulkinfer.records.sources.table_columns import PictureNames, find_columns
from bulkinfer.types import printable

_CACHED_BYTES = 64 << 20  # of pages that stay in memory in a process
_pages = PageCache(_CACHED_BYTES, pa.Array.get_total_buffer_size)
_LISTED_AT_ONCE = 2  # pages, by the threads that make an index: each takes a multiple of its size
_listing = threading.BoundedSemaphore(_LISTED_AT_ONCE)
_DAMAGE = (
    pa.ArrowException,
    ValueError,
    OSError,
    IndexError,
    KeyError,
    TypeError,
    AttributeError,
)  # what pyarrow raises for damaged files


def list_pictures(file: Any, path: bytes, _left_out: Counter[str], columns: tuple[str, ...] = ()) -> Iterator[ListedPicture]:
    """The pictures of an open file in order; see archives.Kind. A value of a damaged page is listed without a size."""
    shown = printable(path)
    read = partial(_read_at, file)
    try:
        read_chunks(file)
        footer = open_footer(read, file.seek(0, os.SEEK_END))
    except _DAMAGE as error:
        raise UsageError(f"{shown} is no Parquet file, is cut off or damaged ({first_line(error)}): fetch it again") from None
    found, names, row = find_columns(footer.schema, path, columns), PictureNames(), 0
    try:
        pages = ColumnPages(read, footer, found.picture)
        texts = _values(ColumnPages(read, footer, found.name)) if found.name else repeat(None)
        labels = _values(ColumnPages(read, footer, found.label)) if found.label else repeat(None)
        for page in pages.pages():
            for number, size_bytes in enumerate(_lengths(pages, page)):
                picture = ListedPicture(names.unique(next(texts), row), size_bytes, page.offset, number)
                yield found.with_label(picture, next(labels))
                row += 1
    except _DAMAGE as error:
        raise UsageError(f"{shown} cannot be read ({first_line(error)}): fetch it again, or write it in another way") from None
    except StopIteration:
        raise UsageError(f"{shown} is damaged (its columns have different numbers of rows): fetch it again") from None


def _lengths(pages: ColumnPages, page: Page) -> list[int | None]:
    """The number of bytes of each value of a page; None for one that is null, and for all if the page is damaged."""
    with _listing:
        try:
            values = pages.values(page)
        except _DAMAGE:
            return [None] * page.num_values
        return _sizes(values)


def _sizes(values: pa.Array) -> list[int | None]:
    if pa.types.is_dictionary(values.type):
        return pc.binary_length(values.dictionary).take(values.indices).to_pylist()  # type: ignore[no-any-return]
    return pc.binary_length(values).to_pylist()  # type: ignore[no-any-return]


def _values(pages: ColumnPages) -> Iterator[Any]:
    for page in pages.pages():
        yield from pages.values(page).to_pylist()


def reader(file: ArchiveFile, columns: tuple[str, ...] = ()) -> PictureReader:
    """Reads the pictures of pages; see archives.Kind."""
    try:
        footer = open_footer(file.read, file.size_bytes)
        pages = ColumnPages(file.read, footer, find_columns(footer.schema, os.fsencode(file.name), columns).picture)
    except _DAMAGE as error:
        raise RecordError("read", f"{file.name}: {first_line(error)}") from None

    def read(offset: int, span: int, most_bytes: int) -> bytes:
        try:
            values = _pages.get((pages, offset), lambda: pages.values(pages.page_at(offset)))
        except MemoryError:
            raise
        except _DAMAGE as error:
            raise RecordError("read", f"{file.name}: {first_line(error)}") from None
        if span >= len(values) or not values[span].is_valid:
            raise RecordError("read", f"{file.name} has no picture in value {span:,} of the page at byte {offset}")
        value = values[span].value if pa.types.is_dictionary(values.type) else values[span]
        check_size(value.as_buffer().size, most_bytes)
        return bytes(value.as_buffer())

    return read


def _read_at(file: Any, offset: int, count: int) -> bytes:
    file.seek(offset)
    return bytes(file.read(count))
