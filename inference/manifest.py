"""The list of records of a partition, and how a data set is opened: manifest.parquet, dataset.json, plain folders."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inference.entries import BLOCK, SCHEMA, Entry, content_hash, entries_table
from inference.errors import RunError, UnreadableError, UsageError, first_line
from inference.markers import (
    DATASET_FILE,
    MANIFEST_CONTENT,
    MANIFEST_FILE,
    carries_dataset,
    carries_manifest,
    link_name,
    numbered_entries,
)
from inference.paths import FORMAT, canonical_json, publishing, read_json
from inference.scan import Scan, counted, scan_folder
from inference.structure import misfit
from inference.types import Record, printable

_MAKE_AGAIN = "remove it and run partition_dataset again"
_SHORTAGES = ("Failed to launch worker thread", "not enough memory", os.strerror(errno.EAGAIN), os.strerror(errno.ENOMEM))


@dataclass(frozen=True, eq=False)
class Manifest:
    """The records of one partition, in order: an Arrow table, 60 to 100 bytes a record.

    `mode` says how the pictures got there; under "manifest" they lie in `root` under their keys, else as links or copies
    beside the manifest, in `root` under `link_name(key)`.
    """

    table: pa.Table
    root: bytes
    mode: str
    content_hash: str

    @classmethod
    def from_entries(cls, entries: Iterable[Entry] | pa.Table, root: bytes, mode: str = "manifest") -> Manifest:
        """A manifest in memory; write it with `write`."""
        table = entries_table(entries)
        return cls(table, root, mode, content_hash(table))

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read and check a manifest: format, page checksums and content hash.

        Raises RunError if it is missing or damaged, UnreadableError, which is one, if that cannot be told, UsageError if it
        is from a newer bulkinfer.
        """
        try:
            with path.open("rb") as file:
                parquet = pq.ParquetFile(file, page_checksum_verification=True)
                metadata = _checked_metadata(path, parquet.schema_arrow.metadata or {})
                table = parquet.read().replace_schema_metadata(None)
            is_whole = table.schema == SCHEMA and content_hash(table) == metadata["content_hash"]
        except FileNotFoundError:
            raise RunError(f"{shown(path)} does not exist: run partition_dataset again") from None
        except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            if isinstance(error, MemoryError) or any(words in str(error) for words in _SHORTAGES):
                advice = "free memory, or raise the limits of this shell (ulimit -a)"
                raise UnreadableError(f"{shown(path)} cannot be read ({first_line(error)}): {advice}") from None
            raise RunError(f"{shown(path)} is damaged ({first_line(error)}): run partition_dataset again") from None
        if not is_whole:
            raise RunError(f"{shown(path)} is damaged (its content does not fit its hash): run partition_dataset again")
        mode = metadata["mode"]
        root = bytes.fromhex(metadata["root"]) if mode == "manifest" else os.path.abspath(os.fsencode(path.parent))
        return cls(table, root, mode, metadata["content_hash"])

    def write(self, path: Path) -> None:
        """Publish as Parquet with page checksums; `read` gives the same records, wherever a linked partition is moved."""
        metadata = {
            "content_hash": self.content_hash,
            "mode": self.mode,
            "root": self.root.hex() if self.mode == "manifest" else "",
        }
        marks = {"format": str(FORMAT), "content": MANIFEST_CONTENT.decode(), "checksum": _checksum(metadata)}
        with publishing(path) as temporary, temporary.open("wb") as file:
            table = self.table.replace_schema_metadata({**marks, **metadata})
            pq.write_table(table, file, compression="zstd", write_page_checksum=True)

    @property
    def num_records(self) -> int:
        return int(self.table.num_rows)

    def entries(self, start: int = 0, end: int | None = None) -> Iterator[Entry]:
        """The lines start..end (exclusive), made a block at a time."""
        end = self.num_records if end is None else end
        assert 0 <= start <= end <= self.num_records, (start, end, self.num_records)
        for first in range(start, end, BLOCK):
            block = self.table.slice(first, min(BLOCK, end - first))
            for key, raw, size, label, categories, image in zip(*(column.to_pylist() for column in block.columns), strict=True):
                yield Entry(raw or key.encode(), size, label, None if categories is None else tuple(categories), image)

    def records(self, start: int = 0, end: int | None = None) -> Iterator[Record]:
        """The records start..end (exclusive), numbered within the partition."""
        for number, entry in enumerate(self.entries(start, end), start):
            yield Record(number, entry.key, self.path(entry.key), entry.label, entry.category_ids)

    def path(self, key: bytes) -> bytes:
        """Where the picture `key` lies."""
        return self.root + b"/" + (key if self.mode == "manifest" else link_name(key))

    def size_bytes(self, start: int = 0, end: int | None = None) -> int:
        """File bytes of the records start..end together; missing files count as 0."""
        end = self.num_records if end is None else end
        return int(pc.sum(self.table["size_bytes"].slice(start, end - start)).as_py() or 0)


