"""The job that a user means: by its output, by its log folder, by its name, or the newest."""

from __future__ import annotations

import logging
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import BulkinferError, UsageError, error_sentence
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.latest_link import linked_folder
from bulkinfer.files.user_path import real_path
from bulkinfer.results.find_output import is_overwritten, log_dir_of, require_job
from bulkinfer.results.job_file import JOB_FILE, JobFile
from bulkinfer.results.job_place import place_and_output
from bulkinfer.results.log_folder import (
    LAUNCH_FILE,
    RESULTS,
    RUN_FILE,
    SUMMARY_FILE,
    has_name,
    job_name,
    recorded_output,
)
from bulkinfer.types import explained, printable_path, shell_word

log = logging.getLogger("bulkinfer")

# Of a log folder; the first one there has the date of the last launch
_RECORDS = (SUMMARY_FILE, RUN_FILE, JOB_FILE, LAUNCH_FILE)


@dataclass(frozen=True)
class FoundJob:
    """A job with an output: the folder of its results, that of its logs (None: not found), and its checked _job.json."""

    output: Path
    log_dir: Path | None
    job: JobFile

    @property
    def name(self) -> str:
        """That of the log folder; without one the same but the time."""
        if self.log_dir is None:
            return job_name(self.job.model_name, self.job.fingerprint)
        return linked_folder(self.log_dir).name


def find_job(word: str | None, log_path: str = LaunchConfig.log_path) -> FoundJob:
    """The job of an output, a log folder, or a name below `log_path`; the newest one there if `word` is None or empty.

    Raises UsageError if there is none, RunError if its _job.json is damaged.
    """
    given, output = place_and_output(word, log_path)
    job = require_job(output)
    return FoundJob(output, _log_dir(given, output, job, log_path), job)


def newest_with(outputs: Sequence[str], log_path: str) -> FoundJob:
    """The job below `log_path` that was launched last of those that saved one of the `outputs` of a network.

    Raises UsageError if there is none.
    """
    folder = Path(log_path)
    log_dirs = [path for path in folder.iterdir() if not path.is_symlink()] if folder.is_dir() else []
    dated = [(date, log_dir) for log_dir in log_dirs if (date := last_launch(log_dir)) is not None]
    for _, log_dir in sorted(dated, reverse=True):
        if (job := _job_of(log_dir)) is not None and not set(outputs).isdisjoint(job.job.identity.get("save", [])):
            return job
    wanted = " or ".join(outputs)
    there = [] if log_path == LaunchConfig.log_path else ["--log_path", shell_word(folder)]
    command = explained(" ".join(["bulkinfer run PHOTOS --save topk", outputs[0], *there]))
    raise UsageError(f"no job in {printable_path(folder)} saved {wanted}: run {command}")


def _job_of(log_dir: Path) -> FoundJob | None:
    """The job that logged to `log_dir`; None if it has no rows any more, or, after a warning, if it cannot be read."""
    try:
        output = recorded_output(log_dir)
        job = JobFile.read(output) if output is not None and not is_overwritten(log_dir, output) else None
    except (BulkinferError, OSError) as error:
        log.warning(f"warning: {error_sentence(error)}")
        return None
    return FoundJob(output, log_dir, job) if output is not None and job is not None else None


def _log_dir(given: Path, output: Path, job: JobFile, log_path: str) -> Path | None:
    """The log folder of the job in `output`: `given`, the folder above, or the one that its launch logged to.

    One whose records name another output is not of this job: with earlier versions, jobs that differ only in --output shared a
    log folder.
    """
    name = job_name(job.model_name, job.fingerprint)
    places = () if isinstance(given, AddressPath) else (given, given.parent)
    named = (place for place in places if has_name(place, name) or has_name(real_path(place), name))
    mine = (place for place in named if is_log_dir(place) and _is_of_output(place, output))
    return next(mine, None) or log_dir_of(output, job, log_path)


def _is_of_output(log_dir: Path, output: Path) -> bool:
    recorded = recorded_output(log_dir) or log_dir / RESULTS  # without a record: the default place
    return real_path(recorded) == real_path(output)


def is_log_dir(folder: Path) -> bool:
    """True if a launch has logged to `folder`, or begun to."""
    return any((folder / name).is_file() for name in _RECORDS)


def last_launch(log_dir: Path) -> datetime | None:
    """When the last launch that logged to `log_dir` began or ended; None if none did, or if its logs have just been removed."""
    for name in _RECORDS:
        with suppress(FileNotFoundError, NotADirectoryError):
            record = (log_dir / name).stat()
            if stat.S_ISREG(record.st_mode):
                return datetime.fromtimestamp(record.st_mtime)
    return None
