"""partition_dataset --mode tar and tfrecord: pictures packed into archives of a wanted size, with their labels.

Archives are called NAME-00000-of-00012, as TensorFlow names them, with .tar behind it for tar files, which are those of
WebDataset. Pictures stay in the order of their keys. labels.txt beside the archives has the names of the classes.
"""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from bulkinfer.config import PartitionConfig
from bulkinfer.errors import RecordError, RunError, UsageError
from bulkinfer.files.addresses import address_of
from bulkinfer.files.atomic import publishing, remove_stale_temporaries, safe_name
from bulkinfer.files.guarded import read_bytes
from bulkinfer.files.user_path import made_folder
from bulkinfer.records.archives.archive_dataset import ArchiveLines
from bulkinfer.records.archives.archive_index import open_index
from bulkinfer.records.archives.archive_labels import LABELS_FILE, listed_names, read_labels
from bulkinfer.records.find_records import Found, log_lines
from bulkinfer.records.layout import carries_dataset
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_rows import KEY_COLUMNS, ROWS, Entry, as_lines, raw_key_column
from bulkinfer.records.partitions.partition import only_one
from bulkinfer.records.place import is_stored
from bulkinfer.records.read_place import read_place
from bulkinfer.records.sources.archive_names import COUNTED
from bulkinfer.records.sources.archives import PackedPicture, write_archive
from bulkinfer.records.sources.folder import counted, first_names
from bulkinfer.types import Place, printable, printable_path

log = logging.getLogger("bulkinfer")

_SPLITS = {"train": "train", "val": "validation", "valid": "validation", "validation": "validation", "test": "test"}
_ENDS = {"tar": ".tar", "tfrecord": ""}
_AROUND = 2048  # bytes around a picture in an archive
_AT_ONCE, _HELD_BYTES = 64, 256 << 20  # pictures of a store that are read at once, and bytes of them that are held
_MOST_BYTES = (1 << 31) - (1 << 20)  # of a picture: a TFRecord takes no more


@dataclass(frozen=True, slots=True)
class _Archive:
    """One archive to be: its name, and the range [start, end) of the entries in it."""

    name: str
    start: int
    end: int


def pack_archives(config: PartitionConfig, found: Found) -> bool:
    """Pack the pictures of `found` into archives in --output; True if all could be packed.

    What is there already stays. Raises UsageError if archives of another packing, or partitions, are in the way, RunError if a
    picture cannot be read.
    """
    output = Path(config.output)
    if carries_dataset(os.fsencode(output)):
        raise UsageError(f"--output {printable_path(output)} holds partitions: give another folder for the archives")
    with made_folder(output), only_one(output):
        remove_stale_temporaries(output)
        label_of = _labels(found, output)
        archives = _planned(config, found)
        there = _refuse_others(output, archives)
        new = [archive for archive in archives if archive.name not in there or not _holds(output, archive, found, label_of)]
        _write_labels(output, label_of)
        for number, archive in enumerate(new, 1):
            _write(config.mode, output / archive.name, found.root, _entries(found, archive), label_of)
            log.info(
                f"  {archive.name}: {counted(archive.end - archive.start, 'picture')}; {number:,} of {len(new):,} archives"
            )
        open_index(os.fsencode(os.path.realpath(output)), [archive.name.encode() for archive in archives])
    missing = _missing(found)
    done = f"packed {counted(len(found.entries) - len(missing), 'picture')} into {counted(len(archives), 'archive')}"
    log_lines([f"{done} of {printable_path(output)}" if new else "nothing to do: all archives exist already"])
    if missing:
        log.warning(f"left out, missing or not accessible: {counted(len(missing), 'picture')}: {first_names(missing)}")
    return not missing and not found.unread


def _missing(found: Found) -> list[bytes]:
    """The keys of pictures that are not there, and of records without one."""
    without = list[bytes]()
    for start in range(0, len(found.entries), ROWS):
        lines = as_lines(found.entries[start : start + ROWS])
        for block in lines.blocks([*KEY_COLUMNS, "size_bytes"], 0, len(lines)):
            without += raw_key_column(block).filter(pc.is_null(block["size_bytes"])).to_pylist()
    return without


@dataclass(frozen=True, slots=True)
class _Labels:
    """What the label of an entry is in the archives, and the names of all classes there."""

    numbers: dict[int, int]
    names: tuple[str, ...]

    def of(self, entry: Entry) -> int | None:
        """The label of an entry in its archive."""
        return None if entry.label is None else self.numbers[entry.label]


def _labels(found: Found, output: Path) -> _Labels:
    """The classes of labels.txt if that is there, else those of the pictures."""
    labels: dict[str, Any] = found.facts.get("labels") or {}
    classes = {int(number): str(name) for number, name in labels.get("classes", ())}
    if not classes:
        return _Labels({}, ())
    if not (listed := listed_names(os.fsencode(output / LABELS_FILE))):
        return _Labels({number: number for number in classes}, tuple(classes.get(n, str(n)) for n in range(max(classes) + 1)))
    numbers = {name: number for number, name in listed.items()}
    if unknown := sorted(name for name in classes.values() if name not in numbers):
        shown = printable(unknown[0].encode())
        raise UsageError(
            f"{printable_path(output / LABELS_FILE)} lacks the class {shown} of these pictures: pack the pictures of all "
            "classes first, or give another --output"
        )
    return _Labels({number: numbers[name] for number, name in classes.items()}, tuple(listed[n] for n in sorted(listed)))


