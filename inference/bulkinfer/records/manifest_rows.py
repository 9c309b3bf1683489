"""The lines of a manifest as Arrow tables, and hashes of their content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.files.atomic import FORMAT
from bulkinfer.types import key_text

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        ("key_bytes", pa.binary()),
        ("size_bytes", pa.int64()),
        ("label", pa.int32()),
        ("category_ids", pa.list_(pa.int32())),
        ("image_id", pa.int64()),
    ]
)
# Of pictures in archives: which of the manifest's archives, and the part of it; null if that does not hold the picture.
PLACE_COLUMNS = ["archive", "offset", "span"]
ARCHIVE_SCHEMA = pa.schema([*SCHEMA, ("archive", pa.int32()), ("offset", pa.int64()), ("span", pa.int64())])
KEY_COLUMNS = ["key", "key_bytes"]
BLOCK = 4096  # records turned into Python objects at a time
ROWS = 16 * BLOCK  # records in one chunk of a table


class Entry(NamedTuple):
    """One line of a manifest. `size_bytes` is None if the file is missing or its size could not be read."""

    key: bytes
    size_bytes: int | None
    label: int | None = None
    category_ids: tuple[int, ...] | None = None
    image_id: int | None = None


@runtime_checkable
class Lines(Protocol):
    """The lines of a manifest in order, created a block at a time on each use.

    They have the columns of SCHEMA, or, of pictures in archives, of ARCHIVE_SCHEMA.

    In this way ten million lines can be hashed and written without a table that holds all of them.
    """

    def __len__(self) -> int: ...
    def blocks(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.Table]:
        """The lines start..end (exclusive) as tables with these columns, of at most ROWS lines each."""


@dataclass(frozen=True, eq=False)
class TableLines:
    """Lines that are in memory as one table with SCHEMA or ARCHIVE_SCHEMA."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def blocks(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.Table]:
        wanted = self.table.select(columns)
        for first in range(start, end, ROWS):
            yield wanted.slice(first, min(ROWS, end - first))


@dataclass(frozen=True, eq=False)
class LinesPart:
    """The lines start..end (exclusive) of others."""

    lines: Lines
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def blocks(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.Table]:
        return self.lines.blocks(columns, self.start + start, self.start + end)


def lines_part(lines: Lines, part: slice) -> LinesPart:
    """A slice of lines, without a step."""
    start, end, _ = part.indices(len(lines))
    return LinesPart(lines, start, max(start, end))


def given_labels(labels: np.ndarray[Any, np.dtype[np.int32]], start: int, count: int) -> pa.Array:
    """The column `label` of `count` lines from `start` on, out of one number for each line; -1: none."""
    values = labels[start : start + count]
    return pa.array(values, pa.int32(), mask=values < 0)


@dataclass(frozen=True, eq=False)
class PickedLines:
    """A selection of other lines: those at the ascending `numbers`."""

    lines: Lines
    numbers: np.ndarray[Any, Any]

    def __len__(self) -> int:
        return len(self.numbers)

    def blocks(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.Table]:
        numbers = self.numbers[start:end]
        if not len(numbers):
            return
        position, held, num_held = int(numbers[0]), list[pa.Table](), 0
        for block in self.lines.blocks(columns, position, int(numbers[-1]) + 1):
            first, last = np.searchsorted(numbers, (position, position + len(block)))
            if num_held + last - first > ROWS:
                yield pa.concat_tables(held)
                held, num_held = [], 0
            held.append(block.take(numbers[first:last] - position))
            num_held += last - first
            position += len(block)
        yield pa.concat_tables(held)


