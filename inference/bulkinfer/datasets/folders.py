"""Pictures in class folders: train/<class>/... beside val/ or validation/, as ImageNet is laid out.

A class folder is searched as records/sources/folder.py does: recursively, following links, without hidden and macOS files.
Validation pictures may lie in one folder instead, with their classes in a table: listed_labels.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from bulkinfer.datasets import archives
from bulkinfer.datasets.boxes import listed_boxes
from bulkinfer.datasets.listed_labels import is_listed, listed_pictures
from bulkinfer.datasets.types import FilePictures, PathTable
from bulkinfer.errors import UsageError, os_error_reason
from bulkinfer.records.archives.archive_dataset import refuse_columns
from bulkinfer.records.sources.folder import Scan, counted, first_names, is_ignored, scan_folder
from bulkinfer.types import key_text, printable, printable_path

log = logging.getLogger("bulkinfer")

TRAIN_FOLDERS = ("train",)
VALID_FOLDERS = ("val", "validation", "valid")
_TEST_FOLDER = "test"  # used for validation if there is no other
CLASS_ORDERS = ("text", "number")
BY_NAME = "auto"  # for callers that look classes up by name: by number if all names are numbers


def holds(data_dir: Path) -> bool:
    """Whether a folder has a train or validation folder with a folder in it, validation pictures in a list, or archives."""
    if any(is_listed(path) for path in _valids(data_dir)):
        return True
    if any(_class_folders(path) for path in (_train(data_dir), *_valids(data_dir)) if path is not None):
        return True
    return archives.holds(data_dir)


def read(
    data_dir: Path, split: str, class_order: str = "text", *, with_boxes: bool = False, columns: tuple[str, ...] = ()
) -> FilePictures:
    """The pictures of a split; labels are positions in the sorted names of the class folders. Logs what is left out.

    The classes are those of training; a warning names those that validation lacks. With BY_NAME, and where there is no train
    folder, they are those of the split. `class_order` "number" sorts names by value, if all are whole numbers. `columns` are
    for archives that are tables. Raises UsageError if a folder is missing, cannot be read or is empty, and if validation has a
    class that training lacks.
    """
    assert class_order in (*CLASS_ORDERS, BY_NAME), class_order
    if archives.holds(data_dir) and not any(map(_class_folders, filter(None, (_train(data_dir), *_valids(data_dir))))):
        return archives.read(data_dir, split, with_boxes=with_boxes, columns=columns)
    refuse_columns(columns, printable_path(data_dir))
    train, valid = _train(data_dir), _valid(data_dir)
    folder = train if split == "train" else valid
    if folder is None:
        wanted = TRAIN_FOLDERS if split == "train" else (*VALID_FOLDERS, _TEST_FOLDER)
        raise UsageError(f"{data_dir} has no folder {' or '.join(wanted)} with a folder of pictures for each class")
    if split == "valid" and is_listed(folder):
        return _read_listed(folder, train, class_order)
    own = names = _class_folders(folder)
    if train is not None and valid is not None and class_order != BY_NAME:
        if not is_listed(valid):
            _refuse_unknown_classes(train, valid, _class_folders(valid))
        names = _class_folders(train)
    names = _ordered(folder, names, class_order)
    if not own:
        listed = f", or a table of file names and classes beside it, {folder}.csv" if split == "valid" else ""
        raise UsageError(f"{folder} holds no folders: a folder of pictures for each class is needed{listed}")
    if loose := _loose_files(folder):
        log.warning(
            f"note: left out of {folder}: {counted(len(loose), 'file')} outside the class folders: {first_names(loose)}"
        )
    root, counts = os.fsencode(folder), list[int]()
    missing = sorted({*names} - {*own})
    paths = PathTable.of(root, _pictures(root, names, counts, {*missing}))
    empty = [name for name, count in zip(names, counts, strict=True) if not count]
    if empty and (split == "train" or len(empty) == len(names)):
        raise UsageError(f"{folder} has class folders without pictures: {first_names(empty)}")
    if missing:
        log.warning(f"warning: {folder} has no folder for {len(missing)} of the {len(names)} classes: {first_names(missing)}")
    if empty := [name for name in empty if name not in missing]:
        log.warning(f"note: classes without pictures in {folder}: {first_names(empty)}")
    labels = np.repeat(np.arange(len(names), dtype=np.int64), counts)
    boxes = listed_boxes(data_dir, paths.relative_names()) if with_boxes else None
    return FilePictures(paths, labels, tuple(key_text(name) for name in names), boxes=boxes)


def _read_listed(folder: Path, train: Path | None, class_order: str) -> FilePictures:
    """Validation pictures whose classes are in a table. Raises UsageError for a class that training lacks."""
    listed = listed_pictures(folder)
    if train is None or class_order == BY_NAME:
        names = _ordered(folder, sorted(listed), class_order)
    else:
        names = _ordered(train, _class_folders(train), class_order)
        if all(name.isdigit() for name in listed) and not any(name.isdigit() for name in names):
            listed = _by_number(listed, names, folder)
        _refuse_unknown_classes(train, folder, list(listed))
        if missing := [name for name in names if name not in listed]:
            log.warning(
                f"warning: {folder} has no pictures of {len(missing)} of the {len(names)} classes: {first_names(missing)}"
            )
    pictures = [listed.get(name, []) for name in names]
    labels = np.repeat(np.arange(len(names), dtype=np.int64), [len(paths) for paths in pictures])
    paths = PathTable.of(os.fsencode(folder), chain.from_iterable(pictures))
    return FilePictures(paths, labels, tuple(key_text(name) for name in names))


def _by_number(listed: dict[bytes, list[bytes]], names: list[bytes], folder: Path) -> dict[bytes, list[bytes]]:
    """Pictures by the name of the class that a table gives as its place, from 0, in the order of the class folders."""
    if beyond := [number for number in listed if len(number) > 9 or int(number) >= len(names)]:
        raise UsageError(
            f"{folder}: class {printable(beyond[0])} of its table is not one of the {len(names)} of training, from 0"
        )
    log.info(f"note: the numbers in the table of {folder} are taken as the classes in order: {printable(names[0])} is class 0")
    found: dict[bytes, list[bytes]] = {}
    for number, paths in listed.items():
        found.setdefault(names[int(number)], []).extend(paths)
    return found


def _train(data_dir: Path) -> Path | None:
    return next((data_dir / name for name in TRAIN_FOLDERS if (data_dir / name).is_dir()), None)


def _valids(data_dir: Path) -> list[Path]:
    found = [data_dir / name for name in VALID_FOLDERS if (data_dir / name).is_dir()]
    test = data_dir / _TEST_FOLDER
    return found or ([test] if test.is_dir() else [])


def _valid(data_dir: Path) -> Path | None:
    found = _valids(data_dir)
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise UsageError(f"{data_dir} has {names}: keep only the one with the validation pictures")
    return found[0] if found else None


def _class_folders(folder: Path) -> list[bytes]:
    """The names of the folders in a folder, hidden ones left out."""
    try:
        with os.scandir(os.fsencode(folder)) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not is_ignored(entry.name, False))
    except OSError as error:
        raise UsageError(f"{folder} cannot be searched: {os_error_reason(error)}") from None


def _loose_files(folder: Path) -> list[bytes]:
    """The names of the files that lie beside the class folders."""
    with os.scandir(os.fsencode(folder)) as entries:
        return sorted(entry.name for entry in entries if not entry.is_dir() and not is_ignored(entry.name, False))


def _refuse_unknown_classes(train: Path, valid: Path, classes: list[bytes]) -> None:
    """Raises UsageError for a class of validation that training lacks: its pictures would have no label."""
    if unknown := sorted({*classes} - {*_class_folders(train)}):
        what = counted(len(unknown), "class folder") if not is_listed(valid) else f"{len(unknown):,} classes in its table"
        raise UsageError(
            f"{valid} has {what} that {train} lacks: {first_names(unknown)}: remove or rename what is no class of the training "
            "pictures"
        )


def _ordered(folder: Path, names: list[bytes], class_order: str) -> list[bytes]:
    """Names sorted by `class_order`; logs a warning if the other order would give other labels."""
    are_numbers = all(name.isdigit() for name in names)
    if class_order == BY_NAME:
        return sorted(names, key=int) if are_numbers else names
    if not are_numbers:
        if class_order == "number":
            other = next(name for name in names if not name.isdigit())
            raise UsageError(f"--class_order number: the class folder {printable(other)} of {folder} is not a whole number")
        return names
    by_number = sorted(names, key=lambda name: (int(name), name))
    if class_order == "number":
        twins = [pair for pair in pairwise(by_number) if int(pair[0]) == int(pair[1])]
        if twins:
            raise UsageError(f"--class_order number: the class folders {first_names(twins[0])} of {folder} are the same number")
        return by_number
    if by_number != names:
        number, (name, other) = next(
            (i, pair) for i, pair in enumerate(zip(names, by_number, strict=True)) if pair[0] != pair[1]
        )
        log.warning(
            f"warning: the class folders of {folder} are whole numbers, sorted as text: class {number} is {printable(name)}, "
            f"by number it would be {printable(other)}; --class_order number sorts them so"
        )
    return names


def _pictures(root: bytes, names: list[bytes], counts: list[int], missing: set[bytes]) -> Iterator[bytes]:
    """Paths relative to `root`, one class at a time, so that only one class is held as objects; fills `counts`."""
    ignored, not_pictures = 0, 0
    for name in names:
        if name in missing:
            counts.append(0)
            continue
        scan = scan_folder(os.path.join(root, name))
        _check_complete(scan, name)
        ignored += scan.ignored
        not_pictures += scan.not_pictures.total()
        counts.append(len(scan.pictures))
        for picture in scan.pictures:
            yield name + b"/" + picture.key
    if ignored:
        log.warning(f"note: ignored {ignored:,} hidden or system files and folders in {printable(root)}")
    if not_pictures:
        log.warning(f"note: left out of {printable(root)}: {counted(not_pictures, 'file')}, no pictures")


def _check_complete(scan: Scan, name: bytes) -> None:
    """Raises UsageError if something could not be read: without it, training would use another data set."""
    broken = [name + b"/" + picture.key for picture in scan.pictures if picture.size_bytes is None]
    if broken:
        raise UsageError(f"pictures of {scan.shown_root} are broken links or cannot be reached: {first_names(broken)}")
    if scan.unreadable:
        raise UsageError(f"{scan.shown_root} could not be read completely: {scan.unreadable_lines()[0]}")