def _planned(config: PartitionConfig, found: Found) -> list[_Archive]:
    """The archives, each of at most the wanted size unless one picture is larger."""
    starts, held, count = [0], 0, len(found.entries)
    for number, size_bytes in enumerate(found.sizes_bytes):
        size = (size_bytes or 0) + _AROUND
        if held and held + size > config.archive_mb * 1_000_000:
            starts.append(number)
            held = 0
        held += size
    name = os.path.basename(os.fsdecode(found.root))
    stem, end = _SPLITS.get(name.lower(), safe_name(name) or "pictures"), _ENDS[config.mode]
    return [
        _Archive(f"{stem}-{number:05d}-of-{len(starts):05d}{end}", start, stop)
        for number, (start, stop) in enumerate(zip(starts, [*starts[1:], count], strict=True))
    ]


def _refuse_others(output: Path, archives: Sequence[_Archive]) -> set[str]:
    """The names of the archives that are there. Raises UsageError for those of another packing of the same pictures."""
    wanted = {archive.name for archive in archives}
    stem = re.sub(r"[0-9]+-of-.*", "", archives[0].name)
    there = {path.name for path in output.iterdir()}
    for name in sorted(there - wanted):
        match = COUNTED.fullmatch(os.fsencode(name))
        if match and os.fsdecode(match["stem"]) == stem:
            raise UsageError(
                f"--output {printable_path(output)} holds {printable_path(name)} of another packing, by --archive_mb or "
                "--mode, or of other pictures: remove it, or give another --output"
            )
    return there & wanted


def _entries(found: Found, archive: _Archive) -> Iterator[tuple[Entry, Place]]:
    """The entries of an archive that have a picture, and where that lies."""
    for start in range(archive.start, archive.end, ROWS):
        lines = as_lines(found.entries[start : min(start + ROWS, archive.end)])
        manifest = Manifest(lines, found.root, "manifest", "", found.archives)
        for entry, record in zip(manifest.entries(), manifest.records(), strict=True):
            if entry.size_bytes is not None:
                yield entry, record.place


def _holds(output: Path, archive: _Archive, found: Found, labels: _Labels) -> bool:
    """Whether the archive that is there holds these pictures, by their sizes and labels, in this order."""
    try:
        index = open_index(os.fsencode(os.path.realpath(output)), [archive.name.encode()])
        lines = ArchiveLines(index, read_labels(index))
    except UsageError:  # damaged
        return False
    blocks = lines.blocks(["size_bytes", "label"], 0, len(lines))
    there = [pair for block in blocks for pair in zip(*(column.to_pylist() for column in block.columns), strict=True)]
    return there == [(entry.size_bytes, labels.of(entry)) for entry, _ in _entries(found, archive)]


def _write(mode: str, path: Path, root: bytes, entries: Iterator[tuple[Entry, Place]], labels: _Labels) -> None:
    """Publish an archive, whole or not at all."""

    def pictures() -> Iterator[PackedPicture]:
        for entry, data in _contents(root, entries):
            label = labels.of(entry)
            yield PackedPicture(entry.key, data, label, "" if label is None else labels.names[label])

    with publishing(path) as temporary, temporary.open("wb") as file:
        write_archive(mode, file, pictures())


def _contents(root: bytes, entries: Iterator[tuple[Entry, Place]]) -> Iterator[tuple[Entry, bytes]]:
    """Entries with their pictures; of a store many are read at once, within bounds of memory."""
    if not is_stored(root):
        yield from ((entry, _content(entry.key, place)) for entry, place in entries)
        return
    coming, held = deque[tuple[Entry, Future[bytes]]](), 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for entry, place in entries:
            size = entry.size_bytes or 0
            while coming and (len(coming) >= 2 * _AT_ONCE or held + size > _HELD_BYTES):
                held -= coming[0][0].size_bytes or 0
                first, content = coming.popleft()
                yield first, content.result()
            held += size
            coming.append((entry, pool.submit(_content, entry.key, place)))
        yield from ((first, content.result()) for first, content in coming)


def _content(key: bytes, place: Place) -> bytes:
    """The bytes of a picture, wherever it lies."""
    name = printable(place if isinstance(place, bytes) else key)
    try:
        if isinstance(place, bytes) and not address_of(place):
            return read_bytes(os.fsdecode(place), _MOST_BYTES, error=RunError)
        return read_place(place, _MOST_BYTES)
    except OSError as error:
        reason = error.strerror or str(error)
    except RecordError as error:
        if error.stage == "decode":  # it is empty, which an archive may hold as a folder does
            return b""
        reason = error.message
    raise RunError(f"{name} cannot be read ({reason}): repair or remove it, and run this again")


def _write_labels(output: Path, labels: _Labels) -> None:
    path = output / LABELS_FILE
    if labels.names and not path.exists():
        with publishing(path) as temporary:
            temporary.write_text("".join(f"{name}\n" for name in labels.names))
