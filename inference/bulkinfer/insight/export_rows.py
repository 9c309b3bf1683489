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
from bulkinfer.insight.rows_format import FORMATS
from bulkinfer.results.reader import Results
from bulkinfer.types import printable_path

Write = Callable[[Results, Path | None, RowsConfig], int]
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
    format = FORMATS[config.format]
    if config.to == STDOUT and not format.is_text:
        raise UsageError(f"--to {STDOUT}: --format {config.format} is no text for stdout: give a {_KINDS[format.is_folder]}")
    final = None
    if config.to != STDOUT:
        final = require_file_place(config.to, results.output, overwrite=config.overwrite, is_folder=format.is_folder)
    beside = _function(format.beside)(final) if format.beside and final is not None else None
    if beside is not None:
        require_file_place(str(beside), results.output, overwrite=config.overwrite)
    if not len(results):
        raise UsageError(f"{printable_path(results.output)} holds no rows yet")
    if format.needs_classes:
        require_classes(results)
    write: Write = _function(format.write)
    if final is None:
        return Written(write(results, None, config), None, None, "")
    with made_folder(final.parent):
        remove_stale_temporaries(final.parent)
        return Written(write(results, final, config), final, beside, format.beside_holds)


def _function(named: str) -> Any:
    module, _, name = named.partition(":")
    return getattr(import_module(f"bulkinfer.insight.formats.{module}"), name)
