"""Partitions on disk: <output>/0, 1, ... are published complete, and repaired where they exist.

A new partition is built in a temporary folder, manifest first, and renamed into place. One that is no longer wanted is
renamed away before it is emptied, manifest last. So a folder with a number is complete even after a kill, and a folder that
is removed has a manifest and holds nothing that the manifest does not name. dataset.json is written last: without it, or
where it does not match the manifests, the data set is not finished.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bulkinfer.errors import LockedError, RunError, UnreadableError, UsageError, advising
from bulkinfer.files.atomic import TEMPORARY_PREFIX, fsync_directory, remove_stale_temporaries, temporary_owner, temporary_path
from bulkinfer.files.guarded import open_regular
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.files.user_path import made_folder
from bulkinfer.records.dataset import MAKE_AGAIN, read_description
from bulkinfer.records.layout import (
    DATASET_CONTENT,
    DATASET_FILE,
    MANIFEST_FILE,
    carries_dataset,
    carries_manifest,
    everything_in,
    link_name,
    numbered_entries,
    remove_tree,
)
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_file import shown
from bulkinfer.records.manifest_rows import Entries, as_lines, content_hash
from bulkinfer.records.partitions.links import Linker, Place, belongs_to
from bulkinfer.types import Archive, printable


@dataclass
class Published:
    """What one run did to an output: records and bytes of each partition, numbers of written and removed partitions, links
    by kind, fallbacks, and folders that it left alone."""

    sizes: list[int] = field(default_factory=list)
    sizes_bytes: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    repaired: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    fallbacks: list[str] = field(default_factory=list)
    left_over: list[bytes] = field(default_factory=list)


def publish_partitions(
    output: Path, source: bytes, mode: str, entries: Entries, intervals: Sequence[tuple[int, int]], facts: dict[str, Any],
    archives: tuple[Archive, ...] = (),
) -> Published:  # fmt: skip
    """Make `output` hold exactly these partitions, writing only what is missing; `facts` go into dataset.json.

    `source` is the real path of the pictures, `entries` are sorted by key, `intervals` [start, end) cover them. `archives` of
    `source` hold the pictures if they have no files of their own. Raises UsageError, before anything is changed, if files of
    the user in `output` are in the way.
    """
    published = Published()
    linker = Linker(source, mode) if mode != "manifest" else None
    with made_folder(output), only_one(output) as is_locked:
        _refuse_foreign(output)
        staying = _staying(output, source, mode, entries, intervals, archives)
        published.left_over = _remove_abandoned(output, is_locked)
        partitions: list[dict[str, Any]] = []
        for index, (start, end) in enumerate(intervals):
            final = output / str(index)
            root = _root(final, source, mode)
            if index in staying:
                manifest = Manifest(as_lines(entries[start:end]), root, mode, staying[index], archives)
                if linker is not None:
                    beside = os.fsencode(temporary_path(final))
                    published.repaired += linker.repair(root, _places(manifest), published.ways, beside)
            else:
                manifest = Manifest.from_entries(entries[start:end], root, mode, archives)
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
    with advising(MAKE_AGAIN):
        is_same = path.exists() and read_json(path) == json.loads(json.dumps(value))
    if not is_same:
        write_json(path, value)


@contextmanager
def only_one(output: Path) -> Iterator[bool]:
    """Keep a second partition_dataset out of `output` while the block runs; the kernel releases the lock with the process.

    Yields False on a file system without locks: the user must then not start two runs at once.
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
    """Raise UsageError if a file or folder that partition_dataset did not write has a name that it needs."""
    described, known = output / DATASET_FILE, 0
    if carries_dataset(os.fsencode(output)):
        known = len(read_description(described)["partitions"])
    elif described.exists():
        if described.is_file():
            open_regular(described).close()  # raises PermissionError if it is not readable
        raise UsageError(
            f"{shown(described)} was not written by partition_dataset, or is damaged: move it away, or give another --output"
        )
    for index, path in sorted(numbered_entries(os.fsencode(output)).items()):
        damaged = index < known and os.path.isfile(os.path.join(path, MANIFEST_FILE.encode()))
        if not carries_manifest(path) and not damaged:
            raise UsageError(
                f"{printable(path)} was not made by partition_dataset (it holds no manifest): "
                "move it away, or give another --output"
            )


def _root(final: Path, source: bytes, mode: str) -> bytes:
    return source if mode == "manifest" else os.path.abspath(os.fsencode(final))


