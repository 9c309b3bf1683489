"""The jobs in a folder of job logs: what each has done, and whether it is running."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bulkinfer.errors import BulkinferError, ObjectError, StoreError, UsageError, error_sentence
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.own_folder import own_folder
from bulkinfer.host.status import FAILED, FINISHED, KILLED, RUNNING, STOPPED
from bulkinfer.insight.find_job import last_launch
from bulkinfer.insight.published import Published, published_rows
from bulkinfer.insight.watch import job_status
from bulkinfer.results.find_output import is_overwritten
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.job_place import no_job
from bulkinfer.results.log_folder import recorded_output
from bulkinfer.results.output_locks import launcher_in
from bulkinfer.results.output_store import output_store
from bulkinfer.results.parquet_parts import listed_steps
from bulkinfer.types import printable_path

log = logging.getLogger("bulkinfer")

DAMAGED = "damaged"  # its _job.json is, or a file of it cannot be read
UNREACHABLE = "unreachable"  # its bucket does not answer, or refuses
INCOMPLETE = "incomplete"  # it has pictures to do, and its last launch ended by itself


@dataclass(frozen=True)
class LoggedJob:
    """A log folder, and what is known of its job.

    `state` has the words of status.json: running; finished if every picture has its row; else stopped, failed or killed, as the
    last launch ended, or incomplete. Or it is damaged (its _job.json, or a file that cannot be read), gone (its output),
    overwritten (its output holds another job by now), no rows (a run without pictures) or unreachable (its bucket).
    `done` counts published rows, `size_bytes` the files of the output.
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
        raise UsageError(
            f"{printable_path(folder)} is a file: give the folder of job logs" if folder.exists() else no_job(log_path)
        )
    found = (_look_at(path) for path in folder.iterdir() if not path.is_symlink())
    return sorted(filter(None, found), key=lambda job: job.date, reverse=True)


def _look_at(log_dir: Path) -> LoggedJob | None:
    """None for a folder without a job, or one that is removed just now. One job whose files cannot be read hides no other."""
    try:
        date = last_launch(log_dir)
        found = None if date is None else _job_of(log_dir, date)
        return found if log_dir.is_dir() else None  # what was found of a folder that is half removed means nothing
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        log.warning(f"warning: {error_sentence(error)}")
        return LoggedJob(log_dir, DAMAGED, 0, 0, 0, datetime.fromtimestamp(log_dir.lstat().st_mtime), 0, None)


def _job_of(log_dir: Path, date: datetime) -> LoggedJob:
    output = recorded_output(log_dir)
    if output is None:
        return LoggedJob(log_dir, "no rows", 0, 0, 0, date, 0, None)
    if not isinstance(output, AddressPath):
        return _with_output(log_dir, date, output)
    try:
        return _with_output(log_dir, date, output)
    except (UsageError, StoreError, ObjectError):
        return LoggedJob(log_dir, UNREACHABLE, 0, 0, 0, date, 0, output)


def _with_output(log_dir: Path, date: datetime, output: Path) -> LoggedJob:
    if not output_store(output).is_there():
        return LoggedJob(log_dir, "gone", 0, 0, 0, date, 0, output)
    if is_overwritten(log_dir, output):
        return LoggedJob(log_dir, "overwritten", 0, 0, 0, date, 0, None)
    size = size_of(output)
    try:
        job = JobFile.read(output)
    except (BulkinferError, OSError) as error:
        job = None
        if isinstance(error, OSError):
            log.warning(f"warning: {error_sentence(error)}")
    if job is None:  # a launch that has just begun writes it
        state = RUNNING if launcher_in(output) else DAMAGED
        return LoggedJob(log_dir, state, sum(map(len, listed_steps(output))), 0, 0, date, size, output)
    if launcher_in(output):
        found, state = _published_so_far(log_dir, output, job), RUNNING
    else:
        found = published_rows(output, job)
        state = FINISHED if found.rows == found.total else _unfinished_state(log_dir)
    return LoggedJob(log_dir, state, found.rows, found.total, found.num_errors, date, size, output)


def _published_so_far(log_dir: Path, output: Path, job: JobFile) -> Published:
    """The rows of a job that runs. Its status.json has the error rows: the parts are not read for them."""
    try:
        stages = job_status(log_dir, counts_rows=False).status.errors
    except UsageError:  # no status.json yet
        return published_rows(output, job)
    rows, recorded = sum(map(len, listed_steps(output))), job.count_rows().errors_by_stage
    return Published(rows, job.num_records, max(stages, recorded, key=lambda each: sum(each.values())))


def _unfinished_state(log_dir: Path) -> str:
    """How the last launch of a job with pictures to do ended."""
    try:
        state = job_status(log_dir, counts_rows=False).status.state
    except UsageError:  # there is no status.json, or a newer version wrote it
        return INCOMPLETE
    return state if state in (STOPPED, FAILED, KILLED) else INCOMPLETE


def size_of(output: Path) -> int:
    """Bytes of all files in an output and its own folder."""
    if isinstance(output, AddressPath):
        return sum(
            entry.size_bytes for folder in (output, own_folder(output)) for entry in output_store(folder).entries().values()
        )
    folders = {output, own_folder(output)}
    places = (Path(above, name) for folder in folders for above, _, names in os.walk(folder) for name in names)
    return sum(map(_file_bytes, places))


def _file_bytes(path: Path) -> int:
    try:
        return os.lstat(path).st_size if path.is_file() else 0
    except FileNotFoundError:  # a running job renames and removes files
        return 0
