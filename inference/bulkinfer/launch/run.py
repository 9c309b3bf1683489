"""The run of a launch: run.json is written for the workers, and an engine gets every step published."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import BulkinferError
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.user_path import real_path
from bulkinfer.host.cores import CoreBudget, HostPlan
from bulkinfer.host.screen import Screen
from bulkinfer.host.status import FAILED, STOPPED
from bulkinfer.host.stop_signals import stopping_signal
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.engines import EngineOptions, make_engine
from bulkinfer.launch.graph_cache import with_cached_graph
from bulkinfer.launch.jobs.saved_manifest import kept_manifest
from bulkinfer.launch.reporting.progress import Progress
from bulkinfer.launch.reporting.reporter import Reporter
from bulkinfer.launch.reporting.status import StatusWriter
from bulkinfer.launch.reporting.summary import begin
from bulkinfer.launch.reporting.totals import Aggregate, Outcome
from bulkinfer.records.dataset import Dataset
from bulkinfer.records.layout import MANIFEST_FILE
from bulkinfer.runtime.devices import Choice, plan_workers
from bulkinfer.worker.protocol import ManifestRef, RunSpec


def run(launch: Launch, started: float, *, shows_progress: bool) -> Outcome:
    """Begin the log of the launch, and run what is to do. `started` is when the command began, by time.perf_counter()."""
    is_repeat = launch.output is not None and not launch.todo
    begin(launch.log_dir, is_repeat=is_repeat)
    if is_repeat:
        return Outcome(Aggregate(started))
    return run_engine(launch, Aggregate(started), shows_progress=shows_progress)


def run_engine(launch: Launch, aggregate: Aggregate, *, shows_progress: bool) -> Outcome:
    """Run the steps to do; what the workers report goes into `aggregate`."""
    config, refusal, progress = launch.job.config, None, Progress(launch)
    keep = StatusWriter(launch, aggregate.started).write
    try:
        run_file = write_run(launch)  # before the view has a thread: little memory may be left for those of pyarrow
        with Screen(progress.status, shows_progress=shows_progress, keep=keep) as screen:
            engine = make_engine(
                config.engine,
                run_file,
                launch.threads,
                Reporter(launch, aggregate, progress, screen),
                EngineOptions(
                    config.batch_size,
                    own_partition=launch.output is None,
                    stall_timeout_s=config.stall_timeout_s,
                    num_devices=config.num_devices,
                    ray_address=config.ray_address,
                    plan_host=partial(plan_host, config, launch.job.choice),
                ),
            )
            try:
                engine.run()
            except BulkinferError as error:
                refusal = error
    except BaseException as error:  # a signal before the engine handles them, for example: bulkinfer watch is told
        keep(progress.last_status(STOPPED if stopping_signal(error) else FAILED))
        raise
    return Outcome(aggregate, engine, refusal, progress)


def write_run(launch: Launch) -> Path:
    """Write run.json for the workers, which names the cached graph, and the manifests that lie nowhere else."""
    job = launch.job
    spec = RunSpec.from_launch(
        job.config,
        job.model,
        job.choice,
        launch.threads,
        fingerprint=job.fingerprint,
        manifests=_manifests_for_workers(job.dataset, launch.log_dir),
        output=launch.output,
        log_dir=launch.log_dir,
        locks={str(real_path(lease.path)): lease.token for lease in launch.leases},
    )
    session = spec.session
    if job.config.engine != "ray":  # a cached graph is made for the processor of one host
        session = with_cached_graph(session, job.model, launch.threads.num_devices)
    replace(spec, session=session).write(launch.log_dir / "run.json")
    return launch.log_dir / "run.json"


def _manifests_for_workers(dataset: Dataset | None, log_dir: Path) -> dict[int, ManifestRef]:
    """The manifest of each partition; one that has no file yet gets it in `log_dir`."""
    found = {}
    for partition in dataset.partitions if dataset else ():
        if dataset is not None and dataset.is_listed:
            path = dataset.root / str(partition.index) / MANIFEST_FILE
        else:
            path = kept_manifest(log_dir, partition.index)
            partition.manifest.write(path, apart=True)
        found[partition.index] = ManifestRef(
            str(real_path(path)), partition.manifest.content_hash, file_sha256(path), partition.manifest.is_stored
        )
    return found


def plan_host(config: LaunchConfig, choice: Choice, budget: CoreBudget, num_gpus: int) -> HostPlan | None:
    """The workers of another host that has these cores and so many GPUs for them; None if `choice` needs a GPU there.

    Raises UsageError as plan_workers does.
    """
    if not choice.is_counted:
        return HostPlan(plan_workers(config, choice, budget), 0.0)
    if not num_gpus:
        return None
    plan = plan_workers(config, replace(choice, numbers=tuple(range(num_gpus))), budget)
    return HostPlan(plan.with_devices((0,) * plan.num_devices), 1 / (config.processes_per_device or 1))
