"""A data set: partitions with dataset.json, or a plain folder of pictures; opened and checked."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np

from bulkinfer.errors import DamagedError, ObjectError, RunError, UsageError, advising
from bulkinfer.files.addresses import address_of
from bulkinfer.files.atomic import canonical_json
from bulkinfer.files.json_file import read_json
from bulkinfer.files.json_validation import mismatch
from bulkinfer.files.user_path import user_path
from bulkinfer.records.archives.archive_dataset import is_archive_file, open_archives, refuse_columns, wanted_columns
from bulkinfer.records.layout import DATASET_FILE, MANIFEST_FILE, carries_dataset, carries_manifest, numbered_entries
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_file import shown
from bulkinfer.records.manifest_rows import Entry
from bulkinfer.records.moved_pictures import changed_archives, found_again, warn_of_changes
from bulkinfer.records.sources.archive_names import COMPRESSED, kind_by_name
from bulkinfer.records.sources.folder import Scan, counted, first_names, scan_folder
from bulkinfer.records.sources.labels import Labels, find_labels, named_classes
from bulkinfer.records.sources.stored_folder import StoredLines, StoredPictures, list_stored
from bulkinfer.stores.objects import find_object
from bulkinfer.types import printable, shell_word

log = logging.getLogger("bulkinfer")

MAKE_AGAIN = "remove it and run partition_dataset again"


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
    scan of a plain folder whose records are those that a job listed before. `label_classes` names the classes by the numbers
    that are the labels of the records.
    """

    root: Path
    partitions: tuple[Partition, ...]
    source: str
    content_hash: str
    scan: Scan | None = None
    skipped: Skipped | None = None
    is_listed: bool = True
    found_now: Scan | None = None
    label_classes: Mapping[int, str] = field(default_factory=dict)

    @property
    def num_records(self) -> int:
        return sum(partition.manifest.num_records for partition in self.partitions)


class DatasetShare(TypedDict):
    """What dataset.json says about one partition, as far as it is read."""

    content_hash: str


class _DatasetDescription(TypedDict):
    source: str
    partitions: list[DatasetShare]


class DatasetDescription(_DatasetDescription, total=False):
    """dataset.json, as far as it is read. `labels` are the facts of Labels."""

    labels: dict[str, Any]


def read_description(path: Path) -> DatasetDescription:
    """Read and check dataset.json. Raises RunError if it is damaged, UsageError if a newer bulkinfer wrote it."""
    with advising(MAKE_AGAIN):
        return description_of(read_json(path), path)


def description_of(found: dict[str, Any], path: Path) -> DatasetDescription:
    """The description in the content of `path`. Raises DamagedError that names the file and what is wrong in it."""
    if reason := mismatch(found, DatasetDescription) or ("" if found["partitions"] else "it names no partitions"):
        raise DamagedError(f"{shown(path)} is damaged ({reason})")
    return cast(DatasetDescription, found)


def open_dataset(
    data_dir: str | os.PathLike[str], *, labels: str = "", image_column: str = "", label_column: str = ""
) -> Dataset:
    """Open partitions made by partition_dataset, or a plain folder of pictures as partition 0, sorted by key bytes.

    A folder that holds archives (tar, zip, TFRecord, Parquet or Arrow files) and no other pictures, or a single archive, is
    partition 0 as well, in the order of the archives. `labels`, for a plain folder, is "folders" or the path of a table, as
    find_labels takes it; without it labels are null, but for those that archives have. `image_column` and `label_column` are
    those of Parquet and Arrow files where their names and types do not say it. Raises RunError if the partitions are incomplete
    or inconsistent (a missing number, a manifest that does not match dataset.json, an unknown numbered folder, an unfinished
    partition_dataset), UsageError if there are no pictures.
    """
    data_dir = user_path(data_dir, "data_dir")
    columns = wanted_columns(image_column, label_column)
    if address := address_of(data_dir):
        return _stored_dataset(data_dir, address, labels, columns)
    root = os.fsencode(data_dir)
    if carries_dataset(root):
        for flag, value in (("labels", labels), ("image_column", image_column), ("label_column", label_column)):
            if value:
                raise UsageError(f"--{flag} is for a plain folder: give it to partition_dataset, which made {shown(data_dir)}")
        return _open_partitions(data_dir)
    if carries_manifest(root):
        raise UsageError(f"{shown(data_dir)} is one partition of a data set: give the folder above it")
    if os.path.isdir(root):
        _refuse_undescribed(data_dir)
    if is_archive_file(data_dir):
        return _dataset_of_archives(data_dir, None, labels, columns)
    scan = scan_folder(data_dir)
    if scan.archives and not scan.pictures:
        return _dataset_of_archives(data_dir, scan, labels, columns)
    refuse_columns(columns, scan.shown_root)
    if not scan.pictures:
        raise UsageError(f"{no_pictures(scan)}: give a folder of pictures, or one made by partition_dataset")
    warn_of_archives(scan)
    found = find_labels(labels, scan) if labels else Labels(lambda _key: None, {})
    for line in found.lines:
        log.info(line)
    entries = (Entry(picture.key, picture.size_bytes, found.of(picture.key)) for picture in scan.pictures)
    manifest = Manifest.from_entries(entries, scan.root)
    partitions = (Partition(0, manifest, scan.root),)
    source = f"pictures in {printable(scan.root)}"
    return Dataset(data_dir, partitions, source, _hash_over_all(partitions), scan, is_listed=False,
                   label_classes=named_classes(found.facts.get("classes")))  # fmt: skip


