"""The end of a launch: published parts are recorded in _job.json, the result is logged, the error that ended it is raised."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bulkinfer.errors import RunError, StoreError, os_error_sentence
from bulkinfer.launch.claim import Launch, remove_temporaries
from bulkinfer.launch.jobs.job import Job
from bulkinfer.launch.reporting.status import write_last_status
from bulkinfer.launch.reporting.summary import LaunchResult, finish
from bulkinfer.launch.reporting.totals import Outcome
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.output_store import output_store
from bulkinfer.results.parquet_parts import Part, inspect_part, published_steps
from bulkinfer.results.part_names import part_name


def close(launch: Launch, outcome: Outcome, put_in: Callable[[], None] | None = None) -> LaunchResult:
    """Record what was published, and log and return the result.

    `put_in` is given where the workers published parts elsewhere: it puts their rows into those of the output. Raises RunError
    if a lock was lost; and what ended the run early, once the result of what was done until then has been logged.
    """
    is_ours = False
    try:
        for lease in launch.leases:
            lease.check()  # else _job.json and the summary belong to another launch now
        is_ours = True
        if put_in is not None:
            put_in()
        if launch.output is not None and launch.job_file is not None:
            note_parts(launch.job, launch.output, launch.job_file, outcome.aggregate.parts if put_in is None else [])
        result = finish(launch, outcome)
        write_last_status(launch, outcome, result.exit_code)
    except (OSError, RunError) as error:
        if not is_ours and not isinstance(error, OSError | StoreError):
            raise
        _record_failure(launch, outcome, error, reported=put_in is None)
        if outcome.refusal is None:  # else it has the same cause, such as a full disk, and says it already
            raise
    if outcome.refusal is not None:
        raise outcome.refusal
    return result


def _record_failure(launch: Launch, outcome: Outcome, error: OSError | RunError, *, reported: bool) -> None:
    """Write into the log folder how a launch ended whose output cannot be reached or written any more, such as a bucket.

    The parts that were `reported` count.
    """
    if launch.job_file is not None and reported:
        for part in outcome.aggregate.parts:
            launch.job_file.note_part(part)
    if isinstance(error, OSError):
        error = RunError(f"{os_error_sentence(error)}: correct that, and run the same command again")
    ended = replace(outcome, refusal=outcome.refusal or error)
    with suppress(OSError):  # a full disk may not take that either; the error is raised in any case
        result = finish(launch, ended, reaches_output=False)
        write_last_status(launch, ended, result.exit_code, reaches_output=False)


def note_parts(job: Job, output: Path, job_file: JobFile, reported: list[Part]) -> None:
    """Record in `job_file` all parts that are published, also by workers that were killed before they could report.

    What those had begun to write is removed.
    """
    remove_temporaries(output)
    published, entries = published_steps(output), output_store(output).entries()
    for part in reported:
        tag = entries[part.name].tag if part.name in entries else ""
        job_file.note_part(replace(part, tag=tag))
    for step in published:
        if (name := part_name(step)) not in job_file.parts:
            job_file.note_part(replace(inspect_part(output, step, job.fingerprint), tag=entries[name].tag))
    job_file.complete(published)
    job_file.write(output)