def _checked_metadata(path: Path, raw: dict[bytes, bytes]) -> dict[str, str]:
    """What `write` put there, checked: page checksums do not cover it. Raises KeyError or ValueError if it is damaged."""
    if raw.get(b"content") != MANIFEST_CONTENT:
        raise RunError(f"{shown(path)} is no manifest of bulkinfer: run partition_dataset into another folder")
    if (found := raw[b"format"].decode()) != str(FORMAT):
        raise UsageError(f"{shown(path)} has format {found}; this bulkinfer reads format {FORMAT}: install a newer one")
    metadata = {name: raw[name.encode()].decode() for name in ("content_hash", "mode", "root")}
    if raw[b"checksum"].decode() != _checksum(metadata):
        raise ValueError("its metadata does not fit its checksum")
    return metadata


def _checksum(metadata: dict[str, str]) -> str:
    return hashlib.sha256(canonical_json(metadata).encode()).hexdigest()


def shown(path: Path) -> str:
    """A path for messages."""
    return printable(os.fsencode(path))


@dataclass(frozen=True)
class Partition:
    """One share of a data set; `root` is where its pictures lie (as in its manifest)."""

    index: int
    manifest: Manifest
    root: bytes


@dataclass(frozen=True)
class Dataset:
    """An opened data set. `scan` is there for a plain folder: what was not taken from it, which the summary must tell.

    `content_hash` covers the records and how they are partitioned, not where they lie.
    """

    root: Path
    partitions: tuple[Partition, ...]
    source: str
    content_hash: str
    scan: Scan | None = None

    @property
    def num_records(self) -> int:
        return sum(partition.manifest.num_records for partition in self.partitions)


class DatasetShare(TypedDict):
    """What dataset.json tells of one partition, as far as it is read."""

    content_hash: str


class DatasetDescription(TypedDict):
    """dataset.json, as far as it is read."""

    source: str
    partitions: list[DatasetShare]


def read_description(path: Path) -> DatasetDescription:
    """Read and check dataset.json. Raises RunError if it is damaged, UsageError if it is from a newer bulkinfer."""
    found = read_json(path, advice=_MAKE_AGAIN)
    if told := misfit(found, DatasetDescription) or ("" if found["partitions"] else "it names no partitions"):
        raise RunError(f"{shown(path)} is damaged ({told}): {_MAKE_AGAIN}")
    return cast(DatasetDescription, found)


def open_dataset(data_dir: Path) -> Dataset:
    """Open partitions made by partition_dataset, or a plain folder of pictures as partition 0, sorted by key bytes.

    Raises RunError if the partitions are not whole (a gap, a manifest that does not fit dataset.json, a foreign numbered
    folder, an unfinished partition_dataset), UsageError if there is nothing to run on.
    """
    root = os.fsencode(data_dir)
    if carries_dataset(root):
        return _open_partitions(data_dir)
    if carries_manifest(root):
        raise UsageError(f"{shown(data_dir)} is one partition of a data set: give the folder above it")
    if os.path.isdir(root):
        _refuse_undescribed(data_dir)
    scan = scan_folder(data_dir)
    if not scan.pictures:
        raise UsageError(f"{no_pictures(scan)}: give a folder of pictures, or one made by partition_dataset")
    manifest = Manifest.from_entries((Entry(*picture) for picture in scan.pictures), scan.root)
    partitions = (Partition(0, manifest, scan.root),)
    return Dataset(data_dir, partitions, f"pictures in {printable(scan.root)}", _hash_over_all(partitions), scan)


def _refuse_undescribed(data_dir: Path) -> None:
    """Raise RunError if partitions of ours lie in `data_dir`, which has no dataset.json of ours."""
    ours = [number for number, path in numbered_entries(os.fsencode(data_dir)).items() if carries_manifest(path)]
    if not ours:
        return
    described = data_dir / DATASET_FILE
    if not described.exists():
        holds = f"{shown(data_dir)} holds partition {min(ours)} but no {DATASET_FILE}"
        raise RunError(f"{holds}: partition_dataset did not finish; run it again")
    if described.is_file():
        read_json(described, advice=_MAKE_AGAIN)  # says what is wrong, if it is no JSON of ours or closed to us
    raise RunError(f"{shown(described)} is damaged (it is not what partition_dataset wrote): {_MAKE_AGAIN}")


def no_pictures(scan: Scan) -> str:
    """The beginning of the sentence about a folder that holds no pictures."""
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
            f"{shown(data_dir / str(foreign[0]))} is none of the {len(hashes)} partitions of {DATASET_FILE}: "
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
                f"{shown(folder / MANIFEST_FILE)} does not fit {DATASET_FILE} "
                "(partition_dataset was interrupted, or one of them was changed): run partition_dataset again"
            )
        partitions.append(Partition(index, manifest, manifest.root))
    source = printable(described["source"].encode("utf-8", "backslashreplace"))
    source = f"{source} in {counted(len(hashes), 'partition')}"
    return Dataset(data_dir, tuple(partitions), source, _hash_over_all(tuple(partitions)))
