"""The records of a partition: manifest.parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import RunError
from bulkinfer.records.layout import link_name
from bulkinfer.records.manifest_file import damage_as_run_error, open_manifest, shown, write_manifest
from bulkinfer.records.manifest_rows import (
    ARCHIVE_SCHEMA,
    BLOCK,
    KEY_COLUMNS,
    PLACE_COLUMNS,
    SCHEMA,
    Entry,
    Lines,
    PickedLines,
    as_lines,
    content_hash,
    hash_keys,
    raw_key_column,
)
from bulkinfer.records.place import ADDRESSES, archive_as_json, archive_from_json, is_stored
from bulkinfer.types import Archive, Member, Place, Record, Step


@dataclass(frozen=True, eq=False)
class Manifest:
    """The records of one partition, in order. The lines of a manifest that was read stay in its file until they are used.

    `mode` is how the pictures got there. With "manifest" a picture is at `root`/key; otherwise `root` is the partition, and
    its link or copy is at `root`/link_name(key). In stores `root` is an address,
    or ADDRESSES. With `archives`, whose paths are relative to `root`, the pictures lie in those
    files, and the lines have the columns of ARCHIVE_SCHEMA.
    """

    lines: Lines
    root: bytes
    mode: str
    content_hash: str
    archives: tuple[Archive, ...] = ()

    @classmethod
    def from_entries(
        cls,
        entries: Iterable[Entry] | pa.Table | Lines,
        root: bytes,
        mode: str = "manifest",
        archives: tuple[Archive, ...] = (),
    ) -> Manifest:
        """A manifest in memory; `write` writes it to a file."""
        lines = as_lines(entries)
        return cls(lines, root, mode, content_hash(lines), archives)

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a manifest once and check it: format, page checksums and content hash.

        Raises RunError if it is missing or damaged, its subclass UnreadableError if there is too little memory to find out,
        UsageError if a newer bulkinfer wrote it.
        """
        lines, metadata = open_manifest(path)
        with damage_as_run_error(path):
            is_whole = content_hash(lines.at_hand()) == metadata["content_hash"]
            if "archives" in metadata:
                _check_archives(lines, len(json.loads(metadata["archives"])))
        if not is_whole:
            raise RunError(f"{shown(path)} is damaged (its content does not match its hash): run partition_dataset again")
        return cls._of(path, lines, metadata)

    @classmethod
    def opened(cls, path: Path) -> Manifest:
        """Open a manifest whose content is not checked as a whole; lines are read when used. Raises as `read` does."""
        return cls._of(path, *open_manifest(path))

    @classmethod
    def read_again(cls, path: Path, content_hash: str, sha256: str) -> Manifest:
        """Open a manifest that the launch has checked before, and compare the hash of its file; lines are read when used.

        Raises RunError if it is missing, damaged, or no longer the same file.
        """
        lines, metadata = open_manifest(path)
        if metadata["content_hash"] != content_hash or lines.file_sha256() != sha256:
            raise RunError(f"{shown(path)} was replaced during the run: run the job again, with another --output")
        return cls._of(path, lines, metadata)

    @classmethod
    def _of(cls, path: Path, lines: Lines, metadata: dict[str, str]) -> Manifest:
        mode = metadata["mode"]
        root = bytes.fromhex(metadata["root"]) if metadata["root"] else os.path.abspath(os.fsencode(path.parent))
        archives = tuple(archive_from_json(value) for value in json.loads(metadata.get("archives", "[]")))
        return cls(lines, root, mode, metadata["content_hash"], archives)

    def write(self, path: Path, *, apart: bool = False) -> None:
        """Publish as Parquet with page checksums; `read` gives the same records, also after a linked partition was moved.

        `apart` means that the file is not in the folder of the links, and therefore names that folder.
        """
        root = self.root.hex() if self.mode == "manifest" or apart else ""
        archives = {"archives": json.dumps([archive_as_json(archive) for archive in self.archives])} if self.archives else {}
        write_manifest(path, self.lines, {"content_hash": self.content_hash, "mode": self.mode, "root": root, **archives})

    @property
    def is_stored(self) -> bool:
        """Whether the pictures lie in stores."""
        return is_stored(self.root)

    @property
    def num_records(self) -> int:
        return len(self.lines)

    def entries(self, start: int = 0, end: int | None = None) -> Iterator[Entry]:
        """The lines start..end (exclusive), created a block at a time."""
        end = self.num_records if end is None else end
        assert 0 <= start <= end <= self.num_records, (start, end, self.num_records)
        for table in self.lines.blocks(SCHEMA.names, start, end):
            for first in range(0, len(table), BLOCK):
                columns = (column.to_pylist() for column in table.slice(first, BLOCK).columns)
                for key, raw, size, label, categories, image in zip(*columns, strict=True):
                    yield Entry(raw or key.encode(), size, label, None if categories is None else tuple(categories), image)

    def records(self, start: int = 0, end: int | None = None) -> Iterator[Record]:
        """The records start..end (exclusive), numbered within the partition."""
        if self.archives:
            yield from self._records_in_archives(start, self.num_records if end is None else end)
            return
        for number, entry in enumerate(self.entries(start, end), start):
            yield Record(number, entry.key, self.path(entry.key), entry.label, entry.category_ids)

    def path(self, key: bytes) -> bytes:
        """The path or address of the picture `key`, which lies in a file of its own."""
        if self.root == ADDRESSES:
            return key
        return self.root + b"/" + (key if self.mode == "manifest" else link_name(key))

    def find(self, key: bytes) -> Place | None:
        """The place of the picture `key`; None if no record has that key. Reads the keys up to it."""
        start = 0
        for block in self.lines.blocks(KEY_COLUMNS, 0, self.num_records):
            if (found := pc.index(raw_key_column(block), key).as_py()) >= 0:
                return next(self.records(start + found, start + found + 1)).place
            start += len(block)
        return None

    def _records_in_archives(self, start: int, end: int) -> Iterator[Record]:
        assert 0 <= start <= end <= self.num_records, (start, end, self.num_records)
        archives, number = self.archives_here, start
        for table in self.lines.blocks(ARCHIVE_SCHEMA.names, start, end):
            for first in range(0, len(table), BLOCK):
                columns = (column.to_pylist() for column in table.slice(first, BLOCK).columns)
                for key, raw, _, label, categories, _, archive, offset, span in zip(*columns, strict=True):
                    place = Member(archives[archive], -1 if offset is None else offset, span or 0)
                    yield Record(number, raw or key.encode(), place, label, None if categories is None else tuple(categories))
                    number += 1

    @cached_property
    def archives_here(self) -> list[Archive]:
        """The archives with their whole paths."""
        if self.root == ADDRESSES:
            return list(self.archives)
        return [replace(archive, path=self.root + b"/" + archive.path) for archive in self.archives]

    def only(self, numbers: np.ndarray[Any, Any]) -> Manifest:
        """A manifest of only these records, renumbered from 0; `numbers` are ascending."""
        return Manifest.from_entries(PickedLines(self.lines, numbers), self.root, self.mode, self.archives)

    def size_bytes(self, start: int = 0, end: int | None = None) -> int:
        """Total file size of the records start..end, in bytes; missing files count as 0."""
        end = self.num_records if end is None else end
        blocks = self.lines.blocks(["size_bytes"], start, end)
        return sum(pc.sum(block["size_bytes"]).as_py() or 0 for block in blocks)

    def keys_sha256(self, ranges: Sequence[Step]) -> str:
        """The hash of the keys of `ranges`, which ascend; hash_keys gives the same for the rows of these records."""
        if len(ranges) == 1:
            return hash_keys(self.lines.blocks(KEY_COLUMNS, ranges[0].start, ranges[0].end))
        numbers = [np.arange(step.start, step.end) for step in ranges]
        picked = PickedLines(self.lines, np.concatenate(numbers) if numbers else np.zeros(0, int))
        return hash_keys(picked.blocks(KEY_COLUMNS, 0, len(picked)))


def _check_archives(lines: Lines, count: int) -> None:
    """Raises ValueError if a line names none of the `count` archives, or a part that no file has."""
    for block in lines.blocks(PLACE_COLUMNS, 0, len(lines)):
        for name, most in (("archive", count), ("offset", 1 << 62), ("span", 1 << 62)):
            found = pc.min_max(block[name]).as_py()
            if found["min"] is not None and not 0 <= found["min"] <= found["max"] < most:
                raise ValueError(f"its {name}s go from {found['min']} to {found['max']}")
        if block["archive"].null_count:
            raise ValueError("a picture lies in no archive")
