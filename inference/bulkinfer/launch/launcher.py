"""One launch from config to exit code: plan, resume, run the workers, reconcile, tell."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from bulkinfer.config import LaunchConfig, resolve_data_dir
from bulkinfer.errors import BulkinferError, UsageError
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.output_lock import output_lock
from bulkinfer.host.cores import ThreadPlan, core_budget
from bulkinfer.launch.auto.choose import settle
from bulkinfer.launch.engines import Engine, make_engine
from bulkinfer.launch.job import Job, Launch, make_job
from bulkinfer.launch.progress_bar import Screen
from bulkinfer.launch.reporter import Reporter
from bulkinfer.launch.resume import claim_output, joined, note_parts, preview, remaining_steps
from bulkinfer.launch.saved_manifest import kept_manifest, listed_before
from bulkinfer.launch.skip_done import check_settled, without_done
from bulkinfer.launch.summary import OK, WITHOUT, begin, finish
from bulkinfer.launch.totals import Aggregate
from bulkinfer.launch.tuned_flags import tell_if_elsewhere
from bulkinfer.model.card import Recipe
from bulkinfer.model.lookup import find_model
from bulkinfer.records.layout import MANIFEST_FILE
from bulkinfer.records.manifest import Dataset, open_dataset
from bulkinfer.results.job_file import write_job
from bulkinfer.results.rows import task_for
from bulkinfer.runtime.devices import AUTO, Candidates, find_candidates, parse_device, plan_workers
from bulkinfer.worker.protocol import ManifestRef, RunSpec

log = logging.getLogger("bulkinfer")


def launch(config: LaunchConfig) -> int:
    """Run the job of `config`; returns the exit code: 0, 1, 3, 130 or 143, as in the README."""
    started = time.perf_counter()
    job, found = open_job(config)
    log_dir = free_log_dir(job)
    output = None if job.dataset is None else Path(config.output or log_dir / "results")
    if output is not None and config.output:
        if (listed := listed_before(joined(job, output), output)) is not None:
            log.warning(
                f"{job.command}: warning: {listed.root} has changed since the job in {output} began: it goes on with the "
                f"{listed.num_records} pictures listed then; --skip_done {output} --output NEW runs what came since"
            )
            job, found = open_job(config, listed)
        job = joined(job, output)
        log_dir = free_log_dir(job)
    refuse_inside_partition(job, output or log_dir)
    job = settle(job, found, output)
    if job.dataset is not None and not (config.dry_run and config.precision == AUTO):  # which may not be judged yet
        check_settled(job)
    plan = plan_workers(config, job.choice, core_budget())
    job = replace(job, choice=job.choice.only(plan.devices))
    announce(job, plan, log_dir, output)
    if config.dry_run:
        if output is not None:
            preview(job, output)
        return OK
    log_dir.mkdir(parents=True, exist_ok=True)
    with output_lock(log_dir, flag="--log_path") as log_lease:
        if output is None:
            return run(Launch(job, plan, log_dir, None, {}, [], (log_lease,)), started)
        output.mkdir(parents=True, exist_ok=True)
        with output_lock(output, flag="--output") as lease:
            description = claim_output(job, output)
            todo = remaining_steps(job, output, description)
            write_job(output, description)
            return run(Launch(job, plan, log_dir, output, description, todo, (log_lease, lease)), started)


def refuse_inside_partition(job: Job, folder: Path) -> None:
    """Raises UsageError if results or logs would lie in a partition: those are replaced as a whole by partition_dataset."""
    if job.dataset is None or job.dataset.scan is not None:
        return
    for partition in job.dataset.partitions:
        inside = job.dataset.root / str(partition.index)
        if folder.resolve().is_relative_to(inside.resolve()):
            raise UsageError(f"{folder} lies in the partition {inside}: give another --output or --log_path")


def free_log_dir(job: Job) -> Path:
    """logs/<job>, used again by a resume; runs without pictures never resume and get the time, and a number if need be."""
    log_dir = Path(job.config.log_path) / job.name
    if job.dataset is None:
        log_dir = unused(log_dir.with_name(f"{job.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"))
    return log_dir


def unused(folder: Path) -> Path:
    """`folder`, with a number behind its name if it exists."""
    names = (folder, *(folder.with_name(f"{folder.name}-{number}") for number in range(2, 1000)))
    return next(name for name in names if not name.exists())


def open_job(config: LaunchConfig, dataset: Dataset | None = None) -> tuple[Job, Candidates]:
    """The job, its pictures counted, and what could run it; nothing is written yet.

    `dataset` is given where it is known already; by default it is opened, and what --skip_done names is left out of it.
    """
    if config.decode == "fast":
        require_fast_decoder()
    request = parse_device(config.device, config.precision)
    found = find_candidates(request)  # first of all: what cannot run is told at once
    model = find_model(config, [choice.provider for choice in found.choices])
    if dataset is None and config.input == "pictures":
        dataset = open_dataset(resolve_data_dir(config))
    job = make_job(config, model, request, found.choices[0], dataset)
    if config.skip_done and dataset is not None and dataset.skipped is None:
        job = make_job(config, model, request, found.choices[0], without_done(job, dataset))
    return job, found


def require_fast_decoder() -> None:
    """Raises UsageError that names what --decode fast lacks here."""
    try:
        from bulkinfer.images.jpeg import require_turbo  # brings Pillow, which the launcher has no other use for
    except ModuleNotFoundError as error:
        if error.name != "PIL":
            raise
        raise UsageError("--decode fast needs Pillow, which is not installed: pip install 'bulkinfer[fast]'") from None
    require_turbo()


def announce(job: Job, plan: ThreadPlan, log_dir: Path, output: Path | None) -> None:
    """What will run, on what, and where the results go."""
    card, config = job.model.card, job.config
    log.info(
        f"model: {card.name}, batch size {config.batch_size}, weights {card.weights.source} (sha256 {card.weights.sha256[:12]})"
    )
    log.info(f"device: {job.choice}")
    log.info(f"precision: {job.choice.precision} ({job.choice.precision_reason})")
    log.info(f"cores: {core_budget()}; {plan}")
    tell_if_elsewhere(job, plan.num_devices, core_budget())
    if job.dataset is None:
        log.info(f"input: {config.input}, without {WITHOUT[config.input]}; {config.iterations} step(s) a worker")
    else:
        if skipped := job.dataset.skipped:
            log.info(f"--skip_done: {skipped.num_records} records have ok rows in {', '.join(skipped.outputs)}")
        limited = f", the first {job.num_records} of them" if config.limit else ""
        log.info(f"input: {job.dataset.source}: {job.dataset.num_records} records{limited}")
        for line in job.dataset.scan.summary() if job.dataset.scan else ():
            log.info(f"  {line}")
        for line in job.dataset.scan.unreadable_lines() if job.dataset.scan else ():
            log.warning(f"{job.command}: {line}")
        log.info(f"decode: {told_decoding(config, card.recipe)}")
        if card.weights.is_random:
            log.warning(f"{job.command}: warning: the weights are random; classes and scores mean nothing, only the speed does")
    log.info(f"job: {log_dir.name}, fingerprint {job.fingerprint}")
    if output is not None:
        log.info(f"output: {output}")


def told_decoding(config: LaunchConfig, recipe: Recipe) -> str:
    """What --decode comes to with this recipe."""
    if config.decode == "exact":
        return "exact"
    if not recipe.short_side_needed:
        return "fast, which this network's recipe does not allow: every picture is decoded exactly"
    return f"fast: JPEGs at a reduced size whose short side has {recipe.short_side_needed} pixels or more"


def run(launch: Launch, started: float) -> int:
    """Run what is to do, and close the books; returns the exit code. Raises as close_books does."""
    aggregate, engine, refusal = Aggregate(started), None, None
    begin(launch.log_dir)
    if launch.todo or launch.output is None:
        engine, refusal = run_engine(launch, aggregate)
    return close_books(launch, aggregate, engine, refusal)


def close_books(
    launch: Launch,
    aggregate: Aggregate,
    engine: Engine | None,
    refusal: BulkinferError | None,
    put_in: Callable[[], None] | None = None,
) -> int:
    """Reconcile and tell the result of what has run; returns the exit code.

    `put_in` is given where the workers published parts elsewhere: it puts their rows into those of the output.
    `refusal`, of a worker, is raised after what was done until then has been told. Raises RunError if a lease was lost.
    """
    for lease in launch.leases:
        lease.check()  # else the books are another's now
    try:
        if put_in is not None:
            put_in()
        if launch.output is not None:
            note_parts(launch.job, launch.output, launch.description, aggregate.parts if put_in is None else [])
        code = finish(launch, aggregate, engine, refusal)
    except OSError:
        if refusal is None:  # else it has the same cause, most likely a full disk, and says it already
            raise
    if refusal is not None:
        raise refusal
    return code


def run_engine(launch: Launch, aggregate: Aggregate) -> tuple[Engine, BulkinferError | None]:
    """Run the steps to do; returns the engine, and what ended the run early."""
    config, refusal = launch.job.config, None
    with Screen(sum(map(len, launch.todo)) or None) as screen:
        engine = make_engine(
            config.engine,
            write_run(launch),
            launch.plan,
            Reporter(launch, aggregate, screen),
            batch_size=config.batch_size,
            own_partition=launch.output is None,
            stall_timeout_s=config.stall_timeout_s,
        )
        try:
            engine.run()
        except BulkinferError as error:
            refusal = error
    return engine, refusal


def write_run(launch: Launch) -> Path:
    """run.json for the workers; and manifests that exist nowhere else, as that of a plain folder."""
    job, plan, log_dir, config = launch.job, launch.plan, launch.log_dir, launch.job.config
    card, sidecar = job.model.card, job.model.sidecar
    manifests = {}
    if job.dataset is not None:
        for partition in job.dataset.partitions:
            path = job.dataset.root / str(partition.index) / MANIFEST_FILE
            if not job.dataset.is_listed:
                path = kept_manifest(log_dir, partition.index)
                partition.manifest.write(path, apart=True)
            manifests[partition.index] = ManifestRef(str(path.resolve()), partition.manifest.content_hash, file_sha256(path))
    spec = RunSpec(
        input=config.input,
        batch_size=config.batch_size,
        recipe=card.recipe,
        task=task_for(card, config.save, config.top_k, sidecar.outputs, config.save_precision),
        session=job.session_spec(plan),
        devices=plan.devices,
        num_workers=plan.num_workers,
        max_pixels=config.max_pixels,
        max_file_bytes=config.max_file_bytes,
        reduce_to=job.reduce_to,
        warm_up_s=0.0 if config.batches_per_step else 1.0,
        graph_sha256=sidecar.sha256,
        manifests=manifests,
        output=None if launch.output is None else str(launch.output.resolve()),
        log_dir=str(log_dir.resolve()),
        metadata={
            "fingerprint": job.fingerprint,
            "model": card.name,
            "graph_sha256": sidecar.sha256,
            "weights": asdict(card.weights),
            "recipe": asdict(card.recipe),
            "decode": config.decode,
            "precision": {"asked": config.precision, "ran": job.choice.precision, "reason": job.choice.precision_reason},
        },
        locks={str(lease.path.resolve()): lease.token for lease in launch.leases},
    )
    spec.write(log_dir / "run.json")
    return log_dir / "run.json"
