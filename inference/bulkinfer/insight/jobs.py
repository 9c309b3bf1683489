"""The jobs in a folder of job logs: what each has done, and whether it is running."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bulkinfer.errors import BulkinferError, UsageError
from bulkinfer.files.output_lock import launcher_in
from bulkinfer.files.own_folder import own_folder
from bulkinfer.launch.summary import SUMMARY_FILE
from bulkinfer.results.find_output import RUN_FILE, recorded_output
from bulkinfer.results.job_file import JOB_FILE, JobFile
from bulkinfer.results.parquet_parts import listed_steps
from bulkinfer.types import printable_path

_RECORDS = (SUMMARY_FILE, RUN_FILE, JOB_FILE)  # of a log folder; the first one there has the date of the last launch


@dataclass(frozen=True)
class LoggedJob:
    """A log folder, and what is known of its job.

    `state` is running, complete, incomplete, damaged (its _job.json), gone (its output) or no rows (a run without pictures).
    `done` counts published rows, `size_bytes` the files of the output. `errors` of a running job are those before this launch.
    """

    log_dir: Path
    state: str
    done: int
    total: int
    errors: int
    date: datetime
    size_bytes: int
    output: Path | None


def list_jobs(log_path: str) -> list[LoggedJob]:
    """The jobs below `log_path`, the last launched first. Raises UsageError if there is no such folder."""
    folder = Path(log_path)
    if not folder.is_dir():
        raise UsageError(f"{printable_path(folder)} does not exist: give the folder of job logs with --log_path")
    return sorted(map(_look_at, _log_dirs(folder)), key=lambda job: job.date, reverse=True)


def _log_dirs(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink() and any((path / name).is_file() for name in _RECORDS):
            yield path


def _look_at(log_dir: Path) -> LoggedJob:
    record = next(path for name in _RECORDS if (path := log_dir / name).is_file())
    date, output = datetime.fromtimestamp(record.stat().st_mtime), recorded_output(log_dir)
    if output is None:
        return LoggedJob(log_dir, "no rows", 0, 0, 0, date, 0, None)
    if not output.is_dir():
        return LoggedJob(log_dir, "gone", 0, 0, 0, date, 0, output)
    done, size = sum(map(len, listed_steps(output))), size_of(output)
    try:
        job = JobFile.read(output)
    except BulkinferError:
        job = None
    if job is None:
        return LoggedJob(log_dir, "damaged", done, 0, 0, date, size, output)
    state = "running" if launcher_in(output) else "complete" if done == job.num_records else "incomplete"
    return LoggedJob(log_dir, state, done, job.num_records, job.count_rows().errors, date, size, output)


def size_of(output: Path) -> int:
    """Bytes of all files in an output and its own folder."""
    folders = {output, own_folder(output)}
    return sum(_file_bytes(path) for folder in folders if folder.is_dir() for path in folder.rglob("*"))


def _file_bytes(path: Path) -> int:
    try:
        return os.lstat(path).st_size if path.is_file() else 0
    except FileNotFoundError:  # a running job renames and removes files
        return 0
