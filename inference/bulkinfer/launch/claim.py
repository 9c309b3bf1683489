"""The claim of a launch: its folders are locked, what is published there is checked, and what is left to do is found."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError, ForeignError, RunError, UsageError
from bulkinfer.files.addresses import AddressPath, place_path
from bulkinfer.files.atomic import remove_stale_temporaries
from bulkinfer.files.guarded import JOB_BYTES
from bulkinfer.files.json_file import read_json
from bulkinfer.files.output_lock import output_lock
from bulkinfer.files.own_folder import make_own_folder, own_folder
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.launch.jobs.changed_pictures import keep_times, warn_of_changed_pictures
from bulkinfer.launch.jobs.job import RETRY, Job, new_job_file, resolved_there, warn_of_changes
from bulkinfer.launch.jobs.result_files import all_result_files, describe_files, remove_if_empty, remove_result
from bulkinfer.launch.jobs.shards import join_shards
from bulkinfer.launch.plan import Plan
from bulkinfer.launch.recorded_part import check_part
from bulkinfer.records.sources.folder import counted
from bulkinfer.results.control_files import control_exists
from bulkinfer.results.find_output import find_record
from bulkinfer.results.job_file import JOB_FILE, JobFile, are_parts_gone, job_path
from bulkinfer.results.log_folder import RESULTS, forgotten_if_unused, removed_if_empty, restore_record, take_log_dir
from bulkinfer.results.output_locks import HeldLock, lock_of_output
from bulkinfer.results.output_store import output_store
from bulkinfer.results.parquet_parts import published_steps, set_aside
from bulkinfer.results.part_names import STAGING, by_partition, is_set_aside, missing_ranges, part_name
from bulkinfer.types import Step

log = logging.getLogger("bulkinfer")


@dataclass(frozen=True)
class Launch:
    """One launch of a job, which owns its folders: where it logs and writes, what is published there and what is to do.

    `output` and `job_file` are None in a run without pictures. `job_file` is brought up to date as parts are published.
    `job_log` is given where `log_dir` is not the log folder of the job, but one in it: what lies there is updated too.
    """

    job: Job
    threads: ThreadPlan
    log_dir: Path
    output: Path | None
    job_file: JobFile | None
    todo: list[Step]
    leases: tuple[HeldLock, ...]  # on `log_dir` and `output`; tests may go without
    job_log: Path | None = None


@contextmanager
def claim(plan: Plan) -> Iterator[Launch]:
    """Own the folders of `plan` within the block: they are made, locked, and _job.json in the output is this job's.

    Raises LockedError if another launch owns them, and what `claim_output` and `remaining_steps` raise.
    """
    job, (log_dir, output) = plan.job, _made_folders(plan)
    replaces = job.config.overwrite
    is_launch = job.command != RETRY  # a retry works in the folders of its job
    flag = "--log_path" if output is None else "--output"  # each output has logs of its own
    with (
        removed_if_empty(log_dir),
        output_lock(log_dir, flag=flag if is_launch else "", replaces_damaged=replaces) as log_lease,
        forgotten_if_unused(log_dir),
    ):
        if output is None:
            yield Launch(job, plan.threads, log_dir, None, None, [], (log_lease,))
            return
        restore_record(log_dir, job.fingerprint, _given_output(job))
        with lock_of_output(output, flag="--output" if is_launch else "", replaces_damaged=replaces) as lease:
            if _is_gone(output) or are_parts_gone(output):
                forget_gone_results(output)
            output_store(output).make()
            job_file = claim_output(job, output)
            if job.shard is not None:
                join_shards(job, output)
            todo = remaining_steps(job, output, job_file)
            times = warn_of_changed_pictures(job, output, todo)
            job_file.write(output)
            keep_times(job, output, times)
            del times  # one for each picture: not while the launch runs
            yield Launch(job, plan.threads, log_dir, output, job_file, todo, (log_lease, lease))


def _made_folders(plan: Plan) -> tuple[Path, Path | None]:
    """The log folder, made, and the output: by default in the log folder, which another launch may have made by now."""
    job = plan.job
    if plan.output is None:
        plan.log_dir.mkdir(parents=True, exist_ok=True)
        return plan.log_dir, None
    given = _given_output(job)
    log_dir = take_log_dir(plan.log_dir, job.name, job.fingerprint, given)
    return log_dir, given or log_dir / RESULTS


def _given_output(job: Job) -> Path | None:
    return place_path(job.config.output) if job.config.output else None


def claim_output(job: Job, output: Path) -> JobFile:
    """The _job.json to go on with in `output`, which is locked: the one there, or a new one.

    Raises UsageError if `output` belongs to another job, RunError if it has parts but no sound _job.json.
    """
    remove_temporaries(output)
    if job.config.overwrite:
        remove_results(output)
    elif (found := JobFile.read(output, job.config.log_path)) is not None:
        return _continue(job, output, found)
    if strangers := published_steps(output):
        raise _strangers(job, output, strangers)
    return new_job_file(job)


def _is_gone(output: Path) -> bool:
    """False also if a file server does not say what is there: that is raised. A prefix of a bucket cannot be gone."""
    if isinstance(output, AddressPath):
        return False
    try:
        os.lstat(output)
    except FileNotFoundError:
        return True
    return False


def forget_gone_results(output: Path) -> None:
    """Before a results folder is made or filled: what an earlier one of this name left in the own folder is not of this one.

    If that folder was only renamed, its _job.json is still needed: it stays under another name (see require_job).
    """
    if control_exists(path := own_folder(output) / JOB_FILE):
        _keep_record(path)
    for left_over in all_result_files(output):
        remove_result(left_over)
    remove_if_empty(own_folder(output) / STAGING)


def _keep_record(path: Path) -> None:
    store = output_store(path.parent)
    kept = f"{Path(JOB_FILE).stem}-{hashlib.sha256(store.read(path.name, JOB_BYTES)).hexdigest()[:8]}.json"
    store.set_aside(path.name, kept)


def remove_temporaries(output: Path) -> None:
    """Remove what processes that have ended were writing, in the output and in its own folder."""
    if isinstance(output, AddressPath):  # there are none
        return
    for folder in {output, own_folder(output)}:
        remove_stale_temporaries(folder)


def _collect_own_files(output: Path) -> None:
    """Move what an earlier version kept in the output to its own folder, so that readers of the output find parts only.

    The _job.json of another job that lies there stays, under another name.
    """
    if isinstance(output, AddressPath):
        return
    folder = make_own_folder(output)
    if folder == output:
        return
    old, new = folder / JOB_FILE, output / JOB_FILE
    if old.exists() and new.exists() and not _are_of_one_job(old, new):
        _keep_record(old)
    for path in sorted(output.iterdir()):
        if path.name in (JOB_FILE, STAGING) or is_set_aside(path.name):
            os.replace(path, folder / path.name)


def _are_of_one_job(*paths: Path) -> bool:
    try:
        return len({read_json(path, most_bytes=JOB_BYTES).get("fingerprint") for path in paths}) == 1
    except BulkinferError:  # the one that is damaged may be of any job
        return False


def preview(plan: Plan) -> None:
    """For --dry_run: log what a launch would find in the output and what it would do; changes nothing.

    Raises what `claim_output` would raise.
    """
    job, output = plan.job, plan.output
    if output is None:
        return
    if job.config.overwrite:
        found = all_result_files(output)
        if _is_gone(output) or are_parts_gone(output):  # the record is kept, under another name
            found.pop(own_folder(output) / JOB_FILE, None)
        log.info(f"--overwrite: would remove {describe_files(found) if found else 'nothing'} from {output}")
        return
    published = published_steps(output)
    if plan.begun is not None:
        _check_graph(job, output, plan.begun.resolved)
        todo = _missing(job, published)
        num_todo = sum(map(len, todo))
        log.info(f"resume: {job.num_records - num_todo} of {job.num_records} records are done, {num_todo} to do")
        warn_of_changed_pictures(job, output, todo)
    elif published:
        raise _strangers(job, output, published)


def _strangers(job: Job, output: Path, published: list[Step]) -> RunError:
    otherwise = "; for a new job give another --output, or --overwrite to remove these parts"
    todo = find_record(output, published[0], otherwise, job.config.log_path)
    return RunError(f"{output} holds {counted(len(published), 'part')}, but {job_path(output)} does not exist: {todo}")


def _continue(job: Job, output: Path, begun: JobFile) -> JobFile:
    """`begun`, found in `output`, for going on with it, if it is the same job."""
    resolved = resolved_there(begun, output, job.identity, job.config)
    choice = job.choice
    ran = (
        resolved["provider"],
        resolved.get("precision", choice.precision),
        resolved.get("backend", choice.entry.backend_version),
    )
    if ran != (choice.provider, choice.precision, choice.entry.backend_version):
        raise RunError(f"another launch began the job in {output} meanwhile: run the command again")
    _check_graph(job, output, resolved)
    warn_of_changes(job, output, begun)
    _collect_own_files(output)
    begun.reopen()
    return begun


def _check_graph(job: Job, output: Path, resolved: dict[str, Any]) -> None:
    """Raises UsageError if `auto` led to a variant of the network, and get_model has made another one since."""
    if (ran := resolved.get("graph_sha256", job.model.sidecar.sha256)) != job.model.sidecar.sha256:
        raise UsageError(
            f"{output} was begun with another {job.choice.precision} variant of the network (graph sha256 {str(ran)[:12]}): "
            "give another --output, or --overwrite to remove its results"
        )


def remove_results(output: Path) -> None:
    """--overwrite: remove the files of bulkinfer from the results folder, and log how many; all others stay."""
    found = all_result_files(output)
    if found:
        log.info(f"--overwrite: removes {describe_files(found)} from {output}")
    for path in found:
        remove_result(path)
    for folder in (output, own_folder(output)):
        remove_if_empty(folder / STAGING)


def remaining_steps(job: Job, output: Path, job_file: JobFile) -> list[Step]:
    """The ranges that no sound published part covers. Damaged parts are set aside; `job_file` gets the sound ones.

    Raises RunError if a part is of another job or of no partition.
    """
    done, known, entries = [], job_file.parts, output_store(output).entries()
    for step in published_steps(output):
        if step.partition not in job.counts:
            raise RunError(f"{output / part_name(step)} belongs to no partition of {job.config.data_dir or 'this job'}")
        try:
            recorded = known.get(part_name(step))
            part = check_part(output, step, recorded, job.fingerprint, entries[part_name(step)].tag)
        except ForeignError as error:  # its rows are sound, and may be the only ones
            otherwise = "; for a new job give another --output, or --overwrite to remove these parts"
            raise RunError(f"{error}: {find_record(output, step, otherwise, job.config.log_path)}") from None
        except RunError as error:
            log.warning(f"{error}; set aside as {set_aside(output, step)}, its records run again")
            job_file.forget_part(part_name(step))
            continue
        done.append(step)
        job_file.note_part(part)
    for name in set(known) - {part_name(step) for step in done}:
        job_file.forget_part(name)  # it was published and has disappeared: its records run again
    todo = _missing(job, done)
    if done:
        log.info(f"resume: {sum(map(len, done))} of {job.num_records} records are done, {sum(map(len, todo))} to do")
    return todo


def _missing(job: Job, done: list[Step]) -> list[Step]:
    """The ranges of all partitions that no file in `done` covers."""
    shares = by_partition(done)
    return [step for index, wanted in sorted(job.ranges().items()) for step in missing_ranges(wanted, shares.get(index, ()))]
