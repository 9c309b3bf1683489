"""Tables of labels: a text file with the name and the label of one picture on each line.

Columns are separated by commas, semicolons, tabs or blanks. Known are, for example, the CSV files of Kaggle, the validation
labels of ImageNet (LOC_val_solution.csv, or `NAME.JPEG 65`) and val_annotations.txt of Tiny-ImageNet. A first line with names
of columns says which columns are meant; without it they are the first two.
"""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bulkinfer.errors import UsageError
from bulkinfer.records.sources.folder import PICTURE_EXTENSIONS, counted
from bulkinfer.records.sources.named_file import read_named_file, shown_file
from bulkinfer.types import printable

log = logging.getLogger("bulkinfer")

# Names of columns, in lower case.
NAMES = frozenset([
    "file", "filename", "file_name", "filepath", "id", "id_code", "image", "image_id", "image_name", "image_path",
    "imageid", "imagename", "img", "key", "name", "path", "picture",
])  # fmt: skip
LABELS = frozenset([
    "label", "class", "class_id", "class_name", "classid", "category", "category_id", "target", "wnid", "synset", "y",
    "predictionstring",
])  # fmt: skip
_BOXES = "predictionstring"  # of ImageNet at Kaggle: the class, then the corners of its box
_MOST_BYTES = 1 << 30
NO_LABEL = (b"", b"-1")


@dataclass(frozen=True)
class LabelTable:
    """The label of each picture by its normalised name, in the order of the file; sha256 of the file, its path for messages."""

    labels: dict[bytes, bytes]
    sha256: str
    shown: str


def read_label_table(path: Path, flag: str) -> LabelTable:
    """Read a table of labels. Raises UsageError, which begins with `flag`, if it is missing or no such table."""
    shown = shown_file(path)
    data = read_named_file(path, flag, _MOST_BYTES)
    try:
        labels, has_header, num_without = _labels(data)
    except (TableError, csv.Error) as error:
        raise UsageError(f"{flag}: {shown} is not a table of file names and labels: {error}") from None
    if has_header:
        log.info(f"{shown}: line 1 was taken as names of columns")
    if num_without:
        log.info(f"{shown}: {counted(num_without, 'line')} without a label (it is empty or -1)")
    return LabelTable(labels, hashlib.sha256(data).hexdigest(), shown)


class TableError(Exception):
    """The text is no table of names and labels; the message says where."""


def _labels(data: bytes) -> tuple[dict[bytes, bytes], bool, int]:
    """The label of each picture by its normalised name; whether the first line names columns; how many lines have no label."""
    if b"\0" in data:
        raise TableError("it is no text")
    rows = list(_rows(data.decode("utf-8-sig", "surrogateescape")))
    if not rows:
        raise TableError("it has no lines")
    first = [cell.strip().lower() for cell in rows[0][1]]
    name_column, label_column, has_header = name_and_label(first, [row for _, row in rows[1:]])
    labels, num_without = dict[bytes, bytes](), 0
    for number, row in rows[has_header:]:
        if len(row) <= max(name_column, label_column):
            raise TableError(f"line {number} has {len(row)} column{'s' * (len(row) != 1)}")
        name = posixpath.normpath(row[name_column].strip().encode("utf-8", "surrogateescape")).lstrip(b"/")
        label = row[label_column].strip()
        if has_header and first[label_column] == _BOXES:
            label = label.partition(" ")[0]
        value = label.encode("utf-8", "surrogateescape")
        if value in NO_LABEL:
            num_without += 1
        elif labels.setdefault(name, value) != value:
            raise TableError(f"{printable(name)} is {printable(labels[name])} and, in line {number}, {printable(value)}")
    if not labels:
        raise TableError("it has no labels")
    return labels, has_header, num_without


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not blank, with their numbers, as columns."""
    lines = [(number, line) for number, line in enumerate(io.StringIO(text), 1) if line.strip()]
    separator = next((mark for mark in "\t,;" if lines and mark in lines[0][1]), "")
    if not separator:
        yield from ((number, line.rsplit(None, 1)) for number, line in lines)
        return
    reader = csv.reader((line for _, line in lines), delimiter=separator)
    for row in reader:  # a quoted column may go over several lines
        yield lines[reader.line_num - 1][0], row


def name_and_label(first: Sequence[str], others: Sequence[list[str]]) -> tuple[int, int, bool]:
    """The columns of names and of labels, and whether the first line, in lower case, has the names of the columns.

    Raises TableError if that is not clear.
    """
    names = [column for column, cell in enumerate(first) if cell in NAMES]
    labels = [column for column, cell in enumerate(first) if cell in LABELS]
    if len(first) < 2:
        raise TableError("line 1 has 1 column: write a name and a label, separated by a comma, a tab or a blank")
    if _is_picture(first[0]):
        return 0, 1, False
    if names and labels:
        return names[0], labels[0], True
    if len(first) == 2 and (names or labels):
        name = names[0] if names else 1 - labels[0]
        return name, 1 - name, True
    if names or labels:
        raise TableError(f"which of its columns {', '.join(first)} are meant is not clear: call them file and label")
    return 0, 1, _is_header(first, others)


def _is_picture(cell: str) -> bool:
    _, dot, extension = cell.rpartition(".")
    return bool(dot) and extension.encode("utf-8", "surrogateescape") in PICTURE_EXTENSIONS


def _is_header(first: Sequence[str], others: Iterable[list[str]]) -> bool:
    """Whether a first line with unknown words names columns: all other labels are numbers, or only other names have a dot."""
    rest = [row for row in others if len(row) > 1]
    are_numbers = bool(rest) and all(row[1].strip().lstrip("-").isdigit() for row in rest)
    have_dots = bool(rest) and all("." in row[0] for row in rest)
    return (are_numbers and not first[1].lstrip("-").isdigit()) or (have_dots and "." not in first[0])
