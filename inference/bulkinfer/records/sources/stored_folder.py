"""The pictures below an address of a bucket. The listing goes into a file as it comes, so memory does not grow with it."""

from __future__ import annotations

import logging
import posixpath
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bulkinfer.errors import ObjectError, UsageError
from bulkinfer.files.magic_bytes import HEAD_BYTES
from bulkinfer.records.bounded_parquet import BoundedParquet
from bulkinfer.records.manifest_file import FileLines
from bulkinfer.records.manifest_rows import (
    ROWS,
    SCHEMA,
    Entry,
    Lines,
    LinesPart,
    TableLines,
    entries_table,
    given_labels,
    lines_part,
    raw_key_column,
)
from bulkinfer.records.sources.archive_names import kind_by_name
from bulkinfer.records.sources.coco import image_id_from_name
from bulkinfer.records.sources.folder import (
    PICTURE_EXTENSIONS,
    Picture,
    Scan,
    Unreadable,
    extension_of,
    found_lines,
    is_ignored,
    is_picture,
)
from bulkinfer.stores.store import Listed, Store, open_store
from bulkinfer.types import key_text

log = logging.getLogger("bulkinfer")

_REPORT_S = 10.0
_HEADS_AT_ONCE = 32  # first bytes that are read at once, of objects whose names do not say what they are


@dataclass(frozen=True, eq=False)
class StoredLines:
    """The pictures of a listing as the lines of a manifest, in the order of their keys; `labels`: one for each, -1: none."""

    lines: Lines
    labels: np.ndarray[Any, np.dtype[np.int32]] | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, part: slice) -> LinesPart:
        return lines_part(self, part)

    def blocks(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.Table]:
        """The lines start..end (exclusive) with these columns of SCHEMA."""
        for table in self.lines.blocks(columns, start, end):
            if self.labels is not None and "label" in columns:
                label = given_labels(self.labels, start, len(table))
                table = table.set_column(list(columns).index("label"), SCHEMA.field("label"), label)
            start += len(table)
            yield table

    def all_keys(self) -> Iterator[bytes]:
        """The keys, in order, created a block at a time."""
        for table in self.lines.blocks(["key", "key_bytes"], 0, len(self)):
            yield from raw_key_column(table).to_pylist()

    def sizes_bytes(self) -> Iterator[int]:
        """Size of each picture in bytes, in order."""
        for table in self.lines.blocks(["size_bytes"], 0, len(self)):
            yield from table["size_bytes"].to_pylist()


@dataclass(frozen=True, eq=False)
class StoredPictures:
    """The pictures below the address `root`. `scan` says what else is there, and has no pictures of its own."""

    root: bytes
    lines: StoredLines
    scan: Scan

    def with_names(self) -> Scan:
        """The scan with the keys and sizes of all pictures, in memory, for what matches names with them."""
        return replace(self.scan, pictures=[*map(Picture, self.lines.all_keys(), self.lines.sizes_bytes())])


