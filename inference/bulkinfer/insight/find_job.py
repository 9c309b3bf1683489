"""The job that a user means: by its output, by its log folder, by its name, or the newest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.latest_link import LATEST, linked_folder
from bulkinfer.files.user_path import real_path, user_path
from bulkinfer.results.find_output import find_output, log_dir_of, require_job
from bulkinfer.results.job_file import JOB_FILE, JobFile
from bulkinfer.results.log_folder import (
    LAUNCH_FILE,
    RESULTS,
    RUN_FILE,
    SUMMARY_FILE,
    has_name,
    job_name,
    logs_of_output,
    named_folders,
    recorded_output,
)
from bulkinfer.types import printable_path


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
    given = place_of(word, log_path) if word else newest(log_path)
    output = find_output(given)
    if not word and output == given:
        raise UsageError(f"{printable_path(given)}, the newest run, wrote no rows: name a job by its output or its log folder")
    job = require_job(output)
    return FoundJob(output, _log_dir(given, output, job, log_path), job)


def newest(log_path: str) -> Path:
    """The folder that the link `latest` in `log_path` names. It need not be of a job. Raises UsageError if there is none."""
    latest = Path(log_path) / LATEST
    if not latest.is_dir():
        raise UsageError(f"{printable_path(latest)} does not exist: name a job by its output or its log folder")
    return linked_folder(latest)


def place_of(word: str, log_path: str) -> Path:
    """The folder that a user names: an output, or a log folder, also by its name below `log_path`, with or without the time.

    Of an output that is gone it is the log folder. It need not be of a job. Raises UsageError if there is none, or if
    several have that name.
    """
    given = user_path(word, "the job")
    if given.is_dir():
        return linked_folder(given)
    if given.exists():
        raise UsageError(f"{printable_path(given)} is a file: name a job by its output or its log folder")
    if "/" not in word and (named := named_folders(Path(log_path), word)):
        if named[-1].name != word and len(named) > 1:
            names = ", ".join(folder.name for folder in reversed(named))
            raise UsageError(f"{word} begins the names of {names} in {printable_path(log_path)}: give a whole name")
        return linked_folder(named[-1])
    if (logs := logs_of_output(Path(log_path), given)) is not None:
        return logs
    if given.name == RESULTS and given.parent.is_dir():  # of a job with --output: find_output knows where its results are
        return given
    raise UsageError(f"{printable_path(given)} does not exist: name a job by its output or its log folder")


def _log_dir(given: Path, output: Path, job: JobFile, log_path: str) -> Path | None:
    """The log folder of the job in `output`: `given`, the folder above, or the one that its launch logged to.

    One whose records name another output is not of this job: with earlier versions, jobs that differ only in --output shared a
    log folder.
    """
    name = job_name(job.model_name, job.fingerprint)
    named = (place for place in (given, given.parent) if has_name(place, name) or has_name(real_path(place), name))
    mine = (place for place in named if is_log_dir(place) and _is_of_output(place, output))
    return next(mine, None) or log_dir_of(output, job, log_path)


def _is_of_output(log_dir: Path, output: Path) -> bool:
    recorded = recorded_output(log_dir) or log_dir / RESULTS  # without a record: the default place
    return real_path(recorded) == real_path(output)


def is_log_dir(folder: Path) -> bool:
    """True if a launch has logged to `folder`, or begun to."""
    return any((folder / name).is_file() for name in (LAUNCH_FILE, RUN_FILE, SUMMARY_FILE, JOB_FILE))
