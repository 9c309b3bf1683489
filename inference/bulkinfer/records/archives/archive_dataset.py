"""Archives as the records of a data set: in the order of their archives, with the labels that the archives have."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import address_of, whole_path
from bulkinfer.host.number_text import size_text
from bulkinfer.records.archives.archive_index import ArchiveIndex, open_index
from bulkinfer.records.archives.archive_labels import ArchiveLabels, read_labels
from bulkinfer.records.manifest_rows import KEY_COLUMNS, ROWS, LinesPart, filled_table, given_labels, lines_part, raw_key_column
from bulkinfer.records.sources.archive_names import COMPRESSED, kind_by_name
from bulkinfer.records.sources.archives import TABLES, check_names
from bulkinfer.records.sources.folder import Picture, Scan, counted
from bulkinfer.records.sources.labels import find_labels
from bulkinfer.types import Archive, printable

_OWN_COLUMNS = ("key", "key_bytes", "size_bytes", "archive", "offset", "span")  # as the index has them


@dataclass(frozen=True, eq=False)
class ArchiveLines:
    """The pictures of an index as the lines of a manifest. `labels` are given, one for each line (-1: none), or its own."""

    index: ArchiveIndex
    own_labels: ArchiveLabels
    labels: np.ndarray[Any, np.dtype[np.int32]] | None = None

    def __len__(self) -> int:
        return len(self.index.lines)

    def __getitem__(self, part: slice) -> LinesPart:
        return lines_part(self, part)

    def blocks(self, columns: Sequence[str], start: int, end: int) -> Iterator[pa.Table]:
        """The lines start..end (exclusive) with these columns of ARCHIVE_SCHEMA."""
        wanted = [name for name in _OWN_COLUMNS if name in columns]
        has_labels = "label" in columns
        of_labels = (["label"] if self.own_labels.by_name is None else ["class_name"]) if has_labels else []
        if not wanted and not of_labels:  # all of these columns are null: nothing is read
            for first in range(start, end, ROWS):
                yield filled_table({}, columns, min(ROWS, end - first))
            return
        for table in self.index.lines.blocks([*wanted, *of_labels], start, end):
            given = {name: table[name] for name in wanted}
            if has_labels:
                given["label"] = self._labels(table, start)
            start += len(table)
            yield filled_table(given, columns, len(table))

    def _labels(self, table: pa.Table, start: int) -> pa.Array | pa.ChunkedArray:
        if self.labels is None:
            return self.own_labels.column(table)
        return given_labels(self.labels, start, len(table))

    def sizes_bytes(self) -> Iterator[int]:
        """Size of each picture in bytes, in order; 0 where it is not known."""
        for table in self.blocks(["size_bytes"], 0, len(self)):
            yield from table["size_bytes"].fill_null(0).to_pylist()


@dataclass(frozen=True, eq=False)
class ArchivePictures:
    """The pictures of some archives below the folder `root`, as a data set takes them; `facts` are for dataset.json."""

    root: bytes
    archives: tuple[Archive, ...]
    lines: ArchiveLines
    scan: Scan
    facts: dict[str, Any]


def is_archive_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a file called like an archive."""
    return bool(kind_by_name(os.fsencode(path))) and (bool(address_of(path)) or os.path.isfile(path))


def archive_root(data_dir: str | bytes | os.PathLike[str]) -> bytes:
    """The folder that archives are named relative to: `data_dir`, or that of a single archive."""
    if address_of(data_dir):
        place = whole_path(data_dir)
        return os.path.dirname(place) if kind_by_name(place) else place
    place = os.path.realpath(os.fsencode(data_dir))
    return os.path.dirname(place) if os.path.isfile(place) else place


def wanted_columns(image_column: str, label_column: str) -> tuple[str, ...]:
    """Columns that the user named, as an Archive has them."""
    return (image_column, label_column) if image_column or label_column else ()


def refuse_columns(columns: tuple[str, ...], shown: str) -> None:
    """Raises UsageError if a column is named, as wanted_columns gives them, for pictures that lie in no table."""
    if columns:
        flag = "--image_column" if columns[0] else "--label_column"
        raise UsageError(
            f"{flag} is for files with columns (Parquet, Arrow, CSV, JSON Lines), and {shown} has none: leave it out"
        )


