"""--list_file: the paths in a text file or table as records, sorted and without repetition; folders are not scanned.

It is made for ten million lines. Arrow handles blocks of lines; only unusual lines (comments, dots, doubled slashes, absolute
paths of another spelling) go through Python. The keys are kept once, in one buffer, and sorted by index; Arrow tables are made
of one block of keys at a time. Repeated keys are found by comparing neighbours in sorted order, complete key with complete key:
nothing is dropped because two hashes are equal, and no table of hashes is needed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import DamagedError, UsageError, os_error_reason
from bulkinfer.files.addresses import address_of
from bulkinfer.files.guarded import open_regular
from bulkinfer.host.number_text import size_text
from bulkinfer.records.manifest_rows import KEY_COLUMNS, ROWS, SCHEMA, filled_table, joined_bytes, key_columns
from bulkinfer.records.open_place import is_there, open_place
from bulkinfer.records.place import ADDRESSES
from bulkinfer.records.sources.coco import image_ids_from_names
from bulkinfer.records.sources.folder import counted, first_names
from bulkinfer.records.sources.list_paths import LONGEST_PATH, Place
from bulkinfer.records.sources.list_table import RowLabels, as_lines, is_table, table_rows
from bulkinfer.types import printable

_READ_BYTES = 8 << 20
_FEW = 5  # lines that are named or looked at

_Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Listing:
    """The records of a list file, in order: `order` holds the rows of `keys`, sorted by key bytes, each key once.

    A slice gives the lines of a manifest. `image_ids` is None if no key contains an image id, else -1 for a key without one.
    `sizes_bytes` is None until `with_sizes` has read the sizes; there -1 is a file that is missing or not a regular file, and
    `missing` names these. `labels` is None, or has -1 for a picture without a label; `classes` are the number and name of each
    class of a table. `repeated` names a few of the `num_repeated` lines that were dropped.
    """

    root: bytes
    sha256: str
    keys: pa.LargeBinaryArray
    order: pa.UInt64Array
    repeated: list[bytes]
    num_repeated: int
    image_ids: _Integers | None = None
    sizes_bytes: _Integers | None = None
    labels: _Integers | None = None
    missing: list[bytes] = field(default_factory=list)
    classes: list[list[Any]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: slice) -> ListedLines:
        start, end, _ = index.indices(len(self))
        return ListedLines(self, start, max(start, end))

    def block(self, columns: Sequence[str], start: int, end: int) -> pa.Table:
        """The lines start..end (exclusive), at most ROWS, with these columns of a manifest."""
        given = {}
        if not set(KEY_COLUMNS).isdisjoint(columns):
            keys = self.keys.take(self.order[start:end]).cast(pa.binary())
            given = dict(zip(KEY_COLUMNS, key_columns(keys), strict=True))
        for name, values in (("size_bytes", self.sizes_bytes), ("image_id", self.image_ids), ("label", self.labels)):
            if values is not None:
                given[name] = pa.array(values[start:end], SCHEMA.field(name).type, mask=values[start:end] < 0)
        return filled_table(given, columns, end - start)

    def with_sizes(self) -> Listing:
        """The same list with the size of every file."""
        sizes, missing = np.full(len(self), -1, np.int64), []
        for number, key in enumerate(self.all_keys()):
            sizes[number] = _size_bytes(os.path.join(self.root, key))
            if sizes[number] < 0:
                missing.append(key)
        return replace(self, sizes_bytes=sizes, missing=missing)

    def absent_at_start(self) -> list[bytes]:
        """The first keys, if none of them is a file; else none: the paths of the list are not wrong as a whole."""
        few = list(islice(self.all_keys(), _FEW))
        return [] if any(is_there(key if self.root == ADDRESSES else os.path.join(self.root, key)) for key in few) else few

    @property
    def shown_root(self) -> str:
        """Where the pictures lie, for messages."""
        return "stores" if self.root == ADDRESSES else printable(self.root)

    def with_labels(self, label_of: Callable[[bytes], int | None]) -> Listing:
        """The same list with the label of every picture for which `label_of` has one."""
        labels = (label_of(key) for key in self.all_keys())
        return replace(self, labels=np.fromiter((-1 if label is None else label for label in labels), np.int64, len(self)))

    def all_keys(self) -> Iterator[bytes]:
        """The keys of the records, in order, created a block at a time."""
        for start in range(0, len(self), ROWS):
            yield from self.keys.take(self.order[start : start + ROWS]).to_pylist()

    def known_sizes(self) -> Iterator[int]:
        """Size of each record in bytes, in order; 0 where it is not known."""
        sizes = np.zeros(len(self), np.int64) if self.sizes_bytes is None else self.sizes_bytes
        return (max(int(size), 0) for size in sizes)

    def summary(self) -> list[str]:
        """Lines to print: what the list names, and what was dropped."""
        size = "" if self.sizes_bytes is None else f" ({size_text(int(np.maximum(self.sizes_bytes, 0).sum()))})"
        lines = [f"list names {counted(len(self), 'picture')}{size} in {self.shown_root}"]
        if self.num_repeated:
            more = ", ..." if self.num_repeated > len(self.repeated) == _FEW else ""
            lines.append(f"dropped {counted(self.num_repeated, 'repeated line')}: {first_names(self.repeated)}{more}")
        if self.sizes_bytes is None:
            lines.append("did not look at the files: sizes are not known, and a missing file becomes an error row")
        return lines


@dataclass(frozen=True, eq=False)
class ListedLines:
    """The records start..end (exclusive) of a listing as the lines of a manifest."""

    listing: Listing
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def blocks(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.Table]:
        for first in range(self.start + start, self.start + end, ROWS):
            yield self.listing.block(columns, first, min(first + ROWS, self.start + end))


def _size_bytes(path: bytes) -> int:
    """Size of a file in bytes; -1 if it cannot be read, or is a folder or a pipe."""
    try:
        status = os.stat(path)
    except OSError:
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def read_list(path: Path, data_dir: bytes, output: bytes, columns: tuple[str, str] = ("", "")) -> Listing:
    """Read the list file `path`: paths relative to `data_dir`, or absolute ones inside it; or addresses, then all of them.

    `columns` are those of the paths and of the labels in a table, where its own names of columns do not say it.

    Lines end with \\n or \\r\\n; blank lines and lines that start with # are skipped (./#x is a name). Raises UsageError, with
    the line's number, for a path outside `data_dir` or in a partition in `output`.
    """
    place, digest, labels = Place.of(path, data_dir, output), hashlib.sha256(), RowLabels()
    data, lengths = bytearray(), [np.zeros(0, np.int32)]
    try:
        with open_place(os.fsencode(path)) if address_of(path) else open_regular(path) as file:
            for number, block in _blocks_of(place, file, digest, columns, labels):
                keys, _ = place.keys(block, number)
                lengths.append(pc.binary_length(keys).to_numpy())
                data += joined_bytes(keys)
    except OSError as error:
        raise UsageError(f"--list_file: {place.shown} cannot be read: {os_error_reason(error)}") from None
    except DamagedError as error:
        raise UsageError(f"--list_file: {error}") from None
    offsets = np.zeros(sum(map(len, lengths)) + 1, np.int64)
    np.cumsum(np.concatenate(lengths), out=offsets[1:])
    if len(offsets) == 1:
        raise UsageError(f"--list_file: {place.shown} contains no paths: give a text file with one path per line")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    keys = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    order, repeats, repeated = _sorted_once(keys)
    root = ADDRESSES if place.holds_addresses else place.root
    listing = Listing(root, digest.hexdigest(), keys, order, repeated, int(repeats.sum()))
    if labels:
        listing = _with_row_labels(listing, labels, repeats, place.shown)
    once = order.filter(pa.array(~repeats)) if listing.num_repeated else order
    return replace(listing, order=once, image_ids=_image_ids(keys, once))


def _with_row_labels(listing: Listing, labels: RowLabels, repeats: Any, shown: str) -> Listing:
    """Raises UsageError if rows of one picture have several labels. `listing.order` has repeated rows, too."""
    of_row, classes = labels.numbered(shown)
    ordered = of_row[listing.order.to_numpy()]
    if len(differing := np.flatnonzero(repeats[1:] & (ordered[1:] != ordered[:-1]))):
        key = printable(listing.keys[listing.order[int(differing[0])].as_py()].as_py())
        raise UsageError(f"--list_file: {shown} has several labels for {key}: leave one of them")
    return replace(listing, labels=ordered[~repeats], classes=classes)


def _blocks_of(
    place: Place, file: Any, digest: Any, columns: tuple[str, str], labels: RowLabels
) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each ending with \\n, and the number of lines before each; the labels of a table are collected."""
    name = place.path.name
    if not is_table(name):
        number = 0
        for block in _blocks(place, file, digest):
            yield number, block
            number += block.count(b"\n")
        return
    while chunk := file.read(_READ_BYTES):
        digest.update(chunk)
    file.seek(0)
    for number, rows in table_rows(file, name, place.shown, columns):
        if rows.labels is not None:
            labels.add(rows.labels)
        yield number, as_lines(rows, number, place.shown)


