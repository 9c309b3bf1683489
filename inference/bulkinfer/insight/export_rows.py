"""The rows of a job in another format: where they may be written, and what writes them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import remove_stale_temporaries
from bulkinfer.files.user_path import user_path
from bulkinfer.insight.options import RowsConfig
from bulkinfer.insight.output_files import require_outside_rows
from bulkinfer.results.reader import Results
from bulkinfer.types import printable_path

Write = Callable[[Results, Path, RowsConfig], int]
_WRITERS = {  # by --format
    "csv": "flat:write_csv",
    "jsonl": "flat:write_jsonl",
    "npy": "npy:write_npy",
    "coco": "coco:write_coco",
    "label_studio": "labelling:write_label_studio",
    "fiftyone": "labelling:write_fiftyone",
    "parquet": "parquet:write_parquet",
}


class Written(NamedTuple):
    """What was written: rows, the file or folder, and the file with their keys, which npy has."""

    num_rows: int
    path: Path
    keys: Path | None


def export_rows(results: Results, config: RowsConfig) -> Written:
    """Write the rows to `config.to`, completely or not at all.

    Raises UsageError if that place is taken or wrong, or the job did not save what the format needs; RunError for a part that
    is damaged.
    """
    from bulkinfer.insight.formats.npy import keys_path

    final = user_path(config.to, "--to")
    keys = keys_path(final) if config.format == "npy" else None
    for path in filter(None, (final, keys)):
        _check_place(path, results.output, config)
    if not len(results):
        raise UsageError(f"{printable_path(results.output)} holds no rows yet")
    remove_stale_temporaries(final.parent)
    module, _, name = _WRITERS[config.format].partition(":")
    write: Write = getattr(import_module(f"bulkinfer.insight.formats.{module}"), name)
    return Written(write(results, final, config), final, keys)


def _check_place(final: Path, output: Path, config: RowsConfig) -> None:
    shown = printable_path(final)
    if not final.parent.is_dir():
        raise UsageError(f"--to {shown}: the folder {printable_path(final.parent)} does not exist: make it first")
    require_outside_rows(final, output, "--to")
    if not final.exists():
        return
    is_folder = config.format == "parquet"
    if not (final.is_dir() if is_folder else final.is_file()):
        raise UsageError(f"--to {shown} is not a {'folder' if is_folder else 'file'}: give another place")
    if not config.overwrite:
        raise UsageError(f"--to {shown} exists: give another place, or --overwrite to replace it")
