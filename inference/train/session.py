"""One run of `bulkinfer train` from options to exit code."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from inference.cores import core_budget
from inference.errors import UsageError
from inference.runlog import say, versions
from inference.train import checkpoint
from inference.train.loop import train, validate
from inference.train.options import TrainConfig
from inference.train.resume import changed_options, restore
from inference.train.runs import Run, new_run, write_arguments
from inference.train.setup import print_plan, set_up


def run(config: TrainConfig) -> int:
    """Train, or continue a run; returns 0. Raises UsageError before anything is written, RunError later."""
    found = checkpoint.find(Path(config.resume)) if config.resume else None
    changed = {} if found is None else changed_options(found, config)
    torch.set_num_threads(core_budget().usable)
    torch.use_deterministic_algorithms(config.deterministic)
    training, plan = set_up(config)
    done = 0 if found is None else restore(training, found)
    print_plan(plan)
    for name, (before, now) in changed.items():
        say(f"changed: --{name} {now} (so far {before})")
    if done:
        say(f"resume: {done} of {training.epochs.total_steps} updates are done, from {found and found.path}")
    if config.dry_run:
        return 0
    if found is None:
        folder = new_run(Path(config.log_path), config.model, training.facts["dataset"], config.name_suffix)
    else:
        folder = _run_of(found.path)
    write_arguments(folder, {"config": asdict(config), "plan": plan, "from_step": done, "versions": versions()})
    log = Run(folder, from_step=done, tensorboard=config.tensorboard)
    try:
        log.say(f"run: {folder}")
        train(training, log, done)
        if config.validation == "after" and training.held_out is not None and done == training.epochs.total_steps:
            validate(training, log, done)
    finally:
        log.close()
    return 0


def _run_of(path: Path) -> Path:
    """The folder of the run that a checkpoint belongs to. Raises UsageError if the run has later ones."""
    folder = path.parent.parent
    if (last := checkpoint.steps_of(folder)[-1]) != path:
        raise UsageError(
            f"{folder} has a later checkpoint, {last.name}: remove those after {path.name}, or continue from the last"
        )
    return folder
