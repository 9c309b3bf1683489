"""One training run from options to result: a new run, or one that is continued."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bulkinfer.errors import RunError, first_line
from bulkinfer.files.latest_link import point_latest
from bulkinfer.files.user_path import real_path
from bulkinfer.host.versions import versions
from bulkinfer.train.averages.average import average_at_end
from bulkinfer.train.averages.ema import warn_if_slow
from bulkinfer.train.checkpoints import checkpoint
from bulkinfer.train.checkpoints.checkpoint import Checkpoint
from bulkinfer.train.checkpoints.resume import changed_options, find_last, refuse_later, restore
from bulkinfer.train.checkpoints.saving import remove_all
from bulkinfer.train.data.opening import with_data_found
from bulkinfer.train.defaults import with_defaults
from bulkinfer.train.loop import run_updates
from bulkinfer.train.network.compile_cache import private_cache
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.picture_check import check_pictures
from bulkinfer.train.ranks.agreement import agree
from bulkinfer.train.ranks.group import connected, noticing_lost_ranks
from bulkinfer.train.ranks.start import ranks_to_start, start_ranks
from bulkinfer.train.ranks.world import World, find_world
from bulkinfer.train.runs import Log, Run, Silence, lock_run, new_run, write_arguments
from bulkinfer.train.setup import device_of, set_up
from bulkinfer.train.tracking.profiler import check_profile
from bulkinfer.train.tracking.tracker import identity_of, tracked
from bulkinfer.train.training import Training
from bulkinfer.train.update.step import Stop, never, warn_if_emulated
from bulkinfer.types import shell_word

log = logging.getLogger("bulkinfer")


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run came to.

    `folder` is the folder of the run and `checkpoint` its newest checkpoint; both are None for a plan (`dry_run`) and on a
    replica that is not the first. `updates` and `epochs` are counted from the beginning of the run, also where it was
    continued. Accuracies are shares from 0 to 1: `best_accuracy` is the best validation of a checkpoint that was saved,
    `last_accuracy` the last validation of this call; None if there was none. `exit_code` is 0, or what ended the run early.
    `time_to_target_s` are the seconds until a validation reached `target_accuracy`; None if none did.
    """

    folder: Path | None
    updates: int
    epochs: float
    best_accuracy: float | None
    last_accuracy: float | None
    checkpoint: Path | None
    exit_code: int = 0
    time_to_target_s: float | None = None


@contextmanager
def never_stopping() -> Iterator[Stop]:
    """Let a run go on to its end."""
    yield never


def train(
    config: TrainConfig,
    *,
    stopping: Callable[[], AbstractContextManager[Stop]] = never_stopping,
    shows_progress: bool = False,
) -> TrainResult:
    """Train a network, or continue a run (`config.resume`); with `config.dry_run`, only log the plan.

    `stopping()` is entered for the time of the updates. The function that it gives is asked in each of them: an exit code
    other than 0, on any rank, ends the run after a last checkpoint. `shows_progress` shows a live view if stdout is a terminal.

    `config.config` and `config.like` say where a command line took options from, and have no effect here. Seeds torch's random
    numbers. Raises UsageError before anything is written, RunError later.
    """
    if count := ranks_to_start(config):
        result = start_ranks(config, count, shows_progress=shows_progress)
        paths = {name: Path(result[name]) for name in ("folder", "checkpoint") if result[name] is not None}
        return TrainResult(**{**result, **paths})
    found = find_last(Path(config.resume)) if config.resume else None
    if found is not None:
        refuse_later(found.path)
    world = find_world(config.replicas, config.stages, is_plan=config.dry_run)
    with said_once(world):
        config = with_defaults(with_data_found(config))
    changed = {} if found is None else changed_options(found, config)
    here = World() if config.dry_run else world
    group = connected(here, device_of(config, here))
    with deterministic(config.deterministic), private_cache(config.compile), group as ranks:
        with said_once(world):
            training, plan_lines = set_up(config, world, ranks)
            if found is not None:
                restore(training, found)
        if world.is_first:
            log_start(plan_lines, changed, found, training.plan.epochs.total_steps)
            warn_if_emulated(training.model.precision)
            warn_if_slow(config.ema, training.plan.epochs.total_steps)
        check_profile(training)
        agree(training, found)
        if config.check_pictures:
            check_pictures(training.data, ranks, skips_bad=config.on_bad_picture == "skip")
        progress = training.progress
        is_done = progress.done == training.plan.epochs.total_steps and not progress.owes_validation
        if config.dry_run or is_done:
            folder = None if found is None or config.dry_run else found.path.parent.parent
            return result_of(training, folder, 0)
        run: Log = Silence()
        try:
            if world.is_first:
                run = open_log(training, found, plan_lines, shows_progress=shows_progress)
            with blaming_compile(config.compile):
                with stopping() as stop, noticing_lost_ranks(lambda: how_to_go_on(training, run)):
                    code = run_updates(training, run, stop)
                if world.is_first and not code:
                    average_at_end(config, run)
                if config.remove_checkpoints and not code:
                    remove_all(training, run)
        finally:
            run.close()
    return result_of(training, run.folder if world.is_first else None, code)


