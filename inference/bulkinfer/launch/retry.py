"""bulkinfer retry: the records with error rows run again, into a folder of their own; the new rows replace the old ones."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bulkinfer.config import LaunchConfig
from bulkinfer.files.atomic import remove_stale_temporaries
from bulkinfer.files.latest_link import point_latest
from bulkinfer.files.own_folder import own_folder
from bulkinfer.launch.claim import Launch, claim, remove_temporaries
from bulkinfer.launch.close import close
from bulkinfer.launch.jobs.begun_config import begun_config
from bulkinfer.launch.jobs.job import RETRY, new_job_file
from bulkinfer.launch.jobs.result_files import remove_if_empty, remove_result, result_files
from bulkinfer.launch.jobs.saved_manifest import kept_dataset
from bulkinfer.launch.jobs.skip_done import with_earlier_folders
from bulkinfer.launch.options import RetryConfig
from bulkinfer.launch.plan import Plan, announce, check_ray, open_network, open_pictures, plan_job
from bulkinfer.launch.reporting.summary import LaunchResult, clear_log, planned_result
from bulkinfer.launch.reporting.totals import Aggregate, Outcome
from bulkinfer.launch.retry_merge import failed_rows, merge
from bulkinfer.launch.run import run_engine
from bulkinfer.records.data_dir import resolve_data_dir
from bulkinfer.records.dataset import Partition
from bulkinfer.records.sources.folder import counted
from bulkinfer.results.find_output import require_job
from bulkinfer.results.job_file import JOB_FILE, JobFile
from bulkinfer.results.job_place import place_and_output
from bulkinfer.results.output_store import output_store
from bulkinfer.results.part_names import STAGING, part_name, part_step
from bulkinfer.types import Step, shell_word

log = logging.getLogger("bulkinfer")

LOG_FOLDER = "retry"  # in the log folder of the job
_GIVEN = ("data_dir", "model_path", "log_path")  # options of RetryConfig; where they are empty, those that the job began with
_PLAN = (
    "num_devices",
    "num_workers",
    "streams",
    "stall_timeout_s",
    "engine",
    "ray_address",
)  # options for this machine, not those that the job began with
_PLAN_OF_JOB = (
    "loader_processes",
    "processes_per_device",
    "threads_per_stream",
    "tuned_for",
)  # the rest of the job's plan of threads, set to its defaults


def retry(config: RetryConfig, *, shows_progress: bool = False) -> LaunchResult:
    """Run the error rows of `config.output` again; the result is that of the whole job. `shows_progress` is as for launch().

    Raises UsageError if there is no job, or what it ran on has changed; RunError if files are damaged or it cannot be done.
    """
    started = time.perf_counter()
    _, output = place_and_output(config.output, config.log_path or LaunchConfig.log_path)
    plan = plan_retry(config, output)
    announce(plan)
    if config.dry_run:
        assert plan.begun is not None, "plan_retry has read it"
        _log_count(output, _failed(output, plan.begun, config.stage))
        return planned_result(plan)
    own_log = plan.log_dir / LOG_FOLDER
    own_log.mkdir(parents=True, exist_ok=True)
    with claim(plan) as claimed:
        point_latest(plan.log_dir)
        launch = replace(claimed, log_dir=own_log, job_log=plan.log_dir)
        assert launch.job_file is not None, "a job with rows has pictures"
        for folder in (plan.log_dir, own_log):  # also where nothing is left to do: a killed retry was writing there
            remove_stale_temporaries(folder)
        put_in_staged(launch)
        failed = _failed(output, launch.job_file, config.stage)
        _log_count(output, failed)
        aggregate = Aggregate(started)
        if not failed:
            return close(launch, Outcome(aggregate))
        clear_log(own_log)
        outcome = run_engine(_staged(launch, own_folder(output) / STAGING, failed), aggregate, shows_progress=shows_progress)
        return close(launch, outcome, lambda: put_in_staged(launch))


def _staged(launch: Launch, staging: Path, failed: dict[int, list[int]]) -> Launch:
    """The launch of the failed records only, with new numbers, into a directory of its own."""
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
    job = replace(job, dataset=dataset, counts=counts, config=config, shard=None)
    output_store(staging).make()
    job_file = new_job_file(job)
    job_file.write(staging)
    todo = [Step(index, 0, count) for index, count in sorted(counts.items())]
    return Launch(job, launch.threads, launch.log_dir, staging, job_file, todo, launch.leases)


def put_in_staged(launch: Launch) -> None:
    """Put what a retry, this one or one that was killed, has done into the parts of the output, and record it.

    _job.json must be published as it is: a part may be one step ahead of what is recorded, and no more. Raises RunError before
    a part is replaced if the lock on the output was lost.
    """
    assert launch.output is not None, "a job with rows has an output"
    assert launch.job_file is not None, "a job with rows has pictures"
    staging, (*_, lease) = own_folder(launch.output) / STAGING, launch.leases
    if not output_store(staging).is_there():
        return
    remove_temporaries(staging)
    now_ok, still = merge(launch.output, staging, launch.job_file, before_rename=lease.check)
    launch.job_file.write(launch.output)
    for path in sorted(result_files(staging), key=lambda path: (path.name == JOB_FILE, path)):
        remove_result(path)
    remove_if_empty(staging)
    log.info(f"retry: {counted(now_ok, 'error row', 'is', 'are')} ok now, {still} failed again")


def _failed(output: Path, job_file: JobFile, stages: tuple[str, ...]) -> dict[int, list[int]]:
    """The numbers of the records with an error row of one of `stages`, by partition."""
    found: dict[int, list[int]] = {}
    for step in sorted(step for name in job_file.parts if (step := part_step(name)) is not None):
        if set(job_file.parts[part_name(step)]["stages"]) & set(stages):
            found.setdefault(step.partition, []).extend(failed_rows(output, step, job_file.fingerprint, stages))
    return {index: numbers for index, numbers in found.items() if numbers}


def _log_count(output: Path, failed: dict[int, list[int]]) -> None:
    log.info(f"retry: {counted(sum(map(len, failed.values())), 'error row')} of {output} to run again")


def plan_retry(config: RetryConfig, output: Path) -> Plan:
    """The plan of the job that began in `output`, on this host.

    Raises UsageError if it cannot be that job any more, naming what differs.
    """
    begun = require_job(output)
    given: dict[str, Any] = {name: value for name in _GIVEN if (value := getattr(config, name))}
    given |= {name: getattr(config, name) for name in _PLAN} | {name: getattr(LaunchConfig, name) for name in _PLAN_OF_JOB}
    again = replace(begun_config(begun, output), output=str(output), overwrite=False, **{"dry_run": config.dry_run, **given})
    check_ray(again)
    command = f"{RETRY} {shell_word(output)}"
    asked = open_network(again, lambda: resolve_data_dir(again.data_dir, command))
    dataset = kept_dataset(begun, output, again.log_path, resolve_data_dir(again.data_dir, command))
    if dataset is None:
        dataset = open_pictures(replace(asked, config=with_earlier_folders(again)), None)
    return plan_job(asked, dataset, begun, RETRY)
