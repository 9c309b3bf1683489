"""The results folder that a user means: itself, or that of the job whose log folder is given."""

from __future__ import annotations

from pathlib import Path

from bulkinfer.errors import BulkinferError, UsageError
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.guarded import JOB_BYTES
from bulkinfer.files.own_folder import own_folder
from bulkinfer.records.sources.folder import counted
from bulkinfer.results.control_files import control_exists, read_control
from bulkinfer.results.job_copies import copy_command
from bulkinfer.results.job_file import JOB_FILE, JobFile, job_path
from bulkinfer.results.log_folder import (
    RESULTS,
    find_log_dir,
    fingerprint_of,
    job_name,
    named_folders,
    recorded_output,
)
from bulkinfer.results.output_store import output_store
from bulkinfer.results.parquet_parts import listed_steps
from bulkinfer.results.shard_set import refuse_shard_set
from bulkinfer.types import Step, printable_path, shell_word


def find_output(given: Path) -> Path:
    """`given` if it is a results folder; else that of the job whose log folder `given`, or the folder above `given`, is.

    `given` too where neither is so: JobFile.read says then what is missing. Raises UsageError if that folder is gone or holds
    another job by now, or if `given` holds the shards of a job.
    """
    if listed_steps(given) or control_exists(own_folder(given) / JOB_FILE):
        return given
    if isinstance(given, AddressPath):
        refuse_shard_set(given)
        return given
    folder = given.parent if given.name == RESULTS and not given.exists() else given
    output = recorded_output(folder)
    if output is None:
        refuse_shard_set(given)
        return given
    if not output_store(output).is_there():
        raise UsageError(f"{folder} is the log folder of a job; its results were in {output}, which is gone")
    if is_overwritten(folder, output):
        raise UsageError(
            f"{printable_path(folder)} is the log folder of a job whose results in {printable_path(output)} another job has "
            f"overwritten: to see that one: bulkinfer show {shell_word(output)}"
        )
    return output


def is_overwritten(log_dir: Path, output: Path) -> bool:
    """True if `output`, which the records of `log_dir` name, holds the results of another job by now."""
    digits, path = fingerprint_of(log_dir), job_path(output)
    if not digits or not control_exists(path):
        return False
    try:
        there = read_control(path, most_bytes=JOB_BYTES).content.get("fingerprint")
    except (BulkinferError, OSError):  # it may be of any job
        return False
    return isinstance(there, str) and not there.startswith(digits)


def log_dir_of(output: Path, job: JobFile, log_path: str) -> Path | None:
    """The log folder of the job in `output`: the one above, or one below `log_path` or where the job began; None if none is."""
    name = job_name(job.model_name, job.fingerprint)
    found = (find_log_dir(place, name, job.fingerprint, output) for place in _log_paths(output, job, log_path))
    return next(filter(None, found), None)


def logs_of_listing(output: Path, job: JobFile, log_path: str) -> list[Path]:
    """Log folders in which the job in `output` may have kept what it listed: its own first, then those of the same job.

    The latter are of other outputs, or the output was moved since.
    """
    name, places = job_name(job.model_name, job.fingerprint), _log_paths(output, job, log_path)
    own = log_dir_of(output, job, log_path)
    return list(dict.fromkeys([*filter(None, [own]), *(folder for place in places for folder in named_folders(place, name))]))


def _log_paths(output: Path, job: JobFile, log_path: str) -> list[Path]:
    began = job.config.get("log_path")
    places = [output.parent.parent] if output.name == RESULTS and not isinstance(output, AddressPath) else []
    places += [Path(log_path), *([Path(began)] if isinstance(began, str) else [])]
    return list(dict.fromkeys(places))


def require_job(output: Path) -> JobFile:
    """The checked _job.json of `output`. Raises UsageError if there is none, which names one that belongs to its parts."""
    if (found := JobFile.read(output)) is not None:
        return found
    if not (steps := list(listed_steps(output))):
        raise UsageError(f"{output} holds no {JOB_FILE}: give the results folder of a job")
    raise UsageError(
        f"{output} holds {counted(len(steps), 'part')}, but {job_path(output)} does not exist: {find_record(output, steps[0])}"
    )


def find_record(output: Path, step: Step, otherwise: str = "", log_path: str = "") -> str:
    """What to do about a part in `output` whose _job.json is not there: the command that copies one that is found nearby.

    `otherwise` is appended where none is found. `log_path` is the folder of job logs, if it is known.
    """
    if found := copy_command(output, step, log_path):
        return found
    return f"{own_folder(output)} belongs to it, and is moved and copied together with it{otherwise}"
