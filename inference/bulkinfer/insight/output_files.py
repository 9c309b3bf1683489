"""Where a command that looks at a job puts its files, and how it writes tables."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bulkinfer.errors import UsageError
from bulkinfer.files.atomic import publishing
from bulkinfer.files.user_path import made_folder, real_path, require_folder_place
from bulkinfer.insight.find_job import FoundJob
from bulkinfer.types import printable_path


@contextmanager
def files_folder(to: str, found: FoundJob, name: str) -> Iterator[Path]:
    """The folder for the files, made for the block: `to`, else `name` in the log folder of the job.

    Raises UsageError if there is no such log folder, or if the files would lie among the rows.
    """
    if not to and found.log_dir is None:
        raise UsageError(f"the log folder of {printable_path(found.output)} was not found: give --to FOLDER")
    folder = Path(to) if to else Path(found.log_dir or "", name)
    require_folder_place(folder, "--to")
    if real_path(folder).is_relative_to(real_path(found.output)):
        raise UsageError(f"--to {printable_path(folder)} lies among the rows of the job: give another folder")
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
