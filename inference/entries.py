"""The lines of a manifest as an Arrow table, and hashes of their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inference.paths import FORMAT
from inference.types import key_text

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
BLOCK = 4096  # records turned into Python objects at a time
ROWS = 16 * BLOCK  # records in one chunk of a table


class Entry(NamedTuple):
    """One line of a manifest. `size_bytes` is None if the file is missing or could not be looked at."""

    key: bytes
    size_bytes: int | None
    label: int | None = None
    category_ids: tuple[int, ...] | None = None
    image_id: int | None = None


class Entries(Protocol):
    """Entries in order that are made when they are asked for: a list of them, or what gives slices as tables with SCHEMA."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice) -> Iterable[Entry] | pa.Table: ...


def entries_table(entries: Iterable[Entry] | pa.Table) -> pa.Table:
    """The entries as an Arrow table with SCHEMA, made a block at a time; a table is returned as it is."""
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


def keys_table(keys: pa.BinaryArray, size_bytes: pa.Int64Array | None, image_id: pa.Int64Array | None) -> pa.Table:
    """A table with SCHEMA for at most ROWS keys without labels; no Python object is made of a key that is UTF-8."""
    given = dict(zip(("key", "key_bytes"), key_columns(keys), strict=True)) | {"size_bytes": size_bytes, "image_id": image_id}
    columns = [given.get(name) for name in SCHEMA.names]
    filled = [
        _nulls(kind)[: len(keys)] if column is None else column for kind, column in zip(SCHEMA.types, columns, strict=True)
    ]
    return pa.table(filled, SCHEMA)


@cache
def _nulls(kind: pa.DataType) -> pa.Array:
    """One block of nulls that all tables share: ten million would be 80 MB a column."""
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


def content_hash(table: pa.Table) -> str:
    """sha256 over the ordered keys (as bytes), sizes, labels, categories and image ids.

    Independent of how Parquet encoded them and of where the pictures lie.
    """
    digest = hashlib.sha256(b"bulkinfer manifest %d, %d records\n" % (FORMAT, len(table)))
    _hash_integers(digest, pa.chunked_array([pc.binary_length(keys) for keys in _raw_keys(table)], pa.int32()))
    for keys in _raw_keys(table):
        digest.update(joined_bytes(keys))
    categories = table["category_ids"]
    _hash_integers(digest, pc.list_value_length(categories))
    _hash_integers(digest, pc.list_flatten(categories))
    for name in ("size_bytes", "label", "image_id"):
        _hash_integers(digest, table[name])
    return digest.hexdigest()


def hash_keys(tables: Iterable[pa.Table]) -> str:
    """sha256 over the keys of all tables (parts or manifests) in order, each followed by the NUL that no path can hold.

    The hash of a whole partition is that of its parts read in order, so a manifest and its results can be compared.
    """
    digest = hashlib.sha256()
    for table in tables:
        add_keys(digest, table)
    return digest.hexdigest()


def add_keys(digest: Any, table: pa.Table) -> None:
    """One more table of `hash_keys`, for who does not hold them all at once."""
    for keys in _raw_keys(table):
        digest.update(joined_bytes(pc.binary_join_element_wise(keys, b"", b"\0")))


def _hash_integers(digest: Any, column: pa.ChunkedArray) -> None:
    for chunk in column.chunks:
        digest.update(pc.is_valid(chunk).cast(pa.uint8()).to_numpy(zero_copy_only=False).tobytes())
    for chunk in column.chunks:
        digest.update(chunk.fill_null(0).to_numpy(zero_copy_only=False).astype("<i8").tobytes())


def _raw_keys(table: pa.Table) -> Iterator[pa.BinaryArray]:
    """The keys as bytes, a block at a time. Raises KeyError or pa.ArrowException if the table has no such columns."""
    for block in table.select(["key", "key_bytes"]).to_batches(ROWS):
        yield pc.coalesce(block["key_bytes"], block["key"].cast(pa.binary()))


def joined_bytes(values: pa.BinaryArray) -> memoryview | bytes:
    """The values one after another, without a copy; none is null."""
    if not len(values):
        return b""
    offsets = np.frombuffer(values.buffers()[1], "<i4")[values.offset : values.offset + len(values) + 1]
    return memoryview(values.buffers()[2])[offsets[0] : offsets[-1]] if offsets[-1] > offsets[0] else b""
