"""The rows of a job in another format: where they may be written, and what writes them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import remove_stale_temporaries
from bulkinfer.files.user_path import made_folder
from bulkinfer.host.console import STDOUT
from bulkinfer.insight.class_columns import require_classes
from bulkinfer.insight.options import RowsConfig
from bulkinfer.insight.output_files import require_file_place
from bulkinfer.results.reader import Results
from bulkinfer.types import printable_path

Write = Callable[[Results, Path | None, RowsConfig], int]
_WRITERS = {  # by --format
    "csv": "flat:write_csv",
    "jsonl": "flat:write_jsonl",
    "npy": "npy:write_npy",
    "coco": "coco:write_coco",
    "label_studio": "labelling:write_label_studio",
    "fiftyone": "labelling:write_fiftyone",
    "parquet": "parquet:write_parquet",
}

_BESIDE = {  # by --format: the function that gives the path of a file beside it, and what that file holds
    "npy": ("npy:keys_path", "their keys, one a line"),
    "label_studio": ("labelling:interface_path", "the labelling interface that a project needs before it takes these tasks"),
}
_OF_CLASSES = ("coco", "label_studio", "fiftyone")  # formats that are nothing without classes
_KINDS = {False: "file", True: "folder"}


class Written(NamedTuple):
    """What was written: rows, the file or folder (None: stdout), and a file beside it, with what that holds in words."""

    num_rows: int
    path: Path | None
    beside: Path | None
    beside_holds: str


def export_rows(results: Results, config: RowsConfig) -> Written:
    """Write the rows to `config.to`, completely or not at all.

    Raises UsageError if that place is taken or wrong, or the job did not save what the format needs; RunError for a part that
    is damaged.
    """
    is_folder, is_text = config.format == "parquet", config.format not in ("npy", "parquet")
    if config.to == STDOUT and not is_text:
        raise UsageError(f"--to {STDOUT}: --format {config.format} is no text for stdout: give a {_KINDS[is_folder]}")
    final = None
    if config.to != STDOUT:
        final = require_file_place(config.to, results.output, overwrite=config.overwrite, is_folder=is_folder)
    place_of, holds = _BESIDE.get(config.format, ("", ""))
    beside = _function(place_of)(final) if place_of and final is not None else None
    if beside is not None:
        require_file_place(str(beside), results.output, overwrite=config.overwrite)
    if not len(results):
        raise UsageError(f"{printable_path(results.output)} holds no rows yet")
    if config.format in _OF_CLASSES:
        require_classes(results)
    write: Write = _function(_WRITERS[config.format])
    if final is None:
        return Written(write(results, None, config), None, None, "")
    with made_folder(final.parent):
        remove_stale_temporaries(final.parent)
        return Written(write(results, final, config), final, beside, holds)


def _function(named: str) -> Any:
    module, _, name = named.partition(":")
    return getattr(import_module(f"bulkinfer.insight.formats.{module}"), name)