def open_archives(data_dir: Path, folder: Scan | None, *, labels: str = "", columns: tuple[str, ...] = ()) -> ArchivePictures:
    """The pictures of the archives that the scan `folder` found, or, without it, of the single archive `data_dir`.

    What the scan could not read, archives or folders, is in the scan of the result too.

    `labels` is "folders" (those in which the archives hold the pictures) or the path of a table, in place of the archives' own
    labels; `columns` are those of an Archive. Raises UsageError if an archive is missing, damaged or compressed, if none holds
    a picture, or for wrong labels or columns.
    """
    root = archive_root(data_dir)
    if folder:
        names = folder.archives
        check_names(root, [*names, *_unreadable_archives(folder)])
    else:
        place = whole_path(data_dir) if address_of(data_dir) else os.path.realpath(os.fsencode(data_dir))
        names = [os.path.basename(place)]
    if not any(kind_by_name(name) in TABLES for name in names):
        refuse_columns(columns, printable(root))
    index = open_index(root, names, columns)
    _refuse_without_pictures(index, names)
    given = find_labels(labels, _inside(index)) if labels else None
    own = ArchiveLabels(()) if labels else read_labels(index)
    lines = ArchiveLines(index, own, _labels_of(index, given.of) if given else None)
    lines_found = [*_lines(index), *([own.line] if own.line else []), *(given.lines if given else ())]
    scan = Scan(root, unreadable=folder.unreadable if folder else [], lines=lines_found)
    facts = {"labels": given.facts} if given else _facts(own)
    return ArchivePictures(root, index.archives, lines, scan, facts)


def _unreadable_archives(folder: Scan) -> list[bytes]:
    """The archives that lie in a folder and cannot be read: of a counted set they are not missing."""
    return [name for name, _ in folder.unreadable if kind_by_name(name) not in ("", COMPRESSED)]


def _refuse_without_pictures(index: ArchiveIndex, names: Sequence[bytes]) -> None:
    sizes = (block["size_bytes"] for block in index.lines.blocks(["size_bytes"], 0, len(index.lines)))
    if any(size.null_count < len(size) for size in sizes):
        return
    where = f"{counted(len(names), 'archive')} of {printable(index.root)}"
    if len(index.lines):
        known = "TFRecords have it in image/encoded, other files in a column"
        raise UsageError(f"no record of {where} has a picture ({known}): give records of pictures")
    there = f"the archive {printable(names[0])} holds" if len(names) == 1 else f"the {where} hold"
    raise UsageError(f"{there} no pictures{f' ({_left_out(index)})' if index.left_out else ''}: give archives of pictures")


def _lines(index: ArchiveIndex) -> list[str]:
    """Lines to print: what was found, and what was left out."""
    size = sum(pc.sum(block["size_bytes"]).as_py() or 0 for block in index.lines.blocks(["size_bytes"], 0, len(index.lines)))
    pictures = f"{counted(len(index.lines), 'picture')} ({size_text(size)})"
    lines = [f"found {pictures} in {counted(len(index.archives), 'archive')} of {printable(index.root)}"]
    if index.left_out:
        lines.append(f"not pictures: {index.left_out.total():,} ({_left_out(index)})")
    return lines


def _left_out(index: ArchiveIndex) -> str:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in index.left_out.most_common(5))
    return f"{kinds}{', ...' if len(index.left_out) > 5 else ''}"


def _facts(own: ArchiveLabels) -> dict[str, Any]:
    """The classes of the archives' own labels, for dataset.json."""
    if not own.class_names:
        return {}
    return {"labels": {"from": "archives", "classes": [list(pair) for pair in enumerate(own.class_names)]}}


def _names_inside(index: ArchiveIndex) -> Iterator[bytes]:
    """The names of the pictures within their archives, in order."""
    lengths = [len(archive.path) + 1 for archive in index.archives]
    for block in index.lines.blocks([*KEY_COLUMNS, "archive"], 0, len(index.lines)):
        for key, archive in zip(raw_key_column(block).to_pylist(), block["archive"].to_pylist(), strict=True):
            yield key[lengths[archive] :]


def _inside(index: ArchiveIndex) -> Scan:
    """The names within the archives, as a scan of their folder would find them."""
    return Scan(index.root, [Picture(name, None) for name in sorted(set(_names_inside(index)))])


def _labels_of(index: ArchiveIndex, label_of: Callable[[bytes], int | None]) -> np.ndarray[Any, np.dtype[np.int32]]:
    labels = (label_of(name) for name in _names_inside(index))
    return np.fromiter((-1 if label is None else label for label in labels), np.int32, len(index.lines))
