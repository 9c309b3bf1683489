"""From options to what moves the weights: rate, decay, loss scale."""

from __future__ import annotations

import torch

from bulkinfer.errors import UsageError
from bulkinfer.train.optimisers import OptimiserOptions
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.plan import Batches
from bulkinfer.train.schedules import Schedule
from bulkinfer.train.step import LossScale, Precision


def peak_rate(config: TrainConfig, batches: Batches) -> float:
    """--lr, or 2^x times the global batch."""
    if not config.base_learning_rate:
        return config.lr or 0.1
    try:
        exponent = float(config.base_learning_rate)
    except ValueError:
        raise UsageError(f"--base_learning_rate {config.base_learning_rate!r} is not a number") from None
    if not -100 <= exponent <= 100:
        raise UsageError(f"--base_learning_rate {config.base_learning_rate}: 2 to that power is no rate")
    return float(2.0**exponent * batches.global_batch)


def make_schedule(config: TrainConfig, batches: Batches, steps: int, steps_per_epoch: int) -> Schedule:
    """The learning rate as a function of the update."""
    try:
        drops = tuple(float(drop) for drop in config.lr_drops)
    except ValueError:
        drops = (-1.0,)
    if not all(0 <= drop <= 1 for drop in drops):
        raise UsageError(f"--lr_drops {' '.join(config.lr_drops)}: parts of the run are needed, numbers from 0 to 1")
    if config.warmup_epochs * steps_per_epoch >= steps:
        raise UsageError(
            f"--warmup_epochs {config.warmup_epochs:g} is the whole run or more ({steps / steps_per_epoch:g} epochs)"
        )
    return Schedule(
        peak=peak_rate(config, batches),
        shape=config.lr_schedule,
        total_steps=steps,
        steps_per_epoch=steps_per_epoch,
        drops=drops,
        decay=config.lr_decay,
        decay_epochs=config.lr_decay_epochs,
        power=config.lr_power,
        end_factor=config.lr_end,
        warmup_epochs=config.warmup_epochs,
        warmup_mode=config.warmup_mode,
        staircase=config.lr_staircase,
        updates_per_epoch=config.lr_updates_per_epoch,
    )


def l2_of(config: TrainConfig) -> float:
    """--l2, or where nothing is said what is usual: none beside decoupled decay."""
    return config.l2 if config.l2 >= 0 else 0.0 if config.weight_decay else 0.0005


def loss_scale_of(config: TrainConfig) -> LossScale:
    """--loss_scaling in its mode; a dynamic scale begins high, since it falls at once and rises slowly."""
    first = 2.0**16 if config.loss_scaling_mode == "dynamic" else 1.0
    return LossScale(config.loss_scaling_mode, config.loss_scaling or first)


def optimiser_options(config: TrainConfig) -> OptimiserOptions:
    """The part of the options that makes the optimiser."""
    return OptimiserOptions(
        name=config.optimizer,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        l2=l2_of(config),
        epsilon=config.optimizer_eps,
        rmsprop_decay=config.rmsprop_decay,
        trust=config.lars_trust,
    )


def check_epsilon(config: TrainConfig, precision: Precision) -> None:
    """Raises UsageError for an optimiser that would divide by zero where its state is in 16 bits."""
    epsilon = config.optimizer_eps or 1e-8
    if config.optimizer in ("adam", "adamw", "rmsprop") and not torch.tensor(epsilon, dtype=precision.weights):
        raise UsageError(
            f"--optimizer {config.optimizer}: its epsilon {epsilon:g} is 0 in float16: give --optimizer_eps 1e-4, or keep the "
            "weights in float32 with --precision 16.32"
        )
