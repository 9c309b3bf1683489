"""Pictures in tar and TFRecord files: train-* beside validation-*, as ImageNet comes in shards.

A picture's class is what its archive says (records/archives/archive_labels.py), else the first folder of its name there.
Samples are in the order of their classes and names, as those of class folders are: how they are spread over archives changes
no run.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.datasets.boxes import BoxTable, listed_boxes
from bulkinfer.datasets.types import FilePictures, MemberTable
from bulkinfer.errors import RecordError, UsageError, os_error_reason
from bulkinfer.records.archives.archive_dataset import refuse_columns
from bulkinfer.records.archives.archive_index import ArchiveIndex, open_index
from bulkinfer.records.archives.archive_labels import ArchiveLabels, read_labels
from bulkinfer.records.archives.index_file import INDEX_SCHEMA
from bulkinfer.records.manifest_rows import raw_key_column
from bulkinfer.records.read_place import read_place
from bulkinfer.records.sources.archive_names import kind_by_name
from bulkinfer.records.sources.archives import TABLES, check_names
from bulkinfer.records.sources.folder import counted, first_names, is_ignored
from bulkinfer.types import key_text, printable

log = logging.getLogger("bulkinfer")

# Words in the name of an archive, or of its folder, that say its split. The test pictures serve if no others do.
_WORDS = {"train": "train", "validation": "valid", "valid": "valid", "val": "valid", "test": "test"}
_COLUMNS = ("key", "key_bytes", "size_bytes", "label", "archive", "offset", "span", "class_name", "boxes")
_MOST_BYTES = 1 << 30


def holds(data_dir: Path) -> bool:
    """Whether a folder has archives of a split, in it or in a folder of that name."""
    return bool(_names(data_dir))


def read(data_dir: Path, split: str, *, with_boxes: bool = False, columns: tuple[str, ...] = ()) -> FilePictures:
    """The pictures of a split; logs what was decided about labels. `with_boxes` reads boxes of objects as well.

    `columns` are those of an Archive, for tables.

    Raises UsageError if there are none, if an archive is missing, damaged or compressed, or a picture is unreadable or has no
    label: without it, training would use another data set.
    """
    by_split = _names(data_dir)
    names = by_split.get(split, [])
    if not names:
        word = "train" if split == "train" else "validation"
        raise UsageError(f"{data_dir} has no archives called {word}: call them {word}-..., or put them into {data_dir / word}")
    root, everything = os.fsencode(data_dir), [name for each in by_split.values() for name in each]
    check_names(root, everything)
    if not any(kind_by_name(name) in TABLES for name in everything):
        refuse_columns(columns, printable(root))
    labels = read_labels(open_index(root, everything, columns))  # of all splits: one alone may lack a class
    index = open_index(root, names, columns)
    found = _Listed.of(index, labels) if labels.class_names else _by_folders(index, open_index(root, everything, columns))
    _check_complete(index, found)
    if labels.line and split == next(iter(sorted(by_split))):  # once, of both splits
        log.info(labels.line)
    order = pc.sort_indices(found.table, [("label", "ascending"), ("name", "ascending"), ("archive", "ascending"),
                                          ("offset", "ascending")])  # fmt: skip
    table = found.table.take(order)
    places = MemberTable.of(index, *(table[name].to_numpy() for name in ("archive", "offset", "span")))
    boxes = _boxes(data_dir, table) if with_boxes else None
    return FilePictures(places, table["label"].to_numpy().astype(np.int64), found.class_names, boxes=boxes)


def _names(data_dir: Path) -> dict[str, list[bytes]]:
    """The archives of each split, relative to `data_dir`."""
    found: dict[str, list[bytes]] = {}
    folders = ["", *_WORDS]
    for folder in folders:
        try:
            with os.scandir(os.path.join(os.fsencode(data_dir), folder.encode())) as entries:
                names = [entry.name for entry in entries if kind_by_name(entry.name) and not is_ignored(entry.name, False)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise UsageError(f"{data_dir / folder} cannot be searched: {os_error_reason(error)}") from None
        for name in names:
            if split := _WORDS.get(folder) or _split_of(name):
                found.setdefault(split, []).append(os.path.join(folder.encode(), name))
    test = found.pop("test", [])
    return found if "valid" in found or not test else {**found, "valid": test}


def _split_of(name: bytes) -> str:
    """The split that the name of an archive says; empty if it says none."""
    words = re.split(r"[^a-z]+", key_text(name).lower())
    return next((_WORDS[word] for word in words if word in _WORDS), "")


@dataclass(frozen=True, eq=False)
class _Listed:
    """The lines of an index with `label` as the number of a class, and `name` as the name within the archive."""

    table: pa.Table
    class_names: tuple[str, ...]

    @classmethod
    def of(cls, index: ArchiveIndex, labels: ArchiveLabels) -> _Listed:
        empty = INDEX_SCHEMA.empty_table().select(_COLUMNS)
        table = pa.concat_tables([empty, *index.lines.blocks(_COLUMNS, 0, len(index.lines))]).combine_chunks()
        label = labels.column(table) if labels.class_names else pa.nulls(len(table), pa.int32())
        table = table.set_column(table.column_names.index("label"), "label", label)
        lengths = [len(archive.path) + 1 for archive in index.archives]
        keys, archives = raw_key_column(table).to_pylist(), table["archive"].to_pylist()
        names = pa.array([key[lengths[archive] :] for key, archive in zip(keys, archives, strict=True)], pa.binary())
        return cls(table.append_column("name", names), labels.class_names)


def _by_folders(index: ArchiveIndex, everything: ArchiveIndex) -> _Listed:
    """Classes by the first folder of each name, numbered in the order of the names of all splits."""
    found = _Listed.of(index, ArchiveLabels(()))
    classes = sorted(set(_folders(_Listed.of(everything, ArchiveLabels(())).table)) - {b""})
    numbers = {name: number for number, name in enumerate(classes)}
    labels = pa.array([numbers.get(name) for name in _folders(found.table)], pa.int32())
    return _Listed(
        found.table.set_column(found.table.column_names.index("label"), "label", labels), tuple(map(key_text, classes))
    )


def _folders(table: pa.Table) -> Iterator[bytes]:
    """The first folder of each name; empty if it has none."""
    for name in table["name"].to_pylist():
        folder, slash, _ = name.partition(b"/")
        yield folder if slash else b""


def _check_complete(index: ArchiveIndex, found: _Listed) -> None:
    """Raises UsageError for a picture that cannot be read, with the reason, and for pictures without a class."""
    table = found.table
    if broken := pc.indices_nonzero(pc.is_null(table["size_bytes"])).to_pylist():
        place = MemberTable.of(index, *(table[name].fill_null(-1).to_numpy() for name in ("archive", "offset", "span")))[
            broken[0]
        ]
        try:
            read_place(place, _MOST_BYTES)
            reason = "it cannot be read"
        except RecordError as error:
            reason = error.message
        key = printable(raw_key_column(table)[broken[0]].as_py())
        raise UsageError(f"{key} in {printable(index.root)} is no picture ({reason}): fetch that archive again")
    if without := pc.indices_nonzero(pc.is_null(table["label"])).to_pylist():
        names = first_names([raw_key_column(table)[number].as_py() for number in without[:5]])
        raise UsageError(f"{counted(len(without), 'picture')} in {printable(index.root)} without a class: {names}")


def _boxes(data_dir: Path, table: pa.Table) -> BoxTable | None:
    """The boxes in the records, else those of the file beside them."""
    if table["boxes"].null_count < len(table):
        return BoxTable.of(boxes or () for boxes in table["boxes"].to_pylist())
    return listed_boxes(data_dir, table["name"].to_pylist())