def _staying(
    output: Path,
    source: bytes,
    mode: str,
    entries: Entries,
    intervals: Sequence[tuple[int, int]],
    archives: tuple[Archive, ...],
) -> dict[int, str]:
    """The existing partitions that need no change: number -> content hash.

    All other existing ones are made again or removed: raises UsageError if one holds a file of the user.
    """
    staying = {}
    for index, path in sorted(numbered_entries(os.fsencode(output)).items()):
        final = output / str(index)
        start, end = intervals[index] if index < len(intervals) else (0, -1)
        manifest = _manifest_of(final)
        wanted = (mode, _root(final, source, mode), end - start, archives)
        if (
            manifest is not None
            and (manifest.mode, manifest.root, manifest.num_records, manifest.archives) == wanted
            and content_hash(as_lines(entries[start:end])) == manifest.content_hash
        ):
            staying[index] = manifest.content_hash
            continue
        _refuse_strangers(path, manifest, source)
    return staying


def _manifest_of(final: Path) -> Manifest | None:
    """The manifest of a partition; None if it is damaged."""
    try:
        return Manifest.read(final / MANIFEST_FILE)
    except UnreadableError:
        raise
    except RunError:
        return None


def _refuse_strangers(partition: bytes, manifest: Manifest | None, source: bytes) -> None:
    """Raise UsageError if a partition holds anything but its manifest, files or links at the names of its records, their
    folders, and temporary files. Without a manifest, links into `source` and names of its files are accepted.
    """
    linked = () if manifest is None or manifest.mode == "manifest" else manifest.entries()
    names, folders = {link_name(entry.key) for entry in linked}, set[bytes]()
    for name in names:
        while (name := name.rpartition(b"/")[0]) and name not in folders:
            folders.add(name)
    for name, is_folder in everything_in(partition):
        if name in (folders if is_folder else names) or name == MANIFEST_FILE.encode():
            continue
        if not is_folder and temporary_owner(os.fsdecode(name)):
            continue
        if manifest is None and belongs_to(source, name, os.path.join(partition, name)):
            continue
        stranger = printable(os.path.join(partition, name))
        if manifest is None:
            damaged = printable(os.path.join(partition, MANIFEST_FILE.encode()))
            raise UsageError(f"{stranger} may not come from partition_dataset ({damaged} is damaged): move it away")
        raise UsageError(f"{stranger} was not put there by partition_dataset: move it away")


def _write(final: Path, manifest: Manifest, linker: Linker | None, ways: Counter[str]) -> None:
    """Build a partition beside `final` and swap it in."""
    built = temporary_path(final)
    try:
        built.mkdir()
        manifest.write(built / MANIFEST_FILE)
        if linker is not None:
            linker.fill(os.fsencode(built), _places(manifest), ways)
        away = _move_away(final) if final.exists() else None
        built.rename(final)
    except BaseException:
        if built.exists():
            _empty(built)
        raise
    fsync_directory(final.parent)
    if away is not None:
        _empty(away)


def _places(manifest: Manifest) -> Iterator[Place]:
    """Pictures, then missing ones: the name of a missing one must not block a folder."""
    for is_missing in (False, True):
        for entry in manifest.entries():
            if (entry.size_bytes is None) == is_missing:
                yield Place(entry.key, link_name(entry.key), is_missing)


def _move_away(partition: Path) -> Path:
    """Rename a partition away from its number, under which it must be complete or absent."""
    assert os.path.isfile(partition / MANIFEST_FILE), partition
    away = temporary_path(partition)
    return partition.rename(away)


def _empty(directory: Path) -> None:
    """Remove a partition that has no number; the manifest goes last, because it marks the folder as a partition."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                remove_tree(os.fsencode(entry.path))
            elif entry.name != MANIFEST_FILE:
                os.unlink(entry.path)
    (directory / MANIFEST_FILE).unlink(missing_ok=True)
    directory.rmdir()


def _remove_abandoned(output: Path, is_locked: bool) -> list[bytes]:
    """Remove what a killed run left behind; returns folders that look like it but hold no manifest.

    Under the lock no other process works here. Without it, the process named by a temporary name must have ended.
    """
    kept = []
    for path in sorted(output.glob(f"{TEMPORARY_PREFIX}*")):
        owner = temporary_owner(path.name)
        if owner is None or (not is_locked and not owner.is_gone):
            continue
        if not path.is_dir() or path.is_symlink():
            path.unlink()
        elif carries_manifest(os.fsencode(path)):
            _empty(path)
        else:
            remove_stale_temporaries(path)  # a manifest that was being written
            try:
                path.rmdir()
            except OSError:
                kept.append(os.fsencode(path))
    return kept
