"""One launch of `bulkinfer train` from options to exit code: a new run, or one that is continued."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from bulkinfer.errors import BulkinferError, RunError, UsageError, first_line
from bulkinfer.host.cores import core_budget
from bulkinfer.host.versions import versions
from bulkinfer.train import checkpoint, replicas
from bulkinfer.train.checkpoint import Checkpoint
from bulkinfer.train.loop import Training, train
from bulkinfer.train.opening import with_data_found
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.replicas import World, find_world
from bulkinfer.train.resume import changed_options, restore
from bulkinfer.train.runs import Log, Run, Silence, lock_run, new_run, write_arguments
from bulkinfer.train.setup import print_plan, set_up

log = logging.getLogger("bulkinfer")


def run(config: TrainConfig) -> int:
    """Train, or continue a run; returns 0, or 130 or 143 if a signal ended it after a last checkpoint.

    Raises UsageError before anything is written, RunError later.
    """
    found = checkpoint.find(Path(config.resume)) if config.resume else None
    if found is not None:
        refuse_later(found.path)
    world = find_world(config.replicas, is_plan=config.dry_run)
    config = with_data_found(config)
    changed = {} if found is None else changed_options(found, config)
    torch.set_num_threads(max(1, core_budget().usable // world.local_replicas))
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it CUDA refuses its matrix products then
    torch.use_deterministic_algorithms(config.deterministic)
    training, plan = set_up(config, world)
    done = 0 if found is None else restore(training, found)
    if world.is_first:
        tell(plan, changed, found, training.epochs.total_steps)
    if config.dry_run or (found is not None and done == training.epochs.total_steps):
        return 0
    replicas.join(world, training.mean.device)
    run = open_log(config, training, found, plan, done) if world.is_first else Silence()
    try:
        with stopping(world) as stopped:
            done = train(training, run, done, lambda: bool(stopped))
    except Exception as error:
        if config.compile and type(error).__module__.startswith(("torch._inductor", "torch._dynamo")):
            raise RunError(f"--compile: the network cannot be compiled here ({first_line(error)}): leave it out") from error
        raise
    finally:
        run.close()
    replicas.leave(world)
    if not stopped or done == training.epochs.total_steps:
        return 0
    name = signal.Signals(stopped[0]).name
    log.warning(
        f"bulkinfer train: stopped by {name} after update {done}; bulkinfer train --resume {run.folder} goes on from there"
    )
    return 128 + stopped[0]


def tell(plan: dict[str, str], changed: dict[str, tuple[Any, Any]], found: Checkpoint | None, total_steps: int) -> None:
    """What is going to happen, on the screen."""
    print_plan(plan)
    for name, (before, now) in changed.items():
        log.info(f"changed: --{name} {shown(now)} (so far {shown(before)})")
    if found is not None:
        log.info(f"resume: {found.step} of {total_steps} updates are done, from {found.path}")
        if found.step == total_steps:
            log.info("nothing is left to do: a larger --epochs or --steps makes the run longer")


def shown(value: Any) -> str:
    """A value of an option as it is typed."""
    return " ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


def open_log(config: TrainConfig, training: Training, found: Checkpoint | None, plan: dict[str, str], done: int) -> Log:
    """The log of a new run, or of one that is continued; it holds the folder until it is closed."""
    if found is None:
        network = training.facts["network"]["model"]
        folder = new_run(Path(config.log_path), network, training.facts["dataset"], config.name_suffix)
        lock = lock_run(folder)
    else:
        folder = found.path.parent.parent
        lock = lock_run(folder)
        try:
            refuse_later(found.path)  # another process may have trained it since we looked
        except UsageError:
            lock.release()
            raise
        checkpoint.clean(folder, done)
    write_arguments(folder, {"config": asdict(config), "plan": plan, "from_step": done, "versions": versions()})
    pictures = training.epochs.pictures(training.epochs.total_steps) - training.epochs.pictures(done)
    run = Run(folder, from_step=done, tensorboard=config.tensorboard, pictures=pictures, lock=lock)
    run.say(f"run: {folder}")
    return run


@contextmanager
def stopping(world: World) -> Iterator[list[int]]:
    """A list that gets the number of the first SIGINT or SIGTERM; the update at work ends and is saved. A second acts at once.

    Not with replicas: one that stops alone would leave the others waiting.
    """
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)
        log.warning("bulkinfer train: stopping after this update; a second signal stops at once")

    watched = (signal.SIGINT, signal.SIGTERM) if world.replicas == 1 else ()
    before = {number: signal.getsignal(number) for number in watched if signal.getsignal(number) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def refuse_later(path: Path) -> None:
    """Raises UsageError if the run that a checkpoint belongs to has later ones that can be read."""
    folder = path.parent.parent
    for later in checkpoint.steps_of(folder)[::-1]:
        if later.name <= path.name:
            break
        try:
            checkpoint.read(later)
        except BulkinferError:
            continue
        raise UsageError(
            f"{folder} has a later checkpoint, {later.name}: remove those after {path.name}, or continue from the last"
        )