def _stored_dataset(data_dir: Path, address: str, labels: str, columns: tuple[str, ...]) -> Dataset:
    """The pictures below an address, or those in archives there, as partition 0."""
    if is_archive_file(address):
        return _dataset_of_archives(data_dir, None, labels, columns)
    found = list_stored(address)
    if found.scan.archives and not len(found.lines):
        return _dataset_of_archives(data_dir, found.scan, labels, columns)
    if not len(found.lines):
        raise no_stored_pictures(found.scan)
    refuse_columns(columns, found.scan.shown_root)
    warn_of_archives(found.scan)
    lines, facts = found.lines, dict[str, Any]()
    if labels:
        lines, given = with_labels(found, labels)
        facts = {"labels": given.facts}
        found.scan.lines += given.lines
    manifest = Manifest.from_entries(lines, found.root)
    partitions = (Partition(0, manifest, found.root),)
    source = f"pictures in {printable(found.root)}"
    return Dataset(data_dir, partitions, source, _hash_over_all(partitions), found.scan, is_listed=False,
                   label_classes=_classes_in(facts))  # fmt: skip


def with_labels(found: StoredPictures, labels: str) -> tuple[StoredLines, Labels]:
    """The pictures of a store with the labels that `labels` asks for, as find_labels takes it."""
    given = find_labels(labels, found.with_names())
    values = (given.of(key) for key in found.lines.all_keys())
    numbers = np.fromiter((-1 if label is None else label for label in values), np.int32, len(found.lines))
    return replace(found.lines, labels=numbers), given


def _dataset_of_archives(data_dir: Path, folder: Scan | None, labels: str, columns: tuple[str, ...]) -> Dataset:
    """The pictures of archives as partition 0, in the order of the archives."""
    found = open_archives(data_dir, folder, labels=labels, columns=columns)
    manifest = Manifest.from_entries(found.lines, found.root, "manifest", found.archives)
    partitions = (Partition(0, manifest, found.root),)
    source = f"pictures in {counted(len(found.archives), 'archive')} of {printable(found.root)}"
    return Dataset(data_dir, partitions, source, _hash_over_all(partitions), found.scan, is_listed=False,
                   label_classes=_classes_in(found.facts))  # fmt: skip


def _classes_in(facts: Mapping[str, Any]) -> dict[int, str]:
    """The names of classes in the content of dataset.json, or in what would be put there."""
    return named_classes(facts.get("labels", {}).get("classes"))


def warn_of_archives(scan: Scan) -> None:
    """Log a warning about archives that lie beside pictures and are not read."""
    if archives := [name for name in scan.archives if kind_by_name(name) != COMPRESSED]:
        log.warning(
            f"warning: not read: {first_names(archives)} in {scan.shown_root}, which holds pictures as well: to read archives, "
            "give a folder without other pictures"
        )


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


def no_stored_pictures(scan: Scan) -> UsageError:
    """The error of an address below which there are no pictures, which may be that of one object."""
    address, folder = scan.root.decode(), os.path.dirname(scan.root.decode())
    if address_of(folder) and not scan.not_pictures and not scan.unreadable:
        with contextlib.suppress(ObjectError):
            find_object(address)
            return UsageError(f"{scan.shown_root} is one object: give the address that it lies below, {shell_word(folder)}")
    return UsageError(f"{no_pictures(scan)}: give an address below which there are pictures or archives")


def _hash_over_all(partitions: tuple[Partition, ...]) -> str:
    hashes = [partition.manifest.content_hash for partition in partitions]
    # Two columns of one file may have pictures of the same names and sizes.
    archives = (archive for partition in partitions for archive in partition.manifest.archives)
    columns = sorted({archive.columns for archive in archives if archive.columns})
    return hashlib.sha256(canonical_json([hashes, columns] if columns else hashes).encode()).hexdigest()


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
    changed = [name for partition in partitions for name in changed_archives(partition.manifest)]
    if changed:
        warn_of_changes(changed)
        partitions = [
            replace(each, manifest=found_again(each.manifest)) if each.manifest.archives else each for each in partitions
        ]
    source = printable(described["source"].encode("utf-8", "backslashreplace"))
    source = f"{source} in {counted(len(hashes), 'partition')}"
    return Dataset(data_dir, tuple(partitions), source, _hash_over_all(tuple(partitions)), is_listed=not changed,
                   label_classes=_classes_in(described))  # fmt: skip
