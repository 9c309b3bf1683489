"""The folder that a user means by JOB: an output, a log folder, a name below the folder of job logs, or the newest job."""

from __future__ import annotations

import os
from pathlib import Path

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.addresses import AddressPath, address_of, place_path
from bulkinfer.files.latest_link import LATEST, linked_folder
from bulkinfer.files.user_path import did_you_mean, user_path
from bulkinfer.records.data_dir import pictures_here
from bulkinfer.results.find_output import find_output
from bulkinfer.results.log_folder import RESULTS, logs_of_output, named_folders
from bulkinfer.results.output_store import require_bucket
from bulkinfer.types import explained, printable_path, shell_word


def place_and_output(word: str | None, log_path: str) -> tuple[Path, Path]:
    """The folder that a user names, of the newest job if `word` is None or empty, and the results folder of that job.

    Raises UsageError if there is none.
    """
    given = place_of(word, log_path) if word else newest(log_path)
    output = find_output(given)
    if not word and output == given:
        raise UsageError(
            f"{printable_path(given)}, the newest run, wrote no rows: name a job by its results, its log folder or its name"
        )
    return given, output


def newest(log_path: str) -> Path:
    """The folder that the link `latest` in `log_path` names. It need not be of a job. Raises UsageError if there is none."""
    latest = Path(log_path) / LATEST
    if not latest.is_dir():
        raise UsageError(no_job(log_path))
    return linked_folder(latest)


def no_job(log_path: str) -> str:
    """The sentence about a folder of job logs that has no newest job."""
    if address := address_of(log_path):
        return f"{address} is no folder of this machine: give the folder of job logs"
    folder = Path(log_path)
    if _log_folders(folder):
        listing = f"bulkinfer jobs{'' if log_path == LaunchConfig.log_path else f' {shell_word(folder)}'}"
        return f"{printable_path(folder)} has no link {LATEST} to the newest job: name one that {listing} lists"
    if not folder.exists() and log_path != LaunchConfig.log_path:
        return f"{printable_path(folder)} does not exist: {did_you_mean(folder) or 'give the folder of job logs'}"
    command = f"bulkinfer run {shell_word(pictures_here() or 'PHOTOS')}"
    return f"no job yet in {printable_path(folder)}: {explained(command)}"


def place_of(word: str, log_path: str) -> Path:
    """The folder that a user names: an output, or a log folder, also by its name below `log_path`, with or without the time.

    Of an output that is gone it is the log folder. It need not be of a job. Raises UsageError if there is none, or if
    several have that name.
    """
    given = place_path(user_path(word, "the job"))
    if isinstance(given, AddressPath):
        require_bucket(given, "")
        return given
    if given.is_dir():
        return linked_folder(given)
    if given.exists():
        raise UsageError(f"{printable_path(given)} is a file: name a job by its results, its log folder or its name")
    if "/" not in word and (named := named_folders(Path(log_path), word)):
        if named[-1].name != word and len(named) > 1:
            names = ", ".join(folder.name for folder in reversed(named))
            raise UsageError(f"{word} begins the names of {names} in {printable_path(log_path)}: give a whole name")
        return linked_folder(named[-1])
    if (logs := logs_of_output(Path(log_path), given)) is not None:
        return logs
    if given.name == RESULTS and given.parent.is_dir():  # of a job with --output: find_output knows where its results are
        return given
    latest = given.parent if given.name == RESULTS else given
    if latest.name == LATEST:
        raise UsageError(no_job(str(latest.parent) if "/" in word else log_path))
    meant = did_you_mean(given, _log_folders(Path(log_path)) if "/" not in word else ())
    meant = meant or "name a job by its results, its log folder or its name"
    raise UsageError(f"{printable_path(given)} does not exist: {meant}")


def _log_folders(log_path: Path) -> list[str]:
    """The names of the folders below the folder of job logs, the oldest first of those with one network."""
    if not log_path.is_dir():
        return []
    with os.scandir(log_path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name[0] != ".")
