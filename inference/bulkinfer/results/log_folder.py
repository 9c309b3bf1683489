"""The log folder of a job, <network>-<first 8 of the fingerprint>-<UTC time of the first launch>: made once, then found again.

Its launch.json names fingerprint and output, so that jobs that differ only in --output have a folder each. Folders of earlier
versions have neither a time nor that file (docs/adr/0031-log-folders-are-found-by-their-record.md).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, TypedDict, cast

from bulkinfer.errors import BulkinferError, DamagedError, error_sentence
from bulkinfer.files.addresses import address_of, place_path
from bulkinfer.files.atomic import safe_name
from bulkinfer.files.file_lock import exclusive
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.files.json_validation import mismatch
from bulkinfer.files.own_folder import JOB_FILE, LOCK_FILE, own_folder
from bulkinfer.files.user_path import real_path
from bulkinfer.results.parquet_parts import listed_steps
from bulkinfer.types import printable_path

log = logging.getLogger("bulkinfer")

RESULTS = "results"  # in the log folder of a job without --output
RUN_FILE = "run.json"
LAUNCH_FILE = "launch.json"
SUMMARY_FILE = "summary.json"
_NAMES_OUTPUT = (RUN_FILE, SUMMARY_FILE)  # also in folders of earlier versions, each for its last launch
_TIME = re.compile(r"-[0-9]{8}T[0-9]{6}Z(-[0-9]+)?", re.ASCII)
_SHORT = 8  # digits of the fingerprint in a name


class _Content(TypedDict):
    """`output` is absolute, or relative to the log folder: logs with results in them may be moved."""

    fingerprint: str
    output: str


def job_name(model_name: str, fingerprint: str) -> str:
    """What a job is called: the name of its log folder without the time."""
    return f"{safe_name(model_name)}-{fingerprint[:_SHORT]}"


def has_name(folder: Path, name: str) -> bool:
    """True if `folder` is called as the log folder of a job of that name, with or without a time."""
    rest = folder.name.removeprefix(name)
    return folder.name.startswith(name) and (not rest or _TIME.fullmatch(rest) is not None)


def named_folders(log_path: Path, name: str) -> list[Path]:
    """The folders below `log_path` with the name of a job, the latest first; one without a time last."""
    if not log_path.is_dir():
        return []
    found = (log_path / entry for entry in os.listdir(log_path) if entry.startswith(name))
    return sorted((folder for folder in found if has_name(folder, name) and folder.is_dir()), reverse=True)


def of_fingerprint(log_path: Path, fingerprint: str) -> list[Path]:
    """The folders below `log_path` with these digits of a fingerprint in their names, in order of the names."""
    digits = f"-{fingerprint[:_SHORT]}"
    entries = sorted(os.listdir(log_path)) if log_path.is_dir() else ()
    return [log_path / entry for entry in entries if _TIME.sub("", entry).endswith(digits)]


def fingerprint_of(folder: Path) -> str:
    """The fingerprint of the job that logs to `folder`, or the digits of it in the name; empty if neither is known."""
    if (record := _record(folder)) is not None:
        return record["fingerprint"]
    digits = _TIME.sub("", real_path(folder).name).rpartition("-")[2]
    return digits if re.fullmatch(rf"[0-9a-f]{{{_SHORT}}}", digits) else ""


def logs_of_output(log_path: Path, output: Path) -> Path | None:
    """The log folder below `log_path` whose records name `output`, which may be gone: the last one; None if there is none."""
    entries = os.listdir(log_path) if log_path.is_dir() else ()
    folders = [folder for entry in entries if (folder := log_path / entry).is_dir() and not folder.is_symlink()]
    found = [folder for folder in folders if (named := recorded_output(folder)) and real_path(named) == real_path(output)]
    return max(found, key=lambda folder: folder.stat().st_mtime_ns, default=None)


def dated(log_path: Path, name: str) -> Path:
    """A new name below `log_path`, with the time."""
    return unused(log_path / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")


def unused(folder: Path) -> Path:
    """`folder`, with a number behind its name if it exists."""
    names = chain((folder,), (folder.with_name(f"{folder.name}-{number}") for number in count(2)))
    return next(name for name in names if not name.exists())


def find_log_dir(log_path: Path, name: str, fingerprint: str, output: Path | None) -> Path | None:
    """The log folder below `log_path` of the job that writes to `output`, by default into its log folder; None if none is."""
    return next((folder for folder in named_folders(log_path, name) if _is_of(folder, fingerprint, output)), None)


def _is_of(folder: Path, fingerprint: str, output: Path | None) -> bool:
    default = folder / RESULTS
    wanted = real_path(default if output is None else output)
    if (record := _record(folder)) is not None:
        return record["fingerprint"] == fingerprint and real_path(_place(folder, record["output"])) == wanted
    if wanted == real_path(default) and (
        listed_steps(default) or any((place / JOB_FILE).exists() for place in (default, own_folder(default)))
    ):
        return True
    recorded = recorded_output(folder)
    return recorded is not None and real_path(recorded) == wanted


def take_log_dir(planned: Path, name: str, fingerprint: str, output: Path | None) -> Path:
    """The log folder as find_log_dir finds it beside `planned`; or `planned`, made here with its record.

    Of several launchers that begin one job at the same time, one makes the folder, and the others find it. Raises LockedError
    if the lock for that is damaged.
    """
    log_path = planned.parent
    log_path.mkdir(parents=True, exist_ok=True)
    lock = log_path / f".{fingerprint[:16]}.lock"
    found = find_log_dir(log_path, name, fingerprint, output)
    if found is not None and not os.path.lexists(lock):  # one that a killed launcher left is taken over and removed
        return found
    with exclusive(lock, lambda: log.info(f"waiting for another launcher, which begins a job in {log_path}")):
        if (found := find_log_dir(log_path, name, fingerprint, output)) is not None:
            return found
        folder = next(filter(_is_empty, named_folders(log_path, name)), None) or unused(planned)  # of a killed launcher
        folder.mkdir(exist_ok=True)
        _write_record(folder, fingerprint, output)
        return folder


def restore_record(folder: Path, fingerprint: str, output: Path | None) -> None:
    """Write the record of a log folder, which is locked and as take_log_dir returned it, again if it holds nothing any more.

    A launch that failed has removed it then, after this one had found it.
    """
    if all(entry == LOCK_FILE for entry in os.listdir(folder)):
        _write_record(folder, fingerprint, output)


@contextmanager
def removed_if_empty(log_dir: Path) -> Iterator[None]:
    """If the block fails and leaves the log folder empty, it is removed, unless another launch begins in it meanwhile."""
    try:
        yield
    except BaseException:
        with suppress(OSError):  # it holds something, or what failed fails here too: that is raised
            log_dir.rmdir()
        raise


@contextmanager
def forgotten_if_unused(log_dir: Path) -> Iterator[None]:
    """If the block fails before anything is logged, the locked log folder names no job: it holds nothing of one.

    A launch that found the folder before that, and has locked it since, names its job there again.
    """
    try:
        yield
    except BaseException:
        with suppress(OSError):  # as above
            if {path.name for path in log_dir.iterdir()} <= {LAUNCH_FILE, LOCK_FILE}:
                (log_dir / LAUNCH_FILE).unlink(missing_ok=True)
        raise


def _write_record(folder: Path, fingerprint: str, output: Path | None) -> None:
    place = RESULTS if output is None else str(real_path(output))
    write_json(folder / LAUNCH_FILE, {"fingerprint": fingerprint, "output": place})


def _is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def recorded_output(folder: Path) -> Path | None:
    """The results folder that the records of a log folder name; None if it holds no such record.

    The default one is looked for in `folder` first: logs may have been moved, or be a copy.
    """
    if (record := _record(folder)) is not None:
        return _place(folder, record["output"])
    default = folder / RESULTS
    for name in _NAMES_OUTPUT:
        found: dict[str, Any] = {}
        if (folder / name).exists():
            try:
                found = read_json(folder / name)
            except (BulkinferError, OSError) as error:
                log.warning(f"warning: {error_sentence(error)}")
        if isinstance(output := found.get("output"), str):
            was_default = Path(output).parts[-2:] == (real_path(folder).name, RESULTS)
            return default if was_default and default.is_dir() else place_path(output)
    return default if listed_steps(default) else None


def _place(folder: Path, output: str) -> Path:
    """What a record of a log folder names: an address, or a path that may be relative to it."""
    return place_path(output) if address_of(output) else folder / output


def _record(folder: Path) -> _Content | None:
    """launch.json; None if there is none, or after a warning if it cannot be read: other records name the output too."""
    path = folder / LAUNCH_FILE
    if not path.exists():
        return None
    try:
        found: Any = read_json(path)
        if fault := mismatch(found, _Content):
            raise DamagedError(f"{printable_path(path)} is damaged ({fault})")
    except (DamagedError, OSError) as error:
        log.warning(f"warning: {error_sentence(error)}")
        return None
    return cast(_Content, found)
