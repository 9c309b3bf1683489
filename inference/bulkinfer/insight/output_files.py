"""Where a command that looks at a job puts what --to asks for, by the same rules in all of them; and how it writes tables.

Missing folders are made. What is there is replaced only with --overwrite. Nothing is put among the rows of the job. `-` is
stdout.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import address_of
from bulkinfer.files.atomic import publishing
from bulkinfer.files.own_folder import require_outside_results
from bulkinfer.files.user_path import made_folder, real_path, require_folder_place, user_path
from bulkinfer.host.console import ReaderHasEnough
from bulkinfer.insight.find_job import FoundJob
from bulkinfer.types import printable_path


def require_file_place(to: str, output: Path | None, *, overwrite: bool, is_folder: bool = False) -> Path:
    """The path of the file (or folder, if it `is_folder`) that --to names.

    Raises UsageError if it cannot be there, lies in `output`, the rows of a job, or is there and may not be replaced.
    """
    path = _local(to)
    shown = printable_path(path)
    if _is_stream(path):
        raise UsageError(f"--to {shown} is no file: give the name of a file, or - for stdout")
    if path.is_dir() and not is_folder:
        raise UsageError(f"--to {shown} is a folder: give the name of a file in it")
    if path.exists() and is_folder and not path.is_dir():
        raise UsageError(f"--to {shown} is a file: give a folder")
    require_folder_place(path.parent, "--to")
    if output is not None:
        _require_outside_rows(path, output)
    require_outside_results(path, "--to")
    if os.path.lexists(path) and not overwrite:
        raise UsageError(_taken(path))
    return path


def _local(to: str) -> Path:
    if address := address_of(to):
        raise UsageError(f"--to {address}: such files are written to this machine alone: give a path")
    return user_path(to, "--to")


def _is_stream(path: Path) -> bool:
    """True for a pipe or a device, and for a name of what this process has open: a file is never published in its place."""
    is_of_process = os.path.abspath(path).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    return is_of_process or (path.exists() and not path.is_file() and not path.is_dir())


def _taken(path: Path) -> str:
    return f"{printable_path(path)} exists: give another place with --to, or --overwrite to replace it"


def _require_outside_rows(path: Path, output: Path) -> None:
    """Raises UsageError if `path` is the output of a job or lies in it."""
    if real_path(path).is_relative_to(real_path(output)):
        raise UsageError(f"--to {printable_path(path)} lies among the rows of the job: give another place")


@contextmanager
def files_folder(to: str, found: FoundJob, name: str, files: Sequence[str], *, overwrite: bool) -> Iterator[Path]:
    """The folder for the files called `files`, made for the block: `to`, else `name` in the log folder of the job.

    Files there are replaced in the log folder, whose names are known to be ours, and elsewhere if `overwrite` says so.
    Raises UsageError if they may not be replaced, if there is no log folder, or if the files would lie among the rows.
    """
    if not to and found.log_dir is None:
        raise UsageError(f"the log folder of {printable_path(found.output)} was not found: give --to FOLDER")
    default = None if found.log_dir is None else found.log_dir / name
    folder = _local(to) if to else Path(default or "")
    require_folder_place(folder, "--to")
    _require_outside_rows(folder, found.output)
    require_outside_results(folder, "--to")
    is_default = default is not None and real_path(folder) == real_path(default)
    there = next((file for file in files if os.path.lexists(folder / file)), None)
    if there is not None and not (is_default or overwrite):
        raise UsageError(_taken(folder / there))
    with made_folder(folder):
        yield folder


@contextmanager
def written_file(path: Path | None) -> Iterator[BinaryIO]:
    """A file that is published as `path` when the block ends without an error, with the folders above it; None: stdout.

    Raises OSError that names stdout if that cannot be written to, ReaderHasEnough if nobody reads it any more.
    """
    if path is None:
        with _naming_stdout(), os.fdopen(os.dup(1), "wb") as file:
            yield file
            file.flush()
        return
    with made_folder(path.parent), publishing(path) as temporary, temporary.open("wb") as file:
        yield file


@contextmanager
def _naming_stdout() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ReaderHasEnough from None
    except OSError as error:
        error.filename = error.filename or "stdout"
        raise


def write_stdout(content: dict[str, Any]) -> None:
    """Write a JSON object to stdout. It is no failure if nobody reads it to its end."""
    with suppress(ReaderHasEnough), written_file(None) as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=True).encode() + b"\n")


@contextmanager
def csv_file(path: Path, header: Sequence[str]) -> Iterator[Any]:
    """A writer of the csv module, for a table in UTF-8 that is published when the block ends without an error.

    None is an empty field.
    """
    with publishing(path) as temporary, temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        yield writer
