"""The results folder that a user means: itself, or that of the job whose log folder is given."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError, UsageError
from bulkinfer.files.json_file import read_json
from bulkinfer.files.own_folder import own_folder
from bulkinfer.files.user_path import real_path
from bulkinfer.results.job_copies import copy_command
from bulkinfer.results.job_file import JOB_FILE, JobFile, job_path
from bulkinfer.results.parquet_parts import listed_steps
from bulkinfer.results.shard_set import refuse_shard_set
from bulkinfer.types import Step

log = logging.getLogger("bulkinfer")

RESULTS = "results"  # in the log folder of a job without --output
RUN_FILE = "run.json"
_RECORDS = (RUN_FILE, "summary.json")  # of a log folder; each names the output


def find_output(given: Path) -> Path:
    """`given` if it is a results folder; else that of the job whose log folder `given`, or the folder above `given`, is.

    `given` too where neither is so: JobFile.read says then what is missing. Raises UsageError if that folder is gone, or if
    `given` holds the shards of a job.
    """
    if listed_steps(given) or (own_folder(given) / JOB_FILE).exists():
        return given
    folder = given.parent if given.name == RESULTS and not given.exists() else given
    output = recorded_output(folder)
    if output is None:
        refuse_shard_set(given)
        return given
    if not output.is_dir():
        raise UsageError(f"{folder} is the log folder of a job; its results were in {output}, which is gone")
    log.info(f"{folder} is the log folder of a job; its results are in {output}")
    return output


def recorded_output(folder: Path) -> Path | None:
    """The results folder that the records of a log folder name; None if it holds no such record.

    The default one is looked for in `folder` first: logs may have been moved, or be a copy.
    """
    default = folder / RESULTS
    for name in _RECORDS:
        found: dict[str, Any] = {}
        if (folder / name).exists():
            try:
                found = read_json(folder / name)
            except BulkinferError as error:
                log.warning(f"{error}")
        if isinstance(output := found.get("output"), str):
            was_default = Path(output).parts[-2:] == (real_path(folder).name, RESULTS)
            return default if was_default and default.is_dir() else Path(output)
    return default if listed_steps(default) else None


def require_job(output: Path) -> JobFile:
    """The checked _job.json of `output`. Raises UsageError if there is none, which names one that belongs to its parts."""
    if (found := JobFile.read(output)) is not None:
        return found
    if not (steps := list(listed_steps(output))):
        raise UsageError(f"{output} holds no {JOB_FILE}: give the results folder of a job")
    raise UsageError(
        f"{output} holds {len(steps)} parts, but {job_path(output)} does not exist: {find_record(output, steps[0])}"
    )


def find_record(output: Path, step: Step, otherwise: str = "", log_path: str = "") -> str:
    """What to do about a part in `output` whose _job.json is not there: the command that copies one that is found nearby.

    `otherwise` is appended where none is found. `log_path` is the folder of job logs, if it is known.
    """
    if found := copy_command(output, step, log_path):
        return found
    return f"{own_folder(output)} belongs to it, and is moved and copied together with it{otherwise}"