class Entries(Protocol):
    """Entries in order, created when they are used: a list, or an object whose slices are Lines."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice) -> Iterable[Entry] | Lines: ...


def as_lines(entries: Iterable[Entry] | pa.Table | Lines) -> Lines:
    """Entries and tables as Lines in memory; Lines are returned unchanged."""
    if isinstance(entries, Lines):
        return entries
    return TableLines(entries_table(entries))


def entries_table(entries: Iterable[Entry] | pa.Table) -> pa.Table:
    """The entries as an Arrow table with SCHEMA, built a block at a time; a table is returned unchanged."""
    if isinstance(entries, pa.Table):
        return entries
    iterator = iter(entries)
    blocks = []
    while block := list(islice(iterator, ROWS)):
        blocks.append(_block_table(block))
    return pa.concat_tables(blocks) if blocks else SCHEMA.empty_table()


def _block_table(entries: Sequence[Entry]) -> pa.Table:
    columns = [*key_columns(pa.array([entry.key for entry in entries], pa.binary()))]
    columns += [pa.array([entry[i] for entry in entries], SCHEMA.types[i + 1]) for i in range(1, 5)]
    return pa.table(columns, SCHEMA)


def filled_table(given: Mapping[str, pa.Array], columns: Sequence[str], num_lines: int) -> pa.Table:
    """A table with these columns of ARCHIVE_SCHEMA for at most ROWS lines; columns that are not in `given` are null."""
    schema = pa.schema([ARCHIVE_SCHEMA.field(name) for name in columns])
    return pa.table([given[name] if name in given else _nulls(schema.field(name).type)[:num_lines] for name in columns], schema)


@cache
def _nulls(kind: pa.DataType) -> pa.Array:
    """One block of nulls that all tables share: for ten million lines, separate ones would take 80 MB a column."""
    return pa.nulls(ROWS, kind)


def key_columns(raw_keys: pa.BinaryArray) -> tuple[pa.StringArray, pa.BinaryArray]:
    """The columns `key` and `key_bytes` of a table: keys as text, and the raw bytes of those that are not UTF-8."""
    try:
        texts = raw_keys.cast(pa.string())
    except pa.ArrowInvalid:  # some key is not UTF-8
        keys = raw_keys.to_pylist()
        names = [key_text(key) for key in keys]
        key_bytes = [None if name.encode() == key else key for key, name in zip(keys, names, strict=True)]
        return pa.array(names, pa.string()), pa.array(key_bytes, pa.binary())
    few = len(raw_keys) <= ROWS
    return texts, _nulls(pa.binary())[: len(raw_keys)] if few else pa.nulls(len(raw_keys), pa.binary())


def content_hash(lines: Lines) -> str:
    """sha256 over the ordered keys (as bytes), sizes, labels, categories and image ids.

    It does not depend on the Parquet encoding or on where the files are. The lines are read several times, none is kept.
    """
    size = len(lines)
    digest = hashlib.sha256(b"bulkinfer manifest %d, %d records\n" % (FORMAT, size))

    def chunks(name: str) -> Iterator[pa.Array]:
        return (chunk for block in lines.blocks([name], 0, size) for chunk in block[name].chunks)

    for start in range(0, size, ROWS):
        digest.update(b"\1" * min(ROWS, size - start))  # no key is null
    for block in lines.blocks(KEY_COLUMNS, 0, size):
        for keys in _raw_keys(block):
            _hash_values(digest, pc.binary_length(keys))
    for block in lines.blocks(KEY_COLUMNS, 0, size):
        for keys in _raw_keys(block):
            digest.update(joined_bytes(keys))
    _hash_integers(digest, lambda: map(pc.list_value_length, chunks("category_ids")))
    _hash_integers(digest, lambda: map(pc.list_flatten, chunks("category_ids")))
    for name in ("size_bytes", "label", "image_id"):
        _hash_integers(digest, lambda name=name: chunks(name))  # type: ignore[misc]
    return digest.hexdigest()


def hash_keys(tables: Iterable[pa.Table]) -> str:
    """sha256 over the keys of all tables (parts or manifests) in order, each followed by a NUL, which no path contains.

    A partition's manifest and its parts, read in order, have the same hash, so results can be compared with the manifest.
    """
    digest = hashlib.sha256()
    for table in tables:
        add_keys(digest, table)
    return digest.hexdigest()


def add_keys(digest: Any, table: pa.Table) -> None:
    """Add one more table to a `hash_keys` digest, for callers that do not hold all tables at once."""
    for keys in _raw_keys(table):
        digest.update(joined_bytes(pc.binary_join_element_wise(keys, b"", b"\0")))


def _hash_integers(digest: Any, chunks: Callable[[], Iterable[pa.Array]]) -> None:
    """Hash which values are not null, for all chunks; then the values, for all chunks."""
    for chunk in chunks():
        digest.update(pc.is_valid(chunk).cast(pa.uint8()).to_numpy(zero_copy_only=False).tobytes())
    for chunk in chunks():
        _hash_values(digest, chunk.fill_null(0))


def _hash_values(digest: Any, integers: pa.Array) -> None:
    digest.update(integers.to_numpy(zero_copy_only=False).astype("<i8").tobytes())


def _raw_keys(table: pa.Table) -> Iterator[pa.BinaryArray]:
    """The keys as bytes, a block at a time. Raises KeyError or pa.ArrowException if the table has no such columns."""
    for block in table.select(KEY_COLUMNS).to_batches(ROWS):
        yield raw_key_column(block)


def raw_key_column(table: pa.Table | pa.RecordBatch) -> pa.Array | pa.ChunkedArray:
    """The keys of rows or of a manifest as one binary column."""
    return pc.coalesce(table["key_bytes"], table["key"].cast(pa.binary()))


def joined_bytes(values: pa.BinaryArray) -> memoryview | bytes:
    """The concatenated values, without a copy; no value may be null."""
    if not len(values):
        return b""
    offsets = np.frombuffer(values.buffers()[1], "<i4")[values.offset : values.offset + len(values) + 1]
    return memoryview(values.buffers()[2])[offsets[0] : offsets[-1]] if offsets[-1] > offsets[0] else b""
