"""bulkinfer retry: the error rows of a job run again, in a directory of their own, and then take their places."""

from __future__ import annotations

import logging
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from bulkinfer.config import LaunchConfig, RetryConfig, resolve_data_dir
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.atomic import remove_stale_temporaries
from bulkinfer.files.json_validation import mismatch
from bulkinfer.files.lease import Lease
from bulkinfer.files.output_lock import output_lock
from bulkinfer.host.cores import core_budget
from bulkinfer.launch.auto.choose import settle
from bulkinfer.launch.job import Job, Launch, describe_job, job_name
from bulkinfer.launch.launcher import announce, close_books, open_job, run_engine
from bulkinfer.launch.resume import claim_output, ours_in, remaining_steps, remove_if_empty
from bulkinfer.launch.retry_merge import failed_rows, merge
from bulkinfer.launch.saved_manifest import kept_dataset
from bulkinfer.launch.summary import OK, clear_log
from bulkinfer.launch.totals import Aggregate
from bulkinfer.records.manifest import Partition
from bulkinfer.results.job_file import JOB_FILE, read_job, write_job
from bulkinfer.results.part_names import STAGING, part_name, part_step
from bulkinfer.runtime.devices import plan_workers
from bulkinfer.types import Step

log = logging.getLogger("bulkinfer")

_GIVEN = ("data_dir", "model_path", "log_path")  # of RetryConfig; the job's own where they are empty
_PLAN = ("num_devices", "num_workers", "streams", "stall_timeout_s")  # of this machine, whatever the job began with
_PLAN_OF_JOB = ("processes_per_device", "threads_per_stream", "tuned_for")  # the rest of its plan, which went with those


def retry(config: RetryConfig) -> int:
    """Run the error rows of `config.output` again; returns the exit code of infer_launch.

    Raises UsageError if there is no job, or what it ran on has changed; RunError if files are damaged or it cannot be done.
    """
    started, output = time.perf_counter(), Path(config.output)
    job = _begun_job(config, output)
    log_dir = Path(job.config.log_path) / job.name
    plan = plan_workers(job.config, job.choice, core_budget())
    job = replace(job, choice=job.choice.only(plan.devices))
    announce(job, plan, log_dir, output)
    if config.dry_run:
        found = read_job(output)
        assert found is not None, "_begun_job has read it"
        _tell(output, _failed(job, output, found["parts"], config.stage))
        return OK
    own_log = log_dir / "retry"
    own_log.mkdir(parents=True, exist_ok=True)
    with output_lock(log_dir, flag="--log_path") as log_lease, output_lock(output, flag="--output") as lease:
        clear_log(own_log)
        description = claim_output(job, output)
        remaining_steps(job, output, description)
        put_in_staged(job, output, description, lease)
        failed = _failed(job, output, description["parts"], config.stage)
        _tell(output, failed)
        launch = Launch(job, plan, own_log, output, description, [], (log_lease, lease), log_dir)
        aggregate = Aggregate(started)
        if not failed:
            return close_books(launch, aggregate, None, None)
        engine, refusal = run_engine(_staged(launch, output / STAGING, failed), aggregate)
        return close_books(launch, aggregate, engine, refusal, lambda: put_in_staged(job, output, description, lease))


def _staged(launch: Launch, staging: Path, failed: dict[int, list[int]]) -> Launch:
    """The launch of the failed records alone, numbered anew, into a directory of its own."""
    job = launch.job
    assert job.dataset is not None, "a job with rows has pictures"
    partitions = tuple(
        Partition(partition.index, partition.manifest.only(np.array(failed[partition.index])), partition.root)
        for partition in job.dataset.partitions
        if partition.index in failed
    )
    dataset = replace(job.dataset, partitions=partitions, is_listed=False)
    counts = {index: len(numbers) for index, numbers in failed.items()}
    config = replace(job.config, batches_per_step=0, max_failures=0)
    job = replace(job, dataset=dataset, counts=counts, config=config)
    staging.mkdir(exist_ok=True)
    description = describe_job(job, launch.description["resolved"])
    write_job(staging, description)
    todo = [Step(index, 0, count) for index, count in sorted(counts.items())]
    return Launch(job, launch.plan, launch.log_dir, staging, description, todo, launch.leases)


def put_in_staged(job: Job, output: Path, description: dict[str, Any], lease: Lease) -> None:
    """Put what a retry, this one or one that was killed, has done into the parts, and write it down.

    Raises RunError before a part is replaced whose output, which `lease` was taken on, is another's meanwhile.
    """
    staging = output / STAGING
    if not staging.is_dir():
        return write_job(output, description)
    remove_stale_temporaries(staging)
    write_job(output, description)  # a part may be one step ahead of what is recorded, and no more
    now_ok, still = merge(output, staging, job.fingerprint, description["parts"], before_rename=lease.check)
    write_job(output, description)
    for path in ours_in(staging):
        path.unlink()
    remove_if_empty(staging)
    log.info(f"retry: {now_ok} error rows are ok now, {still} failed again")
    return None


def _failed(job: Job, output: Path, parts: dict[str, Any], stages: tuple[str, ...]) -> dict[int, list[int]]:
    """The numbers of the records with an error row of one of `stages`, by partition."""
    found: dict[int, list[int]] = {}
    for step in sorted(step for name in parts if (step := part_step(name)) is not None):
        if set(parts[part_name(step)]["stages"]) & set(stages):
            found.setdefault(step.partition, []).extend(failed_rows(output, step, job.fingerprint, stages))
    return {index: numbers for index, numbers in found.items() if numbers}


def _tell(output: Path, failed: dict[int, list[int]]) -> None:
    log.info(f"retry: {sum(map(len, failed.values()))} error rows of {output} to run again")


def _begun_job(config: RetryConfig, output: Path) -> Job:
    """The job that began in `output`, on this host. Raises UsageError naming what differs where it cannot be that job."""
    found = read_job(output)
    if found is None:
        raise UsageError(f"{output} holds no {JOB_FILE}: give the results folder of a job")
    given: dict[str, Any] = {name: value for name in _GIVEN if (value := getattr(config, name))}
    given |= {name: getattr(config, name) for name in _PLAN} | {name: getattr(LaunchConfig, name) for name in _PLAN_OF_JOB}
    begun = replace(begun_config(found, output), output=str(output), overwrite=False, **{"dry_run": config.dry_run, **given})
    log_dir = Path(begun.log_path) / job_name(str(found["identity"].get("model_name")), found["fingerprint"])
    job, candidates = open_job(begun, kept_dataset(found, log_dir, resolve_data_dir(begun)))
    return settle(replace(job, command="bulkinfer retry"), candidates, output)


def begun_config(found: dict[str, Any], output: Path) -> LaunchConfig:
    """The options that a job began with, out of its _job.json; an option that is younger has its default."""
    kinds, stored = get_type_hints(LaunchConfig), found.get("config")
    stored = stored if isinstance(stored, dict) else {}
    values = {option.name: stored[option.name] for option in fields(LaunchConfig) if option.name in stored}
    for name, value in values.items():
        if told := mismatch(value, kinds[name], f"config.{name}"):
            raise RunError(f"{output / JOB_FILE} is damaged ({told}): run the job with --overwrite, or into another --output")
    begun: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return LaunchConfig(**begun)
