"""Continue a run: its options stay, options given now win, and none may contradict the updates already done."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError, UsageError
from bulkinfer.train.checkpoints import checkpoint
from bulkinfer.train.checkpoints.checkpoint import Checkpoint
from bulkinfer.train.checkpoints.state import options_of_state
from bulkinfer.train.network.networks import load_weights
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.training import Training
from bulkinfer.types import shell_word

# Options that the updates already done depend on.
_PAST = (
    "model", "model_size", "image_size", "input_channels", "norm", "norm_groups", "norm_channels_per_group", "norm_eps",
    "norm_momentum", "zero_gamma", "shortcut_type", "cardinality", "width", "expand_ratio", "group_width", "squeeze_excite",
    "relu", "depth_factor", "width_factor", "depth_divisor", "top_width", "dataset", "dataset_percentage", "optimizer",
    "train_only", "train_from", "ema", "seed", "class_order", "updates_per_epoch", "shuffle", "lars_skip",
    "use_boxes", "image_column", "label_column",
)  # fmt: skip
_AGAIN = {
    "num_samples": "put the pictures back that were taken out, which keeps the numbers of the others; an empty file in the "
    "place of one will do, with --on_bad_picture skip",
    "global_batch": "continue it with the same",
}


def options_of(path: str) -> dict[str, Any]:
    """The options of the run that --resume names. Raises UsageError or RunError if there is no such run."""
    return options_of_state(find_last(Path(path), warns=False).state)


def find_last(path: Path, *, warns: bool = True) -> Checkpoint:
    """The checkpoint that a run goes on from, at a path as checkpoint.find() takes it.

    Raises UsageError if there is none, or if it is an average, which has no optimiser.
    """
    found = checkpoint.find(path, warns=warns)
    if "average" in found.state:
        raise UsageError(
            f"--resume: {found.path} is an average of checkpoints and continues no run: a new run begins with its weights by "
            f"--init_checkpoint {shell_word(found.path)}"
        )
    return found


def changed_options(found: Checkpoint, config: TrainConfig) -> dict[str, tuple[Any, Any]]:
    """Options that differ from those of a checkpoint: value before and now. Raises UsageError for one that must not change."""
    before, now = options_of_state(found.state), asdict(config)
    changed = {name: (before[name], value) for name, value in now.items() if name in before and before[name] != value}
    for name in changed:
        if name in _PAST:
            raise UsageError(f"--{name} cannot be changed when a run is continued ({before[name]} so far): start a new run")
    return changed


def refuse_later(path: Path) -> None:
    """Raises UsageError if the run of a checkpoint has later ones that can be read."""
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


def restore(training: Training, found: Checkpoint) -> None:
    """Load a checkpoint into a run that was set up. Raises UsageError if it does not fit."""
    facts, epochs = training.plan.facts, training.plan.epochs
    if found.state["dataset"] != facts["dataset"] or found.state["class_names"] != facts["class_names"]:
        raise UsageError(f"{found.path} was trained on other data: {found.state['dataset']}, with other classes")
    for name in ("num_samples", "global_batch"):
        there, now = found.state[name], facts[name]
        if there != now:
            advice = _AGAIN[name] if now < there else "continue it with the same"
            raise UsageError(f"{found.path}: the run has {name} {there}, it would have {now} now: {advice}")
    if found.step > epochs.total_steps:
        raise UsageError(
            f"{found.path} is at update {found.step}, but the run would end at {epochs.total_steps}: give more --epochs or "
            "--steps"
        )
    model, progress = training.model, training.progress
    load_weights(model.network, found.weights, found.path)
    checkpoint.restore_optimiser(model.updater.optimiser, found)
    model.updater.forget_others()
    if model.ema is not None and found.ema:
        model.ema.restore(found.ema, found.state["ema_updates"], found.path)
    changed = changed_options(found, training.plan.config)
    if model.loss_scale.kind == "dynamic" and changed.keys().isdisjoint({"loss_scaling", "loss_scaling_mode"}):
        scale = found.state["loss_scale"]
        model.loss_scale.value, model.loss_scale.good_steps = scale["value"], scale["good_steps"]
    progress.done, progress.checkpoint = found.step, found.path
    progress.best = dict(found.state["best"])
    progress.seconds_before = found.state["total_s"]
    if "target_accuracy" not in changed:
        progress.time_to_target_s = found.state.get("time_to_target_s")
    if training.plan.world.is_first:  # the sums are those of all replicas
        progress.window = tuple(found.state.get("window", ()))
    progress.owes_validation = found.state.get("owes_validation", False) and training.data.held_out is not None
