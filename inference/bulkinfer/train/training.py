"""What a run is made of: the network, its data, the plan, and how far the run has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bulkinfer.train.averages.ema import Ema
from bulkinfer.train.data.augment import Mixing
from bulkinfer.train.data.draws import Integers
from bulkinfer.train.data.opening import Augmentation
from bulkinfer.train.data.samples import Samples
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.plan import Epochs
from bulkinfer.train.ranks.group import Ranks
from bulkinfer.train.ranks.world import World
from bulkinfer.train.update.schedules import Schedule
from bulkinfer.train.update.step import LossScale, Precision
from bulkinfer.train.update.updating import Updater

if TYPE_CHECKING:
    from bulkinfer.train.ranks.stages import Stage


@dataclass(frozen=True)
class Model:
    """What is trained. `forward` is the network, compiled if that was asked for. `loss_scale` and `ema` change.

    `stage` is the part of the network that this rank has, if it is divided; the network is whole between its passes only.
    """

    network: nn.Module
    forward: Callable[[Tensor], Tensor]
    updater: Updater
    precision: Precision
    loss_scale: LossScale
    ema: Ema | None = None
    stage: Stage | None = None

    @property
    def buffers(self) -> list[Tensor]:
        """The buffers of the network, such as averages of batch norm; with a stage, those of its part."""
        return list(self.network.buffers()) if self.stage is None else self.stage.buffers


@dataclass(frozen=True)
class TrainingData:
    """What it is trained on.

    `chosen` holds the indices of the samples that are used. `mean` and `std` have one value per channel and lie on the device
    that computes. `held_out` are the validation pictures, or None.
    """

    samples: Samples
    chosen: Integers
    held_out: Samples | None
    mean: Tensor
    std: Tensor
    augmentation: Augmentation
    mixing: Mixing

    @property
    def device(self) -> torch.device:
        """The device that computes."""
        return self.mean.device


@dataclass(frozen=True)
class Plan:
    """How it is trained, with every choice made. `facts` are written into each checkpoint."""

    config: TrainConfig
    epochs: Epochs
    schedule: Schedule
    micro_batch: int
    world: World
    facts: dict[str, Any]


@dataclass
class Progress:
    """How far the run has come.

    `done` counts the updates since the run began. `best` is the best validation among the checkpoints that were saved, with
    step -1 if there is none. `last_accuracy` (0 to 1) is that of the last validation in this process. `seconds_before` is the
    time that the run took before it was continued. `window` holds what Window.sums() gives for the updates that are not yet in
    a row of training.csv. `owes_validation` is true if a validation was due after the last update and has not been made.
    `time_to_target_s` is the time until a validation reached --target_accuracy; None if none has.
    """

    done: int = 0
    best: dict[str, Any] = field(default_factory=lambda: {"step": -1, "accuracy": -1.0})
    last_accuracy: float | None = None
    checkpoint: Path | None = None
    seconds_before: float = 0.0
    window: tuple[float, ...] = ()
    owes_validation: bool = False
    time_to_target_s: float | None = None
    started: float = field(default_factory=time.perf_counter)

    @property
    def total_s(self) -> float:
        """Seconds that the run took so far, also before it was continued."""
        return self.seconds_before + time.perf_counter() - self.started


@dataclass(frozen=True)
class Training:
    """A run that is ready to start, or to go on."""

    model: Model
    data: TrainingData
    plan: Plan
    progress: Progress
    ranks: Ranks