@dataclass
class _Listing:
    """The state of a listing that is being read: what is not written yet, and what it found so far."""

    store: Store
    prefix: str
    scan: Scan
    include_hidden: bool
    waiting: list[Entry] = field(default_factory=list)
    last: bytes = b""
    in_order: bool = True
    count: int = 0
    size_bytes: int = 0
    folder: tuple[bytes, bool] = (b"", False)  # the last one, and whether it is ignored

    def add(self, page: Sequence[Listed], pool: ThreadPoolExecutor) -> None:
        """Sort the objects of a page into pictures and others."""
        found = [(each, self._name(each)) for each in page]
        kept = [(each, name) for each, name in found if name and not self._is_ignored(name)]
        unclear = [(each, name) for each, name in kept if not _is_clear(name)]
        judged = dict(zip((name for _, name in unclear), pool.map(self._judge, unclear), strict=True))
        for each, name in kept:
            is_one = judged.get(name, True)
            if isinstance(is_one, ObjectError):
                self.scan.unreadable.append(Unreadable(name, str(is_one)))
            elif is_one is None:
                self.scan.ignored += 1
            elif is_one:
                self._take(name, each.size_bytes)
            else:
                self._leave_out(name)

    def _name(self, each: Listed) -> bytes:
        return each.key[len(self.prefix) + 1 if self.prefix else 0 :].encode()

    def _is_ignored(self, name: bytes) -> bool:
        folder, _, base = name.rpartition(b"/")
        if folder != self.folder[0]:  # most objects lie in the folder of the one before
            self.folder = folder, any(is_ignored(part, self.include_hidden) for part in folder.split(b"/"))
        is_one = self.folder[1] or is_ignored(base, self.include_hidden)
        self.scan.ignored += is_one
        return is_one

    def _judge(self, found: tuple[Listed, bytes]) -> bool | ObjectError | None:
        each, name = found
        try:
            return is_picture(posixpath.basename(name), each.size_bytes, partial(self._head, each.key))
        except ObjectError as error:
            return True if extension_of(name) in PICTURE_EXTENSIONS else error

    def _head(self, key: str) -> bytes:
        return self.store.get_range(key, 0, HEAD_BYTES)[0]

    def _take(self, name: bytes, size_bytes: int) -> None:
        self.in_order = self.in_order and self.last < name
        self.last = name
        self.count += 1
        self.size_bytes += size_bytes
        self.waiting.append(Entry(name, size_bytes, image_id=image_id_from_name(name)))

    def _leave_out(self, name: bytes) -> None:
        if kind_by_name(name):
            self.scan.archives.append(name)
        extension = extension_of(posixpath.basename(name))
        self.scan.not_pictures[f".{key_text(extension)}" if extension else "without extension"] += 1


def _is_clear(name: bytes) -> bool:
    """Whether the name alone says that an object is a picture, as is_picture has it."""
    return extension_of(name) in PICTURE_EXTENSIONS and not posixpath.basename(name).startswith(b"._")


def list_stored(address: str, *, include_hidden: bool = False) -> StoredPictures:
    """The pictures below an address, by the rules of scan_folder: the names decide, else the first bytes.

    Raises StoreError if the bucket cannot be read, UsageError if one of its keys cannot.
    """
    address = address.rstrip("/")
    store, prefix = open_store(address)
    root = address.encode()
    listing = _Listing(store, prefix, Scan(root), include_hidden)
    with tempfile.TemporaryDirectory(prefix="bulkinfer-") as folder, (path := Path(folder, "listing")).open("w+b") as file:
        try:
            _write(file, listing)
        except ObjectError as error:
            raise UsageError(
                f"the objects below {address} cannot be listed: of one of them {error}: rename it, or name the others in a "
                "--list_file"
            ) from None
        file.seek(0)
        # the file stays open, and goes with the lines
        lines: Lines = FileLines(path, file, BoundedParquet(file, use_threads=False), keeps_open=True)
    if not listing.in_order:  # no store promises that; those of S3, Google and Azure do it
        lines = TableLines(_sorted(lines))
    scan = listing.scan
    scan.archives.sort()
    scan.lines = found_lines(listing.count, listing.size_bytes, scan)
    return StoredPictures(root, StoredLines(lines), scan)


def _write(file: Any, listing: _Listing) -> None:
    """Write the pictures of a listing as Parquet, a block at a time."""
    reported = time.monotonic()
    with (
        pq.ParquetWriter(file, SCHEMA, compression="zstd", write_page_checksum=True) as writer,
        ThreadPoolExecutor(_HEADS_AT_ONCE) as pool,
    ):
        for page in listing.store.list(listing.prefix):
            listing.add(page, pool)
            if len(listing.waiting) >= ROWS:
                writer.write_table(entries_table(listing.waiting[:ROWS]), ROWS)
                del listing.waiting[:ROWS]
            if time.monotonic() - reported > _REPORT_S:
                reported = time.monotonic()
                log.info(f"listing {listing.scan.shown_root}: {listing.count:,} pictures so far")
        if listing.waiting:
            writer.write_table(entries_table(listing.waiting), ROWS)
    file.flush()


def _sorted(lines: Lines) -> pa.Table:
    table = pa.concat_tables([SCHEMA.empty_table(), *lines.blocks(SCHEMA.names, 0, len(lines))])
    keys = raw_key_column(table).combine_chunks()
    order = sorted(range(len(keys)), key=keys.to_pylist().__getitem__)
    return table.take(pa.array(order, pa.int64())).combine_chunks()
