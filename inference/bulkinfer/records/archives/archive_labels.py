"""The labels of pictures in archives: numbers of classes, from 0, and the names of the classes.

Labels come from the archives, names from `labels.txt` beside them, else from the archives as well. In TFRecords such as
ImageNet's the first class has label 1, because 0 stands for the background: there labels 1 to N are the classes 0 to N - 1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import AbsentObjectError, DamagedError, ObjectError, UsageError
from bulkinfer.files.addresses import address_of
from bulkinfer.files.guarded import TEXT_BYTES, read_text
from bulkinfer.records.archives.archive_index import ArchiveIndex
from bulkinfer.records.sources.labels import class_numbers
from bulkinfer.stores.objects import read_object
from bulkinfer.types import printable

LABELS_FILE = "labels.txt"
_NUMBERED = re.compile(r"(\d{1,9})\s*:\s*(.+)")
_WNID = re.compile(r"n[0-9]{8}")


@dataclass(frozen=True, eq=False)
class ArchiveLabels:
    """Turns what archives say of classes into labels; `class_names[label]` is the name of a class.

    `first` is the number of the first class in the archives. Where they have names alone, `by_name` has the label of each name.
    `line` says what was decided, where that is not plain.
    """

    class_names: tuple[str, ...]
    first: int = 0
    by_name: dict[str, int] | None = None
    line: str = ""

    def column(self, table: pa.Table) -> pa.ChunkedArray:
        """The labels (int32, null: none) of lines with the columns `label` and `class_name`."""
        if self.by_name is None:
            return pc.subtract(table["label"], pa.scalar(self.first, pa.int32()))
        places = pc.index_in(table["class_name"], value_set=pa.array(self.by_name, pa.string()))
        return pa.array(self.by_name.values(), pa.int32()).take(places) if self.by_name else places


def read_labels(index: ArchiveIndex) -> ArchiveLabels:
    """The labels of an index. Raises UsageError for a label that `labels.txt` does not have, and if that cannot be read."""
    pairs = _pairs(index)
    listed = listed_names(os.path.join(index.root, LABELS_FILE.encode()))
    numbers = {label for label, _ in pairs if label is not None}
    if numbers:
        return _of_numbers(index, numbers, {(label, name) for label, name in pairs if label is not None and name}, listed)
    names = {name for _, name in pairs if name is not None}
    if not names:
        return ArchiveLabels(())
    if listed:
        by_name = {name: label for label, name in listed.items()}
        if unknown := sorted(names - set(by_name)):
            raise _out_of_range(
                index, pc.field("class_name") == unknown[0], f"the class {printable(unknown[0].encode())}", listed
            )
    else:
        ordered = class_numbers((name.encode("utf-8", "surrogateescape") for name in names), printable(index.root))
        by_name = {name.decode("utf-8", "surrogateescape"): label for name, label in ordered.items()}
    return ArchiveLabels(_names(by_name.items()), 0, by_name)


def _pairs(index: ArchiveIndex) -> set[tuple[int | None, str | None]]:
    """The distinct pairs of label and name of a class."""
    found: set[tuple[int | None, str | None]] = set()
    for block in index.lines.blocks(["label", "class_name"], 0, len(index.lines)):
        distinct = block.group_by(["label", "class_name"]).aggregate([])
        found.update(zip(distinct["label"].to_pylist(), distinct["class_name"].to_pylist(), strict=True))
    return found


def _text(path: bytes) -> str:
    address = address_of(path)
    return read_object(address, TEXT_BYTES).decode() if address else read_text(os.fsdecode(path), TEXT_BYTES)


def listed_names(path: bytes) -> dict[int, str]:
    """The names in labels.txt by number: `7:name` on each line, or a name on each line; empty if there is no such file."""
    try:
        lines = _text(path).rstrip().split("\n")
    except (FileNotFoundError, AbsentObjectError):
        return {}
    except (OSError, UnicodeDecodeError, DamagedError, ObjectError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        reason = str(error) if isinstance(error, ObjectError) else reason
        raise UsageError(f"{printable(path)} cannot be read ({reason}): it has the name of one class on each line") from None
    if not any(lines):
        return {}
    numbered = [_NUMBERED.fullmatch(line.strip()) for line in lines]
    if all(numbered):
        return {int(match[1]): match[2] for match in numbered if match}
    return {number: line.strip() for number, line in enumerate(lines)}


def _of_numbers(index: ArchiveIndex, numbers: set[int], named: set[tuple[int, str]], listed: dict[int, str]) -> ArchiveLabels:
    counts_from_1 = all(archive.kind == "tfrecord" for archive in index.archives)
    first = _first_number(numbers, named, listed) if counts_from_1 else 0
    least, most = min(numbers) - first, max(numbers) - first
    if listed and most > max(listed):
        raise _out_of_range(index, pc.field("label") == max(numbers), f"label {max(numbers)}", listed)
    assert least >= 0, "a first class of 1 means that no label is 0"
    names = listed or {label - first: name for label, name in sorted(named)}
    line = ""
    if first:
        line = (
            f"labels {min(numbers)} to {max(numbers)} of the archives are the classes {least} to {most}: their first class is 1"
        )
    return ArchiveLabels(
        _names((names.get(number, str(number)), number) for number in range(max([most, *names]) + 1)), first, None, line
    )


def _first_number(numbers: set[int], named: set[tuple[int, str]], listed: dict[int, str]) -> int:
    """The number that TFRecords give to the first class, 0 or 1.

    With labels.txt the names of the classes decide, else whether a label is its number of lines. Without it 1 is the first if
    the labels are 1 to N without a gap, or if the classes have WordNet ids, as in ImageNet.
    """
    if 0 in numbers:
        return 0
    if listed:
        agree = [sum(listed.get(label - first) == name for label, name in named) for first in (0, 1)]
        if agree[0] != agree[1]:
            return int(agree[1] > agree[0])
        return int(0 in listed and max(numbers) == max(listed) + 1)
    are_wnids = bool(named) and all(_WNID.fullmatch(name) for _, name in named)
    return int(are_wnids or max(numbers) == len(numbers))


def _names(by_name: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Names in the order of their numbers; a number without a name is its own."""
    names = {label: name for name, label in by_name}
    return tuple(names.get(number, str(number)) for number in range(max(names) + 1)) if names else ()


def _out_of_range(index: ArchiveIndex, wanted: pc.Expression, what: str, listed: dict[int, str]) -> UsageError:
    """The refusal of a class that labels.txt does not have, with the first picture of that class."""
    key = ""
    for block in index.lines.blocks(["key", "label", "class_name"], 0, len(index.lines)):
        if len(found := block.filter(wanted)):
            key = found["key"][0].as_py()
            break
    shown, place = printable(key.encode()), printable(index.root)
    return UsageError(
        f"{shown} in {place} has {what}, and {LABELS_FILE} there has {len(listed):,} classes: correct the file, or fetch "
        "the archive again"
    )
