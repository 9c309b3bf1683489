"""Where a command that looks at a job puts its files, and how it writes tables."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import publishing
from bulkinfer.files.user_path import made_folder, real_path, require_folder_place, user_path
from bulkinfer.insight.find_job import FoundJob
from bulkinfer.types import printable_path


def require_outside_rows(path: Path, output: Path, flag: str) -> None:
    """Raises UsageError if `path`, the value of `flag`, is the output of a job or lies in it."""
    if real_path(path).is_relative_to(real_path(output)):
        raise UsageError(f"{flag} {printable_path(path)} lies among the rows of the job: give another place")


@contextmanager
def files_folder(to: str, found: FoundJob, name: str, files: Sequence[str], *, overwrite: bool) -> Iterator[Path]:
    """The folder for the files called `files`, made for the block: `to`, else `name` in the log folder of the job.

    Files there are replaced in the log folder, whose names are known to be ours, and elsewhere if `overwrite` says so.
    Raises UsageError if they may not be replaced, if there is no log folder, or if the files would lie among the rows.
    """
    if not to and found.log_dir is None:
        raise UsageError(f"the log folder of {printable_path(found.output)} was not found: give --to FOLDER")
    default = None if found.log_dir is None else found.log_dir / name
    folder = user_path(to, "--to") if to else Path(default or "")
    require_folder_place(folder, "--to")
    require_outside_rows(folder, found.output, "--to")
    is_default = default is not None and real_path(folder) == real_path(default)
    there = next((file for file in files if os.path.lexists(folder / file)), None)
    if there is not None and not (is_default or overwrite):
        raise UsageError(
            f"{printable_path(folder / there)} exists: give another folder with --to, or --overwrite to replace it"
        )
    with made_folder(folder):
        yield folder


@contextmanager
def csv_file(path: Path, header: Sequence[str]) -> Iterator[Any]:
    """A writer of the csv module, for a table in UTF-8 that is published when the block ends without an error.

    None is an empty field.
    """
    with publishing(path) as temporary, temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        yield writer