def _blocks(place: Place, file: Any, digest: Any) -> Iterator[bytes]:
    """The file in blocks of whole lines, each ending with \\n."""
    begun, is_first = b"", True
    while chunk := file.read(_READ_BYTES):
        digest.update(chunk)
        chunk = chunk.removeprefix(b"\xef\xbb\xbf") if is_first else chunk
        whole, newline, begun = (begun + chunk).rpartition(b"\n")
        is_first = False
        if b"\0" in chunk or len(begun) > 16 * LONGEST_PATH:
            raise UsageError(f"--list_file: {place.shown} is not a text file: give a file with one path per line")
        if newline:
            yield (whole + newline).replace(b"\r\n", b"\n")
    if begun:
        yield (begun + b"\n").replace(b"\r\n", b"\n")


def _sorted_once(keys: pa.LargeBinaryArray) -> tuple[pa.UInt64Array, Any, list[bytes]]:
    """The rows sorted by key; whether each has the key of the one before; a few of the repeated keys."""
    repeats = np.zeros(len(keys), bool)
    if pc.all(pc.less(keys[:-1], keys[1:])).as_py():
        return pa.array(np.arange(len(keys), dtype=np.uint64)), repeats, []
    order = pc.sort_indices(keys)
    names: list[bytes] = []
    for start in range(1, len(keys), ROWS):
        block = keys.take(order[start - 1 : start + ROWS])
        equal = pc.equal(block[1:], block[:-1])
        repeats[start : start + len(equal)] = equal.to_numpy(zero_copy_only=False)
        if len(names) < _FEW:
            names = list(dict.fromkeys([*names, *block[1:].filter(equal)[:100].to_pylist()]))[:_FEW]
    return order, repeats, names


def _image_ids(keys: pa.LargeBinaryArray, order: pa.UInt64Array) -> _Integers | None:
    """The image ids in names of COCO, in order; see Listing."""
    found = None
    for start in range(0, len(order), ROWS):
        block = keys.take(order[start : start + ROWS])
        if pc.any(pc.match_substring(block, b"COCO_")).as_py():
            if found is None:
                found = np.full(len(order), -1, np.int64)
            found[start : start + len(block)] = image_ids_from_names(block).fill_null(-1)
    return found
