"""Removes jobs: the files that bulkinfer wrote, and no others; never those of a job that is running."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from bulkinfer.errors import LockedError
from bulkinfer.files.latest_link import LATEST
from bulkinfer.files.output_lock import launcher_in, output_lock, results_lock
from bulkinfer.files.own_folder import own_folder
from bulkinfer.files.user_path import real_path
from bulkinfer.host.table import size_text
from bulkinfer.insight.find_job import find_job, is_log_dir, place_of
from bulkinfer.launch.claim import all_result_files, remove_if_empty, remove_temporaries
from bulkinfer.results.find_output import RESULTS, recorded_output
from bulkinfer.results.job_file import JOB_FILE
from bulkinfer.results.part_names import STAGING
from bulkinfer.results.status_file import STATUS_FILE
from bulkinfer.types import printable_path

_LOG_FILES = (
    "run.json",
    "summary.json",
    STATUS_FILE,
    "report.html",
    JOB_FILE,
    "manifest*.parquet",
    "worker-*.log",
    "worker-*.jsonl",
)
_LOG_FOLDERS = ("retry", "score", "compare", "report")  # of other commands, in the log folder of a job


@dataclass(frozen=True)
class Removal:
    """What is to be removed of a job: its output, its log folder, or both (the other one is None)."""

    output: Path | None
    log_dir: Path | None

    def files(self) -> Iterator[Path]:
        """The files to remove, _job.json last: until then the rest is known to be of this job."""
        if self.log_dir is not None:
            for entry in sorted(self.log_dir.iterdir()):
                if entry.is_dir() and not entry.is_symlink() and entry.name in _LOG_FOLDERS:
                    yield from (path for path in sorted(entry.rglob("*")) if not path.is_dir())
                elif any(fnmatch(entry.name, pattern) for pattern in _LOG_FILES):
                    yield entry
        if self.output is not None:
            yield from (path for path in (own_folder(self.output) / STATUS_FILE,) if path.is_file())
            yield from sorted(all_result_files(self.output), key=lambda path: (path.name == JOB_FILE, path))

    @property
    def size_bytes(self) -> int:
        return sum(path.lstat().st_size for path in self.files())

    def __str__(self) -> str:
        places = [("output", self.output), ("log folder", self.log_dir)]
        shown = " and ".join(f"{what} {printable_path(path)}" for what, path in places if path is not None)
        return f"{shown}: {len(list(self.files()))} files, {size_text(self.size_bytes)}"


def plan_removals(words: tuple[str, ...], what: str, log_path: str) -> list[Removal]:
    """What is to be removed of each job; `what` is both, logs or output.

    Raises UsageError for a word that is no job, LockedError for a job that is running.
    """
    found = {
        real_path(output or log_dir or ""): (output, log_dir) for output, log_dir in (_of(word, log_path) for word in words)
    }
    for output, _ in found.values():
        if output is not None and (launcher := launcher_in(output)):
            raise LockedError(f"{printable_path(output)} is in use by {launcher}: nothing is removed")
    takes_output, takes_logs = what != "logs", what != "output"
    return [Removal(output if takes_output else None, log_dir if takes_logs else None) for output, log_dir in found.values()]


def _of(word: str, log_path: str) -> tuple[Path | None, Path | None]:
    """Output and log folder of a job. A run without pictures, and a job whose output is gone, have the log folder alone."""
    place = place_of(word, log_path)
    if is_log_dir(place) and ((output := recorded_output(place)) is None or not output.is_dir()):
        return None, place
    job = find_job(word, log_path)
    return job.output, job.log_dir


def remove(removal: Removal) -> list[Path]:
    """Remove it, under the locks of a launch; returns what stays in its folders, because bulkinfer did not write it.

    Raises LockedError if a launch has begun.
    """
    output, log_dir = removal.output, removal.log_dir
    own = None if output is None else own_folder(output)
    with ExitStack() as locks:
        if log_dir is not None:
            locks.enter_context(output_lock(log_dir, flag=""))
        if output is not None:
            locks.enter_context(results_lock(output, flag=""))
            remove_temporaries(output)
        for path in list(removal.files()):
            path.unlink()
    if output is not None and own is not None:
        for folder in (own / STAGING, own, output):
            remove_if_empty(folder)
    if log_dir is not None:
        _remove_log_folders(log_dir)
    kept = {output, own} if log_dir is None else {output, own, log_dir / RESULTS, own_folder(log_dir / RESULTS)}
    folders = dict.fromkeys(folder for folder in (output, log_dir) if folder is not None and folder.is_dir())
    return [path for folder in folders for path in sorted(folder.iterdir()) if path not in kept]


def _remove_log_folders(log_dir: Path) -> None:
    """Remove what is empty of a log folder, and the link to the newest one if it leads nowhere now."""
    for name in _LOG_FOLDERS:
        for above, _, _ in os.walk(log_dir / name, topdown=False):
            remove_if_empty(Path(above))
    remove_if_empty(log_dir)
    latest = log_dir.parent / LATEST
    if latest.is_symlink() and not latest.exists():
        latest.unlink()
