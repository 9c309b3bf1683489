"""The records of a partition (manifest.parquet), and opening a data set: partitions with dataset.json, or a plain folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import DamagedError, RunError, UsageError, advising
from bulkinfer.files.atomic import canonical_json
from bulkinfer.files.json_file import read_json
from bulkinfer.files.json_validation import mismatch
from bulkinfer.files.user_path import user_path
from bulkinfer.records.layout import (
    DATASET_FILE,
    MANIFEST_FILE,
    carries_dataset,
    carries_manifest,
    link_name,
    numbered_entries,
)
from bulkinfer.records.manifest_file import damage_as_run_error, open_manifest, shown, write_manifest
from bulkinfer.records.manifest_rows import (
    BLOCK,
    KEY_COLUMNS,
    SCHEMA,
    Entry,
    Lines,
    PickedLines,
    as_lines,
    content_hash,
    hash_keys,
)
from bulkinfer.records.sources.folder import Scan, counted, scan_folder
from bulkinfer.records.sources.labels import find_labels
from bulkinfer.types import Record, printable

MAKE_AGAIN = "remove it and run partition_dataset again"


@dataclass(frozen=True, eq=False)
class Manifest:
    """The records of one partition, in order. The lines of a manifest that was read stay in its file until they are used.

    `mode` is how the pictures got there. With "manifest" a picture is at `root`/key; otherwise `root` is the partition, and
    its link or copy is at `root`/link_name(key).
    """

    lines: Lines
    root: bytes
    mode: str
    content_hash: str

    @classmethod
    def from_entries(cls, entries: Iterable[Entry] | pa.Table | Lines, root: bytes, mode: str = "manifest") -> Manifest:
        """A manifest in memory; `write` writes it to a file."""
        lines = as_lines(entries)
        return cls(lines, root, mode, content_hash(lines))

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a manifest once and check it: format, page checksums and content hash.

        Raises RunError if it is missing or damaged, its subclass UnreadableError if there is too little memory to find out,
        UsageError if a newer bulkinfer wrote it.
        """
        lines, metadata = open_manifest(path)
        with damage_as_run_error(path):
            is_whole = content_hash(lines.at_hand()) == metadata["content_hash"]
        if not is_whole:
            raise RunError(f"{shown(path)} is damaged (its content does not match its hash): run partition_dataset again")
        return cls._of(path, lines, metadata)

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
        return cls(lines, root, mode, metadata["content_hash"])

    def write(self, path: Path, *, apart: bool = False) -> None:
        """Publish as Parquet with page checksums; `read` gives the same records, also after a linked partition was moved.

        `apart` means that the file is not in the folder of the links, and therefore names that folder.
        """
        root = self.root.hex() if self.mode == "manifest" or apart else ""
        write_manifest(path, self.lines, {"content_hash": self.content_hash, "mode": self.mode, "root": root})

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
        for number, entry in enumerate(self.entries(start, end), start):
            yield Record(number, entry.key, self.path(entry.key), entry.label, entry.category_ids)

    def path(self, key: bytes) -> bytes:
        """The path of the picture `key`."""
        return self.root + b"/" + (key if self.mode == "manifest" else link_name(key))

    def only(self, numbers: np.ndarray[Any, Any]) -> Manifest:
        """A manifest of only these records, renumbered from 0; `numbers` are ascending."""
        return Manifest.from_entries(PickedLines(self.lines, numbers), self.root, self.mode)

    def size_bytes(self, start: int = 0, end: int | None = None) -> int:
        """Total file size of the records start..end, in bytes; missing files count as 0."""
        end = self.num_records if end is None else end
        blocks = self.lines.blocks(["size_bytes"], start, end)
        return sum(pc.sum(block["size_bytes"]).as_py() or 0 for block in blocks)

    def keys_sha256(self, count: int) -> str:
        """The hash of the first `count` keys; hash_keys gives the same for the rows of these records."""
        return hash_keys(self.lines.blocks(KEY_COLUMNS, 0, count))


@dataclass(frozen=True)
class Partition:
    """One part of a data set; `root` is the folder of its pictures, as in its manifest."""

    index: int
    manifest: Manifest
    root: bytes


@dataclass(frozen=True)
class Skipped:
    """Records that are left out because `outputs` have ok rows for them: their number, and a hash that identifies them."""

    outputs: tuple[str, ...]
    num_records: int
    sha256: str


@dataclass(frozen=True)
class Dataset:
    """An opened data set. `scan` is set for a plain folder, and says which of its files are not records.

    `content_hash` covers the records, also the `skipped` ones, and how they are partitioned, but not where the files are.
    `is_listed` means that each partition holds its manifest, so that none has to be written for the workers. `found_now` is the
    scan of a plain folder whose records are those that a job listed before.
    """

    root: Path
    partitions: tuple[Partition, ...]
    source: str
    content_hash: str
    scan: Scan | None = None
    skipped: Skipped | None = None
    is_listed: bool = True
    found_now: Scan | None = None

    @property
    def num_records(self) -> int:
        return sum(partition.manifest.num_records for partition in self.partitions)


class DatasetShare(TypedDict):
    """What dataset.json says about one partition, as far as it is read."""

    content_hash: str


class DatasetDescription(TypedDict):
    """dataset.json, as far as it is read."""

    source: str
    partitions: list[DatasetShare]


