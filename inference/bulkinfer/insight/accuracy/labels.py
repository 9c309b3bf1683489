"""Where labels come from: the rows, the class folders of the keys, a table of file names and labels, or COCO annotations."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bulkinfer.errors import UsageError
from bulkinfer.insight.accuracy.key_match import KeyMatch
from bulkinfer.insight.class_names import ClassNames
from bulkinfer.insight.picture_file import picture_folder
from bulkinfer.records.manifest_rows import KEY_COLUMNS, raw_key_column
from bulkinfer.records.sources.archive_names import kind_by_name
from bulkinfer.records.sources.coco import read_annotations
from bulkinfer.records.sources.folder import counted
from bulkinfer.records.sources.label_table import read_label_table
from bulkinfer.records.sources.labels import FOLDER_WORDS, named_classes
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.reader import Results
from bulkinfer.types import key_text, printable_path

_FLAG = "--labels"

Label = tuple[str, ...]  # the label of a picture as it is written, several of COCO; () if it has none


@dataclass(frozen=True)
class Labels:
    """`of(rows)` gives the label of each of some rows, a table with the columns of their keys and those in `columns`.

    `source` says where the labels come from; `without_row()` counts unused names.
    """

    of: Callable[[pa.Table], list[Label]]
    source: str
    columns: tuple[str, ...] = ()
    without_row: Callable[[], int] = lambda: 0


def open_labels(wanted: str, results: Results, names: ClassNames) -> Labels:
    """The labels that --labels asks for; those in the rows if `wanted` is empty. Memory: the file of labels.

    `names` are those of the network's classes. Raises UsageError if the file is missing or of no known form, if it is not clear
    which key a name means, or if labels in the rows are wanted and there are none.
    """
    if not wanted:
        return _in_rows(results, names)
    if wanted in FOLDER_WORDS:
        return Labels(_of_folders, "the first folder of each key")
    path = Path(wanted)
    shown = printable_path(path)
    if path.is_dir():
        raise UsageError(f"{_FLAG}: {shown} is a folder: for labels from the folders of the keys, type --labels folder")
    if path.suffix.lower() == ".json":
        categories = _categories(path, results)
        return _of_names(categories, results, f"{counted(len(categories), 'image')} of {shown}", any_folder=True)
    table = read_label_table(path, _FLAG)
    labels = {name: (key_text(label),) for name, label in table.labels.items()}
    return _of_names(labels, results, f"{counted(len(labels), 'line')} of {shown}", any_folder=False)


def are_of_no_class(job: JobFile, names: ClassNames) -> bool:
    """True if the labels in the rows of a job have names, and none is a class of its network: no row can be scored by them."""
    known = named_classes(job.content.get("label_classes")) if names else {}
    return bool(known) and not any(names.find(label) for label in known.values())


def _in_rows(results: Results, names: ClassNames) -> Labels:
    """The column `label`: numbers. They mean the names that _job.json has for them, if the network has names of classes."""
    if not any(rows["label"].null_count < len(rows) for rows in results.tables(("label",))):
        raise UsageError(
            f"no labels given, and the rows of {printable_path(results.output)} have none: use --labels folder, or --labels "
            "FILE with a table or COCO annotations"
        )
    known = named_classes(results.job.get("label_classes")) if names else {}

    def of(rows: pa.Table) -> list[Label]:
        return [() if number is None else (known.get(number, str(number)),) for number in rows["label"].to_pylist()]

    return Labels(of, f"the column label of the rows{'' if known else ', as numbers of classes'}", ("label",))


def _of_folders(rows: pa.Table) -> list[Label]:
    keys = raw_key_column(rows).to_pylist()
    begins = {folder: _begin_inside(folder) for folder in {key.rpartition(b"/")[0] for key in keys}}
    keys = [key[begins[key.rpartition(b"/")[0]] :] for key in keys]
    return [(key_text(key.partition(b"/")[0]),) if b"/" in key else () for key in keys]


def _begin_inside(folder: bytes) -> int:
    """Where in the keys of a folder the path within their archive begins; 0 if the folder lies in none."""
    ends = (at for at, byte in enumerate(folder + b"/") if byte == ord("/"))
    return next((end + 1 for end in ends if kind_by_name(folder[:end])), 0)


def _categories(path: Path, results: Results) -> dict[bytes, Label]:
    """The categories of each image in COCO annotations, by its file name."""
    folder = picture_folder(results.job.get("config", {}))
    found = read_annotations(path, os.fsencode(folder), _FLAG)
    texts = found.category_texts
    name_of = {number: str(number) for number in range(len(texts))} | found.categories
    labels = {image.name: tuple(name_of.get(each, str(each)) for each in image.category_ids or ()) for image in found.images}
    if not any(labels.values()):
        raise UsageError(f"{_FLAG}: {printable_path(path)} has no categories: give an instances_*.json of COCO")
    return labels


def _of_names(labels: Mapping[bytes, Label], results: Results, source: str, *, any_folder: bool) -> Labels:
    exact = set[bytes]()
    for rows in results.tables(KEY_COLUMNS):  # before all else: a name that is a key as it stands belongs to no other key
        exact.update(key for key in raw_key_column(rows).to_pylist() if key in labels)
    match = KeyMatch(labels, exact, _FLAG, any_folder=any_folder)

    def of(rows: pa.Table) -> list[Label]:
        keys = raw_key_column(rows).to_pylist()
        return [labels[name] if (name := match.find(key)) is not None else () for key in keys]

    return Labels(of, source, without_row=lambda: match.num_without_key)
