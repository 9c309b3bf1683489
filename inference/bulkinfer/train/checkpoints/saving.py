"""The checkpoints of a run: what they hold, and which are kept."""

from __future__ import annotations

import shutil

from torch import Tensor

from bulkinfer.files.atomic import naming
from bulkinfer.train.checkpoints import checkpoint
from bulkinfer.train.runs import Log
from bulkinfer.train.training import Training
from bulkinfer.train.update.optimisers import gather_state


def save(training: Training, run: Log) -> None:
    """The first rank saves a checkpoint, which takes all ranks, and removes older ones that are not to be kept."""
    model, plan, progress = training.model, training.plan, training.progress
    optimiser = whole_state(training)
    if model.stage is not None:
        model.stage.make_whole()
    if not plan.world.is_first:
        return
    scale = {"value": model.loss_scale.value, "good_steps": model.loss_scale.good_steps}
    epoch = progress.done / plan.epochs.steps_per_epoch
    state = {**plan.facts, "step": progress.done, "epoch": epoch, "loss_scale": scale, "best": progress.best,
             "total_s": progress.total_s, "window": progress.window, "owes_validation": progress.owes_validation}  # fmt: skip
    if progress.time_to_target_s is not None:
        state["time_to_target_s"] = progress.time_to_target_s
    progress.checkpoint = checkpoint.save(run.folder, model.network, optimiser, state, model.ema)
    checkpoint.prune(run.folder, keep_last=plan.config.keep_last, best_step=progress.best["step"])
    run.say(f"checkpoint: {progress.checkpoint}")


def whole_state(training: Training) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The state of the optimiser for all parameters, as flatten_optimiser() gives it, on the first rank."""
    optimiser, stage = training.model.updater.optimiser, training.model.stage
    gather_state(optimiser)
    own = checkpoint.flatten_optimiser(optimiser) if stage is not None or training.plan.world.is_first else ({}, {})
    if stage is None:
        return own
    tensors, numbers = dict[str, Tensor](), dict[str, float]()
    for part, part_numbers in stage.gather(own):
        tensors |= part
        numbers |= part_numbers
    return tensors, numbers


def remove_all(training: Training, run: Log) -> None:
    """The first replica removes all checkpoints of the run. Raises RunError for one that cannot be removed."""
    if not training.plan.world.is_first:
        return
    for path in checkpoint.steps_of(run.folder):
        with naming(path):
            shutil.rmtree(path)
    training.progress.checkpoint = None
    run.say("checkpoints: removed, as --remove_checkpoints asks")
