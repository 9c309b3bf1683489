"""One launch from config to exit code: plan, resume, run the workers, reconcile, tell."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inference.aggregate import Aggregate
from inference.config import LaunchConfig
from inference.cores import ThreadPlan, core_budget, plan_threads
from inference.engine import Engine
from inference.errors import RunError
from inference.job import Job, Launch, make_job, resolve_data_dir, write_job
from inference.manifest import open_dataset
from inference.markers import MANIFEST_FILE
from inference.output_lock import output_lock
from inference.paths import write_json
from inference.progress import Screen
from inference.providers import describe_proof
from inference.results import part_name, split_step
from inference.resume import claim_output, note_parts, remaining_steps
from inference.runlog import say, warn
from inference.summary import OK, finish
from inference.supervisor import Supervisor
from inference.types import Step

MAX_BATCHES_PER_STEP = 1500  # the reference system's step
STEP_S, SYNTHETIC_STEP_S = 10.0, 5.0
_STEPS_PER_WORKER = 4  # at least, where the step's length is ours to choose: the last steps then end close together


def launch(config: LaunchConfig) -> int:
    """Run the job of `config`; returns the exit code: 0, 1, 3, 130 or 143, as in the README."""
    job = open_job(config)
    plan = plan_threads(core_budget(), num_devices=config.num_devices, streams=config.streams, num_workers=config.num_workers)
    log_dir = free_log_dir(job)
    output = None if config.synthetic else Path(config.output or log_dir / "results")
    announce(job, plan, log_dir, output)
    if config.dry_run:
        return OK
    log_dir.mkdir(parents=True, exist_ok=True)
    with output_lock(log_dir, flag="--log_path"):
        if output is None:
            return run(Launch(job, plan, log_dir, None, {}, []))
        output.mkdir(parents=True, exist_ok=True)
        with output_lock(output, flag="--output"):
            job, description = claim_output(job, output)
            todo = remaining_steps(job, output, description)
            write_job(output, description)
            return run(Launch(job, plan, log_dir, output, description, todo))


def free_log_dir(job: Job) -> Path:
    """logs/<job>, used again by a resume; synthetic runs never resume and get the time, and a number where that is taken."""
    log_dir = Path(job.config.log_path) / job.name
    if job.dataset is None:
        log_dir = log_dir.with_name(f"{job.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
        names = (log_dir, *(log_dir.with_name(f"{log_dir.name}-{number}") for number in range(2, 1000)))
        log_dir = next(name for name in names if not name.exists())
    return log_dir


def open_job(config: LaunchConfig) -> Job:
    """The job, its pictures counted; nothing is written yet."""
    if config.synthetic:
        return make_job(config, None)
    return make_job(config, open_dataset(resolve_data_dir(config)))


def announce(job: Job, plan: ThreadPlan, log_dir: Path, output: Path | None) -> None:
    """What will run, on what, and where the results go."""
    card, config = job.model.card, job.config
    say(
        f"model: {card.name}, batch size {config.batch_size}, weights {card.weights.source} (sha256 {card.weights.sha256[:12]})"
    )
    say(f"device: {job.provider} ({job.provider_reason}), {config.precision}")
    say(f"cores: {core_budget()}; {plan}")
    if job.dataset is None:
        say(
            f"input: synthetic, made once in each worker; no reading, decoding or results; {config.iterations} step(s) a worker"
        )
    else:
        limited = f", the first {job.num_records} of them" if config.limit else ""
        say(f"input: {job.dataset.source}: {job.dataset.num_records} records{limited}")
        for line in job.dataset.scan.summary() if job.dataset.scan else ():
            say(f"  {line}")
        for line in job.dataset.scan.unreadable_lines() if job.dataset.scan else ():
            warn(f"infer_launch: {line}")
        if card.weights.is_random:
            warn("infer_launch: warning: the weights are random; classes and scores mean nothing, only the speed does")
    say(f"job: {log_dir.name}, fingerprint {job.fingerprint}")
    if output is not None:
        say(f"output: {output}")


def run(launch: Launch) -> int:
    """Run what is to do, then reconcile and tell the result; returns the exit code."""
    aggregate = Aggregate()
    engine = None
    try:
        if launch.todo or launch.output is None:
            with Screen(sum(map(len, launch.todo)) or None) as screen:
                engine = make_engine(launch, write_run(launch), aggregate, screen)
                engine.run()
    finally:
        if launch.output is not None:
            note_parts(launch.job, launch.output, launch.description, aggregate.parts)
    return finish(launch, aggregate, engine)


def make_engine(launch: Launch, run_file: Path, aggregate: Aggregate, screen: Screen) -> Engine:
    """The engine asked for, its reports going to `aggregate` and to the screen."""
    config, output = launch.job.config, launch.output

    def make_steps(rate: float) -> list[Step]:
        batches, steps = plan_steps(config, launch.plan, launch.todo, rate)
        chosen = f"{batches} batches x {config.batch_size} pictures a step"
        screen.line(f"warm-up: {rate:.1f} images/sec on the first worker; {chosen}, {len(steps)} steps")
        if output is not None:
            launch.description["resolved"]["batches_per_step"] = batches
            write_job(output, launch.description)
        return steps

    def on_event(worker: int, event: dict[str, Any]) -> None:
        aggregate.add(worker, event)
        if event["event"] == "ready":
            screen.log(f"worker {worker}: {describe_proof(event['proof'])}", worker=worker)
        elif event["event"] == "replaced":
            then = "a new one takes over" if event["by_another"] else "it does not start; the others go on without it"
            warn(f"infer_launch: worker {worker} ended by {event['how']}; {then}")
        elif event["event"] == "step":
            screen.advance(event["count"])
            if (line := aggregate.next_line(engine.busy_workers())) is not None:
                screen.line(line)
            failures = aggregate.failures
            if config.max_failures and failures > config.max_failures:
                engine.refuse(
                    RunError(f"{failures} pictures failed, more than --max_failures {config.max_failures}: see {output}")
                )

    engine: Engine
    if config.engine == "inline":
        from inference.inline import InlineEngine

        engine = InlineEngine(run_file, make_steps=make_steps, on_event=on_event)
    else:
        engine = Supervisor(
            run_file,
            launch.plan,
            batch_size=config.batch_size,
            make_steps=make_steps,
            on_event=on_event,
            is_published=lambda step: output is not None and (output / part_name(step)).exists(),
            own_partition=output is None,
        )
    return engine


def plan_steps(config: LaunchConfig, plan: ThreadPlan, todo: list[Step], rate: float) -> tuple[int, list[Step]]:
    """Batches per step, and the steps: about 10 s each by the warm-up's rate (synthetic 5 s), at most 1500 batches."""
    seconds = SYNTHETIC_STEP_S if config.synthetic else STEP_S
    batches = config.batches_per_step or max(1, min(MAX_BATCHES_PER_STEP, round(rate * seconds / config.batch_size)))
    if config.synthetic:
        size = batches * config.batch_size
        workers = range(plan.num_devices)
        return batches, [Step(worker, i * size, (i + 1) * size) for i in range(config.iterations) for worker in workers]
    if not config.batches_per_step:
        fair = sum(map(len, todo)) / (plan.num_devices * _STEPS_PER_WORKER * config.batch_size)
        batches = max(1, min(batches, math.ceil(fair)))
    return batches, [step for gap in todo for step in split_step(gap, batches * config.batch_size)]