@contextmanager
def blaming_compile(is_compiled: bool) -> Iterator[None]:
    """Turn an error of torch's compiler into a RunError that names --compile."""
    try:
        yield
    except Exception as error:
        if is_compiled and type(error).__module__.startswith(("torch._inductor", "torch._dynamo")):
            raise RunError(f"--compile: the network cannot be compiled here ({first_line(error)}): leave it out") from error
        raise


def how_to_go_on(training: Training, run: Log) -> str:
    """What to do about a run that could not go on, as the end of a sentence."""
    if not training.plan.world.is_first:
        return ""
    if training.progress.checkpoint is None:
        return ": start again, since nothing was saved yet"
    return f": bulkinfer train --resume {shell_word(run.folder)} goes on from the last checkpoint"


@contextmanager
def said_once(world: World) -> Iterator[None]:
    """Let the first rank alone log warnings until the block ends: all ranks would log the same."""
    level = log.level
    if not world.is_first:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


@contextmanager
def deterministic(is_wanted: bool) -> Iterator[None]:
    """Let torch refuse operations that are not deterministic, if that is wanted, until the block ends."""
    if is_wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it CUDA refuses its matrix products then
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(is_wanted)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def result_of(training: Training, folder: Path | None, exit_code: int) -> TrainResult:
    """The result of a run that ended, or that had nothing to do."""
    progress = training.progress
    return TrainResult(
        folder=folder,
        updates=progress.done,
        epochs=progress.done / training.plan.epochs.steps_per_epoch,
        best_accuracy=progress.best["accuracy"] if progress.best["step"] >= 0 else None,
        last_accuracy=progress.last_accuracy,
        checkpoint=progress.checkpoint if folder is not None else None,
        exit_code=exit_code,
        time_to_target_s=progress.time_to_target_s,
    )


def log_start(
    plan_lines: dict[str, str], changed: dict[str, tuple[Any, Any]], found: Checkpoint | None, total_steps: int
) -> None:
    """Log the resolved plan, the options that differ from those of the run that is continued, and where it goes on."""
    for name, text in plan_lines.items():
        log.info(f"{name}: {text}")
    for name, (before, now) in changed.items():
        log.info(f"changed: --{name} {as_typed(now)} (so far {as_typed(before)})")
    if found is not None:
        log.info(f"resume: {found.step} of {total_steps} updates are done, from {found.path}")
        if found.step == total_steps and not found.state.get("owes_validation"):
            log.info("nothing is left to do: a larger --epochs or --steps makes the run longer")


def as_typed(value: Any) -> str:
    """The value of an option as it is typed."""
    return " ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


def open_log(training: Training, found: Checkpoint | None, plan_lines: dict[str, str], *, shows_progress: bool) -> Log:
    """The log of a new run, or of one that is continued; it holds the lock of the folder until it is closed."""
    config, facts, epochs, done = training.plan.config, training.plan.facts, training.plan.epochs, training.progress.done
    if found is None:
        place = Path(config.log_path if config.keep_run else tempfile.mkdtemp(prefix="bulkinfer-run-"))
        folder = new_run(place, facts["network"]["model"], facts["dataset"], config.name_suffix)
    else:
        folder = found.path.parent.parent
    lock, run = None, None
    try:
        lock = lock_run(folder)
        if found is not None:
            refuse_later(found.path)  # another process may have trained it since we looked
            checkpoint.clean(folder, done)
        identity = identity_of(folder) if config.wandb else ""
        write_arguments(folder, {"config": asdict(config), "plan": plan_lines, "from_step": done, "versions": versions()})
        pictures = epochs.pictures(epochs.total_steps) - epochs.pictures(done) if shows_progress else None
        run = Run(folder, from_step=done, tensorboard=config.tensorboard, pictures=pictures, lock=lock)
        if real_path(folder).parent == real_path(config.log_path):  # a run that is continued may lie elsewhere
            point_latest(folder)
        run.say(f"run: {folder}")
        return tracked(run, config, identity)
    except BaseException:
        if run is not None:
            run.close()
        elif lock is not None:
            lock.release()
        raise
