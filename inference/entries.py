"""The lines of a manifest as an Arrow table, and the hash of their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

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


class Entry(NamedTuple):
    """One line of a manifest. `size_bytes` is None if the file is missing or could not be looked at."""

    key: bytes
    size_bytes: int | None
    label: int | None = None
    category_ids: tuple[int, ...] | None = None
    image_id: int | None = None


def entries_table(entries: Iterable[Entry]) -> pa.Table:
    """The entries as an Arrow table with SCHEMA, made a block at a time."""
    iterator = iter(entries)
    blocks = []
    while block := list(islice(iterator, 16 * BLOCK)):
        blocks.append(_block_table(block))
    return pa.concat_tables(blocks) if blocks else SCHEMA.empty_table()


def _block_table(entries: Sequence[Entry]) -> pa.Table:
    raw_keys = pa.array([entry.key for entry in entries], pa.binary())
    try:
        keys, key_bytes = raw_keys.cast(pa.string()), pa.nulls(len(entries), pa.binary())
    except pa.ArrowInvalid:  # some key is not UTF-8
        texts = [key_text(entry.key) for entry in entries]
        keys = pa.array(texts, pa.string())
        pairs = zip(entries, texts, strict=True)
        key_bytes = pa.array([None if text.encode() == entry.key else entry.key for entry, text in pairs], pa.binary())
    columns = [keys, key_bytes]
    columns += [pa.array([entry[i] for entry in entries], SCHEMA.types[i + 1]) for i in range(1, 5)]
    return pa.table(columns, SCHEMA)


def content_hash(table: pa.Table) -> str:
    """sha256 over the ordered keys (as bytes), sizes, labels, categories and image ids.

    Independent of how Parquet encoded them and of where the pictures lie.
    """
    digest = hashlib.sha256(b"bulkinfer manifest %d, %d records\n" % (FORMAT, len(table)))
    keys = pc.coalesce(table["key_bytes"], table["key"].cast(pa.binary()))
    _hash_integers(digest, pc.binary_length(keys))
    for chunk in keys.chunks:
        _hash_binary(digest, chunk)
    categories = table["category_ids"]
    _hash_integers(digest, pc.list_value_length(categories))
    _hash_integers(digest, pc.list_flatten(categories))
    for name in ("size_bytes", "label", "image_id"):
        _hash_integers(digest, table[name])
    return digest.hexdigest()


def _hash_integers(digest: Any, column: pa.ChunkedArray) -> None:
    for chunk in column.chunks:
        digest.update(pc.is_valid(chunk).cast(pa.uint8()).to_numpy(zero_copy_only=False).tobytes())
    for chunk in column.chunks:
        digest.update(chunk.fill_null(0).to_numpy(zero_copy_only=False).astype("<i8").tobytes())


def _hash_binary(digest: Any, chunk: pa.Array) -> None:
    if len(chunk):
        offsets = np.frombuffer(chunk.buffers()[1], "<i4")[chunk.offset : chunk.offset + len(chunk) + 1]
        digest.update(memoryview(chunk.buffers()[2])[offsets[0] : offsets[-1]] if offsets[-1] > offsets[0] else b"")