def write_run(launch: Launch) -> Path:
    """run.json, all that a worker of this launch needs; and the manifest of a plain folder, which exists nowhere else."""
    job, plan, log_dir, output = launch.job, launch.plan, launch.log_dir, launch.output
    config, model, manifests = job.config, job.model, {}
    if job.dataset is not None:
        for partition in job.dataset.partitions:
            path = job.dataset.root / str(partition.index) / MANIFEST_FILE
            if job.dataset.scan is not None:
                path = log_dir / MANIFEST_FILE
                partition.manifest.write(path)
            manifests[str(partition.index)] = str(path.resolve())
    measured = not config.batches_per_step
    run = {
        "config": asdict(config),
        "model_folder": str(model.graph.parent),
        "output_shapes": model.sidecar.outputs,
        "session": asdict(job.session_spec(plan.streams, plan.threads_per_stream)),
        "plan": asdict(plan),
        "warm_up_s": 1.0 if measured else 0.0,
        "manifests": manifests,
        "output": str(output.resolve()) if output else None,
        "log_dir": str(log_dir.resolve()),
        "metadata": {
            "fingerprint": job.fingerprint,
            "model": model.card.name,
            "graph_sha256": model.sidecar.sha256,
            "weights": asdict(model.card.weights),
            "recipe": asdict(model.card.recipe),
        },
    }
    write_json(log_dir / "run.json", run)
    return log_dir / "run.json"
