"""Partitions on disk: <output>/0, 1, ... published whole, repaired where they exist, never half-made.

A new partition is built in a temporary folder, manifest first, and renamed into place; one that is no longer wanted is
renamed away before it is emptied, manifest last. So a folder with a number is whole, whatever was killed when, and every
folder that is removed carries our manifest. dataset.json comes last: without it, or where it does not fit the manifests,
the data set is not finished.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.entries import Entries, Entry
from inference.errors import LockedError, RunError, UsageError
from inference.links import Linker
from inference.manifest import Manifest, shown
from inference.markers import (
    DATASET_CONTENT,
    DATASET_FILE,
    MANIFEST_FILE,
    carries_dataset,
    carries_manifest,
    link_name,
    numbered_entries,
)
from inference.paths import (
    FORMAT,
    TEMPORARY_PREFIX,
    fsync_directory,
    is_running,
    read_json,
    remove_stale_temporaries,
    temporary_owner,
    temporary_path,
    write_json,
)
from inference.types import printable


@dataclass
class Published:
    """What one run did to an output: records and bytes of each partition, partition numbers, links by kind, and the ways
    that were not possible."""

    sizes: list[int] = field(default_factory=list)
    sizes_bytes: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    repaired: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    fallbacks: list[str] = field(default_factory=list)
    left_over: list[bytes] = field(default_factory=list)


def check_places(source: bytes, output: bytes) -> None:
    """Refuse, before anything is read or written, to partition an output of ours, or a folder into itself."""
    source, output = os.path.realpath(source), os.path.realpath(output)
    if source == output:
        raise UsageError(f"--output {printable(output)} is the folder of the pictures itself: give another")
    if carries_dataset(source) or carries_manifest(source):
        raise UsageError(f"{printable(source)} was made by partition_dataset: give the folder of the pictures themselves")
    inside = re.match(re.escape(output) + rb"/([0-9]+)(?:/|\Z)", source)
    if inside:
        raise UsageError(
            f"{printable(source)} lies where partition {inside[1].decode()} of {printable(output)} belongs: "
            "give another --output"
        )


def publish_partitions(
    output: Path, source: bytes, mode: str, entries: Entries, intervals: Sequence[tuple[int, int]], facts: dict[str, Any]
) -> Published:
    """Make `output` hold exactly these partitions, doing only what is not there yet; `facts` go into dataset.json.

    `source` is the real path of the pictures, `entries` are sorted by key, `intervals` [start, end) cover them. Raises
    UsageError, before anything is touched, if something in `output` that is not ours is in the way.
    """
    published = Published()
    linker = Linker(source, mode) if mode != "manifest" else None
    output.mkdir(parents=True, exist_ok=True)
    with _only_one(output) as is_locked:
        _refuse_foreign(output)
        published.left_over = _remove_abandoned(output, is_locked)
        partitions: list[dict[str, Any]] = []
        for index, (start, end) in enumerate(intervals):
            final = output / str(index)
            root = source if linker is None else os.path.abspath(os.fsencode(final))
            present = _identity(final)  # read before ours is made: two tables of ten million records are a gigabyte
            manifest = Manifest.from_entries(entries[start:end], root, mode)
            if present == (manifest.content_hash, mode, root):
                published.repaired += _repair(final, manifest, linker, published.ways)
            else:
                _write(final, manifest, linker, published.ways)
                published.written.append(index)
            published.sizes.append(manifest.num_records)
            published.sizes_bytes.append(manifest.size_bytes())
            size = {"records": published.sizes[-1], "size_bytes": published.sizes_bytes[-1]}
            partitions.append({"index": index, **size, "content_hash": manifest.content_hash})
        for index, path in sorted(numbered_entries(os.fsencode(output)).items()):
            if index >= len(intervals):
                _empty(_move_away(Path(os.fsdecode(path))))
                published.removed.append(index)
        described = {"content": DATASET_CONTENT, **facts, "mode": mode, "ways": dict(sorted(published.ways.items()))}
        _describe(output / DATASET_FILE, {**described, "partitions": partitions})
    published.fallbacks = linker.fallbacks if linker is not None else []
    return published


def _describe(path: Path, value: dict[str, Any]) -> None:
    if not path.exists() or read_json(path) != {"format": FORMAT, **value}:
        write_json(path, value)


@contextmanager
def _only_one(output: Path) -> Iterator[bool]:
    """Keep a second partition_dataset out of `output` while the block runs; the kernel ends the lock with the process.

    Yields False on a file system without locks: two runs at once are then up to the user.
    """
    descriptor, is_locked = os.open(output, os.O_RDONLY | os.O_DIRECTORY), True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise LockedError(f"another partition_dataset is working on {shown(output)}: wait for it, or stop it") from None
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            os.close(descriptor)
            raise
        is_locked = False
    try:
        yield is_locked
    finally:
        os.close(descriptor)


def _refuse_foreign(output: Path) -> None:
    """Raise UsageError if something that we did not write has a name that we need."""
    described = output / DATASET_FILE
    ours = carries_dataset(os.fsencode(output))
    if described.exists() and not ours:
        raise UsageError(f"{shown(described)} was not written by partition_dataset: give another --output")
    known = len(read_json(described).get("partitions", [])) if ours else 0
    for index, path in sorted(numbered_entries(os.fsencode(output)).items()):
        damaged = index < known and os.path.isfile(os.path.join(path, MANIFEST_FILE.encode()))
        if not carries_manifest(path) and not damaged:
            raise UsageError(
                f"{printable(path)} was not made by partition_dataset (it has no manifest of ours): "
                "move it away, or give another --output"
            )


def _identity(final: Path) -> tuple[str, str, bytes] | None:
    """Content hash, mode and root of the whole manifest in `final`; None if there is none."""
    if not final.is_dir():
        return None
    try:
        present = Manifest.read(final / MANIFEST_FILE)
    except RunError:  # damaged: made again
        return None
    return present.content_hash, present.mode, present.root


def _write(final: Path, manifest: Manifest, linker: Linker | None, ways: Counter[str]) -> None:
    """Build a partition beside `final` and swap it in."""
    built = temporary_path(final)
    built.mkdir()
    try:
        manifest.write(built / MANIFEST_FILE)
        if linker is not None:
            _fill(built, manifest, linker, ways)
        away = _move_away(final) if final.exists() else None
        built.rename(final)
    except BaseException:
        if built.exists():
            _empty(built)
        raise
    fsync_directory(final.parent)
    if away is not None:
        _empty(away)


def _fill(built: Path, manifest: Manifest, linker: Linker, ways: Counter[str]) -> None:
    root = os.fsencode(built)
    made = {b""}
    for entry, is_missing in _present_first(manifest):
        name = link_name(entry.key)
        try:
            _make_folder(root, name.rpartition(b"/")[0], made)
            ways[linker.put(entry.key, os.path.join(root, name), is_missing=is_missing)] += 1
        except (FileExistsError, NotADirectoryError):
            if not is_missing:
                raise
            ways["none"] += 1  # the name of a missing picture is that of a folder: its record cannot be read either way


def _present_first(manifest: Manifest) -> Iterator[tuple[Entry, bool]]:
    """Pictures, then missing ones, whose names must not get in the way of a folder."""
    yield from ((entry, False) for entry in manifest.entries() if entry.size_bytes is not None)
    yield from ((entry, True) for entry in manifest.entries() if entry.size_bytes is None)


def _make_folder(root: bytes, folder: bytes, made: set[bytes]) -> None:
    if folder not in made:
        os.makedirs(os.path.join(root, folder), exist_ok=True)
        made.add(folder)


def _repair(final: Path, manifest: Manifest, linker: Linker | None, ways: Counter[str]) -> int:
    """Check every link or copy of a partition; make again what is missing or leads elsewhere. Returns how many."""
    if linker is None:
        return 0
    root, repaired, made = os.fsencode(final), 0, {b""}
    for entry, is_missing in _present_first(manifest):
        name = link_name(entry.key)
        destination = os.path.join(root, name)
        way = linker.way_of(entry.key, destination, is_missing=is_missing)
        if way is None and is_missing and os.path.isdir(destination):
            way = "none"
        if way is None:
            _make_folder(root, name.rpartition(b"/")[0], made)
            temporary = os.fsencode(temporary_path(final))
            way = linker.put(entry.key, temporary, is_missing=is_missing)
            os.rename(temporary, destination)
            repaired += 1
        ways[way] += 1
    return repaired


def _move_away(partition: Path) -> Path:
    """Take the number from a partition of ours: under its number it is there whole, or not at all."""
    assert os.path.isfile(partition / MANIFEST_FILE), partition
    away = temporary_path(partition)
    return partition.rename(away)


def _empty(directory: Path) -> None:
    """Remove a partition that has no number; the manifest, by which it is known as ours, goes last."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name != MANIFEST_FILE:
                os.unlink(entry.path)
    (directory / MANIFEST_FILE).unlink(missing_ok=True)
    directory.rmdir()


def _remove_abandoned(output: Path, is_locked: bool) -> list[bytes]:
    """Remove what a killed run left behind; returns the folders that look like it but hold no manifest of ours.

    Under the lock nobody else can be at work here; without it the process that a name tells must be gone.
    """
    kept = []
    for path in sorted(output.glob(f"{TEMPORARY_PREFIX}*")):
        owner = temporary_owner(path.name)
        if owner is None or (not is_locked and is_running(owner)):
            continue
        if not path.is_dir() or path.is_symlink():
            path.unlink()
        elif carries_manifest(os.fsencode(path)):
            _empty(path)
        else:
            remove_stale_temporaries(path)  # of a manifest that was being written
            try:
                path.rmdir()
            except OSError:
                kept.append(os.fsencode(path))
    return kept
