"""Which format `bulkinfer rows` writes: the one that --format names, else the one that the ending of the file's name means."""

from __future__ import annotations

from pathlib import PurePath

from bulkinfer.errors import UsageError
from bulkinfer.types import printable_path

AUTO = "auto"
FORMATS = ("csv", "jsonl", "npy", "coco", "label_studio", "fiftyone", "parquet")
_OF_ENDINGS = {
    ".csv": ("csv",),
    ".jsonl": ("jsonl",),
    ".ndjson": ("jsonl",),
    ".json": ("coco", "label_studio", "fiftyone", "jsonl"),
    ".npy": ("npy",),
    ".parquet": ("parquet",),
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
    meant = _OF_ENDINGS.get(ending)
    shown = f"--to {printable_path(to)}"
    if asked != AUTO:
        if ending in _NOT_WRITTEN or (meant and asked not in meant):
            right = " or ".join(each for each, formats in _OF_ENDINGS.items() if asked in formats)
            what = f"{shown}: {ending} is not the ending of --format {asked}"
            raise UsageError(f"{what}: give a name that ends in {right}, or another --format")
        return asked
    if not ending:
        return "csv"
    if meant is None:
        known = ", ".join(_OF_ENDINGS)
        raise UsageError(f"{shown}: no format has the ending {ending}: give --format, or a name that ends in one of {known}")
    if len(meant) > 1:
        raise UsageError(
            f"{shown}: {ending} may mean {', '.join(meant[:-1])} or {meant[-1]}: give --format {meant[0]} or another"
        )
    return meant[0]
