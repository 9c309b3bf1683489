"""Removes jobs: the files that bulkinfer wrote, and no others; never those of a job that is running."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bulkinfer.errors import LockedError, UsageError
from bulkinfer.files.addresses import AddressPath, place_path
from bulkinfer.files.atomic import remove_abandoned, remove_stale_temporaries
from bulkinfer.files.latest_link import LATEST
from bulkinfer.files.output_lock import output_lock
from bulkinfer.files.own_folder import own_folder
from bulkinfer.files.user_path import real_path
from bulkinfer.host.number_text import size_text
from bulkinfer.insight.accuracy import score_files
from bulkinfer.insight.comparison import compare, join
from bulkinfer.insight.find_job import find_job, is_log_dir
from bulkinfer.insight.report.report import FILE as REPORT_FILE
from bulkinfer.launch.claim import remove_temporaries
from bulkinfer.launch.jobs.result_files import all_result_files, remove_if_empty, remove_result
from bulkinfer.launch.jobs.saved_manifest import is_kept_manifest
from bulkinfer.launch.retry import LOG_FOLDER as RETRY_FOLDER
from bulkinfer.results.control_files import control_exists
from bulkinfer.results.find_output import is_overwritten
from bulkinfer.results.job_file import JOB_FILE
from bulkinfer.results.job_place import place_of
from bulkinfer.results.log_folder import LAUNCH_FILE, RESULTS, RUN_FILE, SUMMARY_FILE, fingerprint_of, recorded_output
from bulkinfer.results.output_locks import launcher_in, lock_of_output
from bulkinfer.results.output_store import output_store
from bulkinfer.results.part_names import STAGING
from bulkinfer.results.shard import SHARDS_FILE
from bulkinfer.results.shard_set import read_shard_set
from bulkinfer.results.status_file import STATUS_FILE
from bulkinfer.types import printable_path, shell_word

_WORKER_FILE = re.compile(r"worker-[0-9]+\.(log|jsonl)|node-[0-9]+\.(run|permit)\.json")


def _is_of_a_launch(name: str) -> bool:
    known = (LAUNCH_FILE, RUN_FILE, SUMMARY_FILE, STATUS_FILE, JOB_FILE, REPORT_FILE)
    return name in known or is_kept_manifest(name) or _WORKER_FILE.fullmatch(name) is not None


_LOG_FOLDERS: dict[str, Callable[[str], bool]] = {  # of other commands, in the log folder of a job: which files they write
    RETRY_FOLDER: _is_of_a_launch,
    score_files.FOLDER: score_files.NAMES.__contains__,
    compare.FOLDER: compare.NAMES.__contains__,
}


@dataclass(frozen=True)
class Removal:
    """What is to be removed of a job: its output, its log folder, or both (the other one is None)."""

    output: Path | None
    log_dir: Path | None

    def files(self) -> Iterator[Path]:
        """The files to remove, _job.json last: until then the rest is known to be of this job."""
        if self.log_dir is not None:
            yield from _named(self.log_dir, _is_of_a_launch)
            for folder in _log_folders(self.log_dir):
                yield from _named(folder, _LOG_FOLDERS[folder.name])
        if self.output is not None:
            yield from (path for path in (own_folder(self.output) / STATUS_FILE,) if control_exists(path))
            yield from sorted(all_result_files(self.output), key=lambda path: (path.name == JOB_FILE, path))

    @property
    def size_bytes(self) -> int:
        return sum(map(_size_bytes, self.files()))

    def __str__(self) -> str:
        places = [("output", self.output), ("log folder", self.log_dir)]
        shown = " and ".join(f"{what} {printable_path(path)}" for what, path in places if path is not None)
        return f"{shown}: {len(list(self.files()))} files, {size_text(self.size_bytes)}"


def _size_bytes(path: Path) -> int:
    if isinstance(path, AddressPath):
        return output_store(path.parent).size_bytes(path.name) or 0
    return path.lstat().st_size


def _named(folder: Path, is_own: Callable[[str], bool]) -> Iterator[Path]:
    """The files of a folder whose names bulkinfer gives, links too, but no folders."""
    return (path for path in sorted(folder.iterdir()) if is_own(path.name) and (path.is_symlink() or not path.is_dir()))


def _log_folders(log_dir: Path) -> list[Path]:
    """The folders in which other commands put their files about a job."""
    places = (log_dir / name for name in _LOG_FOLDERS)
    return [place for place in places if place.is_dir() and not place.is_symlink()]


def plan_removals(words: tuple[str, ...], what: str, log_path: str) -> list[Removal]:
    """What is to be removed of each job; `what` is both, logs or output. A folder of shards stands for all of them.

    Raises UsageError for a word that is no job, or a job that has nothing of `what`; LockedError for a job that is running.
    """
    removals, nothing = dict[Path, Removal](), Removal(None, None)
    for word in words:
        found = [_of(place, log_path) for place in _places(word)]
        for output, _ in found:
            if output is not None and (launcher := launcher_in(output)):
                raise LockedError(f"{printable_path(output)} is in use by {launcher}: nothing is removed")
        chosen = {real_path(output or log_dir or ""): _chosen(output, log_dir, what) for output, log_dir in found}
        if all(removal == nothing for removal in chosen.values()):
            raise UsageError(_has_none(word, what))
        removals |= {place: removal for place, removal in chosen.items() if removal != nothing}
    return list(removals.values())


def _chosen(output: Path | None, log_dir: Path | None, what: str) -> Removal:
    return Removal(None if what == "logs" else output, None if what == "output" else log_dir)


def _has_none(word: str, what: str) -> str:
    """The sentence about a job that has only its log folder, or only its results, and `what` is the other one."""
    other, lacks, has = ("logs", "results", "log folder") if what == "output" else ("output", "log folder", "results")
    return f"the job of {printable_path(word)} has no {lacks}: give --what {other} to remove its {has}"


def _places(word: str) -> list[str]:
    """`word`, or the shards in the folder that it names."""
    if (shards := read_shard_set(place_path(word))) is None:
        return [word]
    if found := [str(output) for shard in shards if output_store(output := shards.output(shard)).is_there()]:
        return found
    raise UsageError(f"{printable_path(word)} holds no shard any more: remove {shell_word(place_path(word) / SHARDS_FILE)}")


def _of(word: str, log_path: str) -> tuple[Path | None, Path | None]:
    """Output and log folder of a job.

    The log folder alone: of a run without pictures, of a job whose output is gone or holds another job,
    and one that a killed launcher left empty.
    """
    place = place_of(word, log_path)
    if isinstance(place, AddressPath):
        job = find_job(word, log_path)
        return job.output, job.log_dir
    if is_log_dir(place):
        output = recorded_output(place)
        if output is None or not output_store(output).is_there() or is_overwritten(place, output):
            return None, place
    elif real_path(place.parent) == real_path(log_path) and fingerprint_of(place) and not any(place.iterdir()):
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
            locks.enter_context(lock_of_output(output, flag=""))
            remove_temporaries(output)
        if log_dir is not None:
            _remove_log_temporaries(log_dir)
        for path in list(removal.files()):
            remove_result(path)
    if output is not None and own is not None:
        for folder in (own / STAGING, own, output):
            remove_if_empty(folder)
        if control_exists(shared := output.parent / SHARDS_FILE) and not _has_shards(output.parent):
            remove_result(shared)
            remove_if_empty(output.parent)
    if log_dir is not None:
        _remove_log_folders(log_dir)
    kept = {output, own} if log_dir is None else {output, own, log_dir / RESULTS, own_folder(log_dir / RESULTS)}
    within = [] if log_dir is None else _log_folders(log_dir)
    folders = dict.fromkeys(folder for folder in (output, log_dir, *within) if folder is not None)
    left = (folder / name for folder in folders for name in sorted(output_store(folder).entries()))
    return [path for path in left if path not in kept and path not in within]


def _has_shards(folder: Path) -> bool:
    if isinstance(folder, AddressPath):
        return any(name.startswith("shard-") for name in output_store(folder).readable_files())
    return any(folder.glob("shard-*-of-*"))


def _remove_log_temporaries(log_dir: Path) -> None:
    """Remove what processes that have ended were writing there."""
    for folder in (log_dir, *_log_folders(log_dir)):
        remove_stale_temporaries(folder)
        remove_abandoned(folder, join.ABANDONED)


def _remove_log_folders(log_dir: Path) -> None:
    """Remove what is empty of a log folder, and the link to the newest one if it leads nowhere now."""
    for folder in _log_folders(log_dir):
        remove_if_empty(folder)
    remove_if_empty(log_dir)
    latest = log_dir.parent / LATEST
    if latest.is_symlink() and not latest.exists():
        latest.unlink()
