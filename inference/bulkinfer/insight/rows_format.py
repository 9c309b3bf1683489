"""Which format `bulkinfer rows` writes: the one that --format names, else the one that the ending of the file's name means."""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple

from bulkinfer.errors import UsageError
from bulkinfer.types import printable_path

AUTO = "auto"


class Format(NamedTuple):
    """A format of `bulkinfer rows`.

    Functions are named `file:function`, of insight/formats: `write` writes the rows, `beside` gives the path of a second file
    that belongs to the first and holds `beside_holds`. `endings` of a file name mean this format, the usual one first.
    `options` are those that not every format uses. `columns` are what it writes if no option names one: the first that the
    job saved. Without `is_text` it is not written to stdout.
    """

    write: str
    endings: tuple[str, ...]
    options: tuple[str, ...] = ()
    is_text: bool = True
    is_folder: bool = False
    needs_classes: bool = False
    columns: tuple[str, ...] = ()
    beside: str = ""
    beside_holds: str = ""


FORMATS = {  # by the value of --format
    "csv": Format("flat:write_csv", (".csv",), ("top_k",)),
    "jsonl": Format("flat:write_jsonl", (".jsonl", ".ndjson", ".json"), ("top_k",)),
    "npy": Format(
        "npy:write_npy",
        (".npy",),
        ("column",),
        is_text=False,
        columns=("embedding", "logits"),
        beside="npy:keys_path",
        beside_holds="their keys, one a line",
    ),
    "coco": Format("coco:write_coco", (".json",), ("top_k",), needs_classes=True),
    "label_studio": Format(
        "labelling:write_label_studio",
        (".json",),
        ("prefix",),
        needs_classes=True,
        beside="labelling:interface_path",
        beside_holds="the labelling interface that a project needs before it takes these tasks",
    ),
    "fiftyone": Format("labelling:write_fiftyone", (".json",), needs_classes=True),
    "parquet": Format("parquet:write_parquet", (".parquet",), ("rows_per_file",), is_text=False, is_folder=True),
}
_OF_SHEETS = {".tsv", ".xls", ".xlsx", ".ods"}
_OF_ARRAYS = {".npz", ".h5", ".hdf5", ".arrow", ".feather", ".orc", ".pkl", ".pickle"}
_OF_ARCHIVES = {".gz", ".bz2", ".xz", ".zst", ".zip", ".tar"}
_OF_OTHERS = {".xml", ".yaml", ".yml", ".html", ".sqlite", ".db"}
_NOT_WRITTEN = _OF_SHEETS | _OF_ARRAYS | _OF_ARCHIVES | _OF_OTHERS


def format_for(asked: str, to: str) -> str:
    """The format of what --to names. `asked` is the value of --format; with AUTO a name without an ending means csv.

    Raises UsageError if the ending means another format than `asked`, or with AUTO not one of FORMATS alone.
    """
    ending = PurePath(to).suffix.lower()
    meant = sorted((name for name, each in FORMATS.items() if ending in each.endings), key=lambda name: _rank(name, ending))
    shown = f"--to {printable_path(to)}"
    if asked != AUTO:
        if ending in _NOT_WRITTEN or (meant and asked not in meant):
            right = " or ".join(FORMATS[asked].endings)
            what = f"{shown}: {ending} is not the ending of --format {asked}"
            raise UsageError(f"{what}: give a name that ends in {right}, or another --format")
        return asked
    if not ending:
        return "csv"
    if not meant:
        known = ", ".join(dict.fromkeys(each for format in FORMATS.values() for each in format.endings))
        raise UsageError(f"{shown}: no format has the ending {ending}: give --format, or a name that ends in one of {known}")
    if len(meant) > 1:
        raise UsageError(
            f"{shown}: {ending} may mean {', '.join(meant[:-1])} or {meant[-1]}: give --format {meant[0]} or another"
        )
    return meant[0]


def _rank(name: str, ending: str) -> int:
    """Formats come first whose usual ending it is."""
    return FORMATS[name].endings.index(ending)


def formats_with(option: str) -> list[str]:
    """The formats that use an option of `bulkinfer rows`; none if all do."""
    return [name for name, format in FORMATS.items() if option in format.options]
