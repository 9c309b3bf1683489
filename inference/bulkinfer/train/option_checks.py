"""Options of a training run that contradict each other, or are out of range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bulkinfer.errors import UsageError

if TYPE_CHECKING:
    from bulkinfer.train.options import TrainConfig

_MOST = {
    **dict.fromkeys(("label_smoothing", "mix_probability", "lr_end", "rmsprop_decay", "lr_decay", "norm_eps"), 1.0),
    **dict.fromkeys(("epochs", "checkpoints_per_epoch", "logs_per_epoch"), 1e6),
    "dataset_percentage": 100.0,
    "loss_scaling": 2**24,
    "steps": 10**12,
}


def check_together(config: TrainConfig) -> None:
    """Raises UsageError for options that exclude each other, or values out of range that no single option shows."""
    if config.epochs and config.steps:
        raise UsageError("--epochs and --steps both set the length of the run: leave one out")
    if config.lr and config.base_learning_rate:
        raise UsageError("--lr and --base_learning_rate both set the rate: leave one out")
    if config.norm_groups and config.norm_channels_per_group:
        raise UsageError("--norm_groups and --norm_channels_per_group both set the groups: leave one out")
    if config.optimizer == "nesterov" and not config.momentum:
        raise UsageError("--momentum 0: nesterov needs a momentum; without one, give --optimizer sgd")
    if config.momentum >= 1:
        raise UsageError(f"--momentum {config.momentum:g}: it must be below 1, or the updates grow without end")
    if config.ema >= 1:
        raise UsageError(f"--ema {config.ema:g}: it must be below 1, or the average never moves")
    if config.target_accuracy > 1:
        raise UsageError(f"--target_accuracy {config.target_accuracy:g}: give a share from 0 to 1, such as 0.759 for 75.9 %")
    if config.stop_at_target and not config.target_accuracy:
        raise UsageError("--stop_at_target needs a --target_accuracy: give one, or leave it out")
    if config.target_accuracy and (config.validation == "none" or config.dataset in ("generated", "synthetic")):
        what = "--validation none" if config.validation == "none" else f"--dataset {config.dataset}"
        raise UsageError(f"--target_accuracy needs validations, and {what} has none: leave one of them out")
    for name in ("wandb_project", "wandb_run_name", "wandb_tags"):
        if not config.wandb and getattr(config, name) != getattr(type(config), name):
            raise UsageError(f"--{name} belongs to --wandb: leave it out, or give that")
    if not 0 < config.average_decay < 1:
        raise UsageError(f"--average_decay {config.average_decay:g}: it must be above 0 and below 1")
    if config.average != "none" and config.keep_last and not 0 < config.average_last <= config.keep_last:
        wanted = f"the last {config.average_last}" if config.average_last else "all"
        raise UsageError(
            f"--average {config.average} takes {wanted} checkpoints, and --keep_last {config.keep_last} keeps fewer: give "
            f"--keep_last {config.average_last}"
        )
    if not config.lr_decay_epochs:
        raise UsageError("--lr_decay_epochs 0: it must be above 0")
    if 0 < config.validation_epochs < 1e-6:
        raise UsageError(f"--validation_epochs {config.validation_epochs:g} must be 0, or at least a millionth")
    if config.loss_scaling_mode == "ramp":
        _check_ramp(config)
    if config.lars_skip and config.optimizer != "lars":
        raise UsageError("--lars_skip belongs to --optimizer lars: leave it out, or give that")
    if config.half_type != "bfloat16" and config.precision == "32.32":
        raise UsageError(f"--half_type {config.half_type} belongs to --precision 16.32 or 16.16")
    if config.stochastic_rounding != "auto" and config.precision != "16.16":
        raise UsageError("--stochastic_rounding belongs to --precision 16.16: other weights are float32, and not rounded")
    if config.l2 < 0 and config.l2 != -1:
        raise UsageError(f"--l2 {config.l2:g} is below 0")
    if config.seed >= 2**63:
        raise UsageError(f"--seed {config.seed} is above {2**63 - 1}")
    if (config.norm_groups or config.norm_channels_per_group) and config.norm != "group":
        raise UsageError("--norm_groups and --norm_channels_per_group belong to --norm group")
    if config.norm_span > 1 and config.norm != "batch":
        raise UsageError(f"--norm_span {config.norm_span} belongs to --norm batch: leave it out, or give that")
    if config.norm_span > 1 and config.compile:
        raise UsageError(f"--norm_span {config.norm_span} cannot be combined with --compile: leave one of them out")
    _check_stages(config)
    for name, most in _MOST.items():
        if getattr(config, name) > most:
            raise UsageError(f"--{name} {getattr(config, name):g} is more than {most:g}")


def _check_stages(config: TrainConfig) -> None:
    """Raises UsageError for options that need the whole network in one process, or micro batches of different sizes."""
    if max(config.shards, len(config.splits) + 1) == 1:
        return
    if config.shards == 1:
        raise UsageError(
            "--shards 1 leaves the network whole, and --pipeline_splits divides it: leave one of them out, or give "
            "--pipeline_splits none"
        )
    needs_all = ("compile", "shard_optimizer", "train_only", "train_from", "ema")
    if beside := [name for name in needs_all if getattr(config, name)]:
        raise UsageError(f"--{beside[0]} cannot be combined with --shards and --pipeline_splits: leave it or these out")
    if config.on_bad_picture == "skip":
        raise UsageError(
            "--on_bad_picture skip cannot be combined with --shards and --pipeline_splits, since stages need micro batches of "
            "one size: repair the pictures that --check_pictures names"
        )


def _check_ramp(config: TrainConfig) -> None:
    """Raises UsageError if no doubling leads from the first loss scale to the last one."""
    first, last = config.loss_scaling_start, config.loss_scaling
    if first and last >= 2 * first and math.log2(last / first).is_integer():
        return
    given, what = f" {last:g}" if last else "", "a power of two" if first == 1 else f"{first:g} times a power of two"
    example = 1024 * (first or 1)
    raise UsageError(
        f"--loss_scaling{given}: --loss_scaling_mode ramp doubles from {first:g} up to it: give {what}, such as {example:g}"
    )