def read_description(path: Path) -> DatasetDescription:
    """Read and check dataset.json. Raises RunError if it is damaged, UsageError if a newer bulkinfer wrote it."""
    with advising(MAKE_AGAIN):
        return description_of(read_json(path), path)


def description_of(found: dict[str, Any], path: Path) -> DatasetDescription:
    """The description in the content of `path`. Raises DamagedError that names the file and what is wrong in it."""
    if reason := mismatch(found, DatasetDescription) or ("" if found["partitions"] else "it names no partitions"):
        raise DamagedError(f"{shown(path)} is damaged ({reason})")
    return cast(DatasetDescription, found)


def open_dataset(data_dir: str | os.PathLike[str], *, labels: str = "") -> Dataset:
    """Open partitions made by partition_dataset, or a plain folder of pictures as partition 0, sorted by key bytes.

    `labels`, for a plain folder, is "folders" or the path of a table, as find_labels takes it; without it labels are null.
    Raises RunError if the partitions are incomplete or inconsistent (a missing number, a manifest that does not match
    dataset.json, an unknown numbered folder, an unfinished partition_dataset), UsageError if there are no pictures.
    """
    data_dir = user_path(data_dir, "data_dir")
    root = os.fsencode(data_dir)
    if carries_dataset(root):
        if labels:
            raise UsageError(f"--labels is for a plain folder: give it to partition_dataset, which made {shown(data_dir)}")
        return _open_partitions(data_dir)
    if carries_manifest(root):
        raise UsageError(f"{shown(data_dir)} is one partition of a data set: give the folder above it")
    if os.path.isdir(root):
        _refuse_undescribed(data_dir)
    scan = scan_folder(data_dir)
    if not scan.pictures:
        raise UsageError(f"{no_pictures(scan)}: give a folder of pictures, or one made by partition_dataset")
    label_of = find_labels(labels, scan).of if labels else lambda _key: None
    entries = (Entry(picture.key, picture.size_bytes, label_of(picture.key)) for picture in scan.pictures)
    manifest = Manifest.from_entries(entries, scan.root)
    partitions = (Partition(0, manifest, scan.root),)
    source = f"pictures in {printable(scan.root)}"
    return Dataset(data_dir, partitions, source, _hash_over_all(partitions), scan, is_listed=False)


def _refuse_undescribed(data_dir: Path) -> None:
    """Raise RunError if `data_dir` holds partitions, but no dataset.json that partition_dataset wrote."""
    found = [number for number, path in numbered_entries(os.fsencode(data_dir)).items() if carries_manifest(path)]
    if not found:
        return
    described = data_dir / DATASET_FILE
    if not described.exists():
        holds = f"{shown(data_dir)} holds partition {min(found)} but no {DATASET_FILE}"
        raise RunError(f"{holds}: partition_dataset did not finish; run it again")
    with advising(MAKE_AGAIN):
        if described.is_file():
            read_json(described)  # raises a more exact error if it is not readable or not JSON
        raise DamagedError(f"{shown(described)} is damaged (it is not what partition_dataset wrote)")


def no_pictures(scan: Scan) -> str:
    """The beginning of the error sentence about a folder that holds no pictures."""
    found = [counted(scan.not_pictures.total(), "other file")] if scan.not_pictures else []
    found += [f"{scan.ignored:,} ignored"] if scan.ignored else []
    found += [f"{printable(key) or '.'} is unreadable: {reason}" for key, reason in scan.unreadable[:3]]
    return f"{printable(scan.root)} holds no pictures" + (f" ({'; '.join(found)})" if found else "")


def _hash_over_all(partitions: tuple[Partition, ...]) -> str:
    return hashlib.sha256(canonical_json([partition.manifest.content_hash for partition in partitions]).encode()).hexdigest()


def _open_partitions(data_dir: Path) -> Dataset:
    described = read_description(data_dir / DATASET_FILE)
    hashes = [share["content_hash"] for share in described["partitions"]]
    present = numbered_entries(os.fsencode(data_dir))
    if missing := sorted(set(range(len(hashes))) - set(present)):
        numbers = ", ".join(map(str, missing[:5]))
        raise RunError(f"{shown(data_dir)}: of {len(hashes)} partitions {numbers} is missing: run partition_dataset again")
    if foreign := sorted(set(present) - set(range(len(hashes)))):
        raise RunError(
            f"{shown(data_dir / str(foreign[0]))} is not one of the {len(hashes)} partitions in {DATASET_FILE}: "
            "move it away, or run partition_dataset again"
        )
    partitions = []
    for index, expected in enumerate(hashes):
        folder = data_dir / str(index)
        if not (folder / MANIFEST_FILE).exists():
            raise RunError(f"{shown(folder)} has no {MANIFEST_FILE}: move that folder away and run partition_dataset again")
        manifest = Manifest.read(folder / MANIFEST_FILE)
        if manifest.content_hash != expected:
            raise RunError(
                f"{shown(folder / MANIFEST_FILE)} does not match {DATASET_FILE} "
                "(partition_dataset was interrupted, or one of them was changed): run partition_dataset again"
            )
        partitions.append(Partition(index, manifest, manifest.root))
    source = printable(described["source"].encode("utf-8", "backslashreplace"))
    source = f"{source} in {counted(len(hashes), 'partition')}"
    return Dataset(data_dir, tuple(partitions), source, _hash_over_all(tuple(partitions)))
