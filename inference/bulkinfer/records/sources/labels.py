"""The column `label` of the rows: the class of each picture, from class folders or from a table of file names and labels.

A label is the number of a class, from 0. Folders and classes with names are numbered in the order of their names as bytes, as
`bulkinfer train` numbers class folders. Names that are whole numbers are the numbers themselves.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bulkinfer.errors import UsageError
from bulkinfer.files.json_validation import mismatch
from bulkinfer.records.sources.folder import PICTURE_EXTENSIONS, Scan, counted, first_names
from bulkinfer.records.sources.label_table import LabelTable, read_label_table
from bulkinfer.records.sources.match_names import in_other_folders, match_names, with_slashes
from bulkinfer.types import key_text, printable, printable_path, shell_word

FOLDERS, ANNOTATIONS = "folders", "annotations"  # values of --labels beside the path of a table
FOLDER_WORDS = ("folder", FOLDERS)  # both mean the same
_SPLITS = frozenset({b"train", b"val", b"validation", b"valid", b"test"})
_MOST = (1 << 31) - 1  # of int32
_MOST_DIGITS = 20


def is_annotations(wanted: str) -> bool:
    """True if --labels names a file of COCO annotations, by its ending."""
    return wanted.lower().endswith(".json")


@dataclass(frozen=True)
class Labels:
    """The label of each picture by its key, None if it is not known; facts for dataset.json, and lines for the user."""

    of: Callable[[bytes], int | None]
    facts: dict[str, Any]
    lines: tuple[str, ...] = ()


def find_labels(wanted: str, scan: Scan) -> Labels:
    """The labels that --labels asks for: of class folders, or of the table in the file `wanted`.

    Raises UsageError if there are none, or if what they belong to is not clear.
    """
    if wanted in FOLDER_WORDS:
        return _of_folders(scan)
    path = Path(wanted)
    if path.is_dir():
        raise UsageError(
            f"--labels: {printable_path(path)} is a folder: for labels from the class folders, type --labels folder"
        )
    return _of_table(read_label_table(path, "--labels"), scan)


def named_classes(listed: Any) -> dict[int, str]:
    """The name of each class by its number, from [number, name] of each; empty if `listed` is no such list."""
    if mismatch(listed, list[tuple[int, str]]) or any(len(pair) != 2 for pair in listed):
        return {}
    return dict(listed)


def class_numbers(names: Iterable[bytes], where: str) -> dict[bytes, int]:
    """The number of each class by its name. Raises UsageError, with `where`, if two names are the same number."""
    ordered = sorted(set(names))
    if not all(name.isdigit() and len(name) < _MOST_DIGITS and int(name) <= _MOST for name in ordered):
        return {name: number for number, name in enumerate(ordered)}
    by_number: dict[int, bytes] = {}
    for name in ordered:
        if (other := by_number.setdefault(int(name), name)) != name:
            raise UsageError(f"--labels: {printable(other)} and {printable(name)} in {where} are the same number")
    return {name: number for number, name in by_number.items()}


def _of_folders(scan: Scan) -> Labels:
    folders = {folder for folder, slash, _ in (picture.key.partition(b"/") for picture in scan.pictures) if slash}
    if not folders:
        raise UsageError(f"--labels folders: no picture of {scan.shown_root} lies in a class folder")
    if folders <= _SPLITS:
        first = min(folders)
        raise UsageError(
            f"--labels folders: the folders of {scan.shown_root} ({first_names(sorted(folders))}) are parts of a data set, not "
            f"classes: give one of them, as --data_dir {shell_word(os.fsdecode(scan.root + b'/' + first))}"
        )
    numbers = class_numbers(folders, scan.shown_root)
    loose = sum(b"/" not in picture.key for picture in scan.pictures)

    def of(key: bytes) -> int | None:
        folder, slash, _ = key.partition(b"/")
        return numbers.get(folder) if slash else None

    return Labels(of, {"from": FOLDERS, "classes": _listed(numbers)}, label_lines(len(scan.pictures), loose, len(numbers)))


class FoundLabels(NamedTuple):
    """The label of each picture by its key; `elsewhere`: names of the table -> the key of a picture in another folder."""

    by_key: dict[bytes, bytes]
    elsewhere: dict[bytes, bytes]

    def elsewhere_lines(self, table: LabelTable) -> list[str]:
        """The line to print about those names, or none."""
        if not self.elsewhere:
            return []
        name, key = next(iter(self.elsewhere.items()))
        count = f"{counted(len(self.elsewhere), 'name')} of {table.shown}"
        return [f"not matched, since the folders differ: {count}, for example {printable(name)}, which is not {printable(key)}"]


def labels_by_key(table: LabelTable, scan: Scan, flag: str) -> FoundLabels:
    """The label of each picture that a table names.

    Raises UsageError, which begins with `flag`, if it names none, or if a name may be that of several pictures.
    """
    claimed, elsewhere = match_names(table.labels, scan, flag, any_folder=False)
    keys = {name: picture.key for name, picture in claimed.items()}
    stems, others = _without_extension([name for name in table.labels if name not in keys], scan, flag)
    keys |= stems
    found = FoundLabels({key: table.labels[name] for name, key in keys.items()}, elsewhere | others)
    if not any(picture.key in found.by_key for picture in scan.pictures):
        first = printable(next(iter(table.labels)))
        more = "".join(f"; {line}" for line in found.elsewhere_lines(table))
        raise UsageError(f"{flag}: {table.shown} names no picture of {scan.shown_root}; its first name is '{first}'{more}")
    return found


def _of_table(table: LabelTable, scan: Scan) -> Labels:
    numbers = class_numbers(set(table.labels.values()), table.shown)
    labels = labels_by_key(table, scan, "--labels")
    found = {key: numbers[label] for key, label in labels.by_key.items()}
    known = sum(picture.key in found for picture in scan.pictures)
    lines = list(label_lines(len(scan.pictures), len(scan.pictures) - known, len(numbers)))
    if absent := len(table.labels) - known:
        lines.append(f"left out {counted(absent, 'name')} of {table.shown} without a picture here")
    lines += labels.elsewhere_lines(table)
    facts = {"from": "table", "sha256": table.sha256, "classes": _listed(numbers)}
    return Labels(found.get, facts, tuple(lines))


def _without_extension(names: list[bytes], scan: Scan, flag: str) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The keys of names such as ILSVRC2012_val_00000001, which lack the extension of their file; those in other folders."""
    sought = [name for name in names if name.rpartition(b".")[2].lower() not in PICTURE_EXTENSIONS]
    stems: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for picture in scan.pictures if sought else ():
        stems[picture.key.rpartition(b"/")[2].rpartition(b".")[0]].append(picture.key)
    found, elsewhere = {}, {}
    for name in sought:
        spelled = with_slashes(name)
        keys = stems.get(spelled.rpartition(b"/")[2], [])
        near = [key for key in keys if not in_other_folders(spelled, key)]
        if len(near) > 1:
            raise UsageError(
                f"{flag}: {printable(name)} could be {printable(near[0])} or {printable(near[1])}: write the whole file name"
            )
        if near:
            found[name] = near[0]
        elif keys:
            elsewhere[name] = keys[0]
    return found, elsewhere


def _listed(numbers: dict[bytes, int]) -> list[list[Any]]:
    """[number, name] of each class, for dataset.json."""
    return [[number, key_text(name)] for name, number in sorted(numbers.items(), key=lambda item: item[1])]


def label_lines(num_pictures: int, num_without: int, num_classes: int) -> tuple[str, ...]:
    """What to print of the labels of some pictures."""
    without = f"; {num_without:,} without a label" if num_without else ""
    return (f"labels of {counted(num_pictures - num_without, 'picture')} in {counted(num_classes, 'class')}{without}",)
