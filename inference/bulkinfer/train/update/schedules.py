"""Learning rates: pure functions of the number of updates done, so that a resumed run gets the same rates.

A rate is: peak rate x shape(progress) x warm-up(progress). Progress is in epochs, so that schedules do not depend on the
batch size.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from bulkinfer.errors import UsageError
from bulkinfer.train.compat.named_configs import origin
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.plan import Batches


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning rate during a run of `total_steps` updates, `steps_per_epoch` of them per epoch.

    - `constant`: 1.
    - `stepped`: `decay` to the power of the number of `drops` passed, which are fractions of the run; with `multipliers`, one
      more than drops, the one of that number.
    - `cosine`: half a cosine from 1 to `end_factor` (Loshchilov and Hutter, arXiv:1608.03983, without restarts).
    - `exponential`: `decay` per `decay_epochs`.
    - `polynomial`: (1 - progress) ** `power` from 1 to `end_factor` (You et al., arXiv:1708.03888, use power 2).

    The warm-up rises linearly over `warmup_epochs`, from 1 / n in the first of its n updates. With `mask` it multiplies the
    schedule, which runs from the start; with `shift` the schedule starts after it. The schedule ends with the run in both, or
    `length_epochs` after its start if that is not 0, and stays at its last value. With `staircase` progress advances
    once an epoch, with `updates_per_epoch` that many times (0: at every update).
    """

    peak: float
    shape: str
    total_steps: int
    steps_per_epoch: int
    drops: tuple[float, ...] = ()
    multipliers: tuple[float, ...] = ()
    decay: float = 0.1
    decay_epochs: float = 1.0
    power: float = 2.0
    end_factor: float = 0.0
    warmup_epochs: float = 0.0
    warmup_mode: str = "shift"
    staircase: bool = False
    updates_per_epoch: float = 0.0
    length_epochs: float = 0.0

    def rate(self, done: int) -> float:
        """The learning rate of the update that follows after `done` updates."""
        warm_steps = self.warmup_epochs * self.steps_per_epoch
        warm = min(1.0, (done + 1) / warm_steps) if warm_steps else 1.0
        shift = warm_steps if self.warmup_mode == "shift" else 0.0
        if done < shift:
            return self.peak * warm
        length = self.length_epochs * self.steps_per_epoch or max(1.0, self.total_steps - shift)
        updates = self._quantised(done - shift)
        return self.peak * warm * _FUNCTIONS[self.shape](self, min(1.0, updates / length), updates / self.steps_per_epoch)

    def _quantised(self, updates: float) -> float:
        per_epoch = 1 if self.staircase else self.updates_per_epoch
        if not per_epoch or per_epoch >= self.steps_per_epoch:
            return updates
        size = self.steps_per_epoch / per_epoch
        return math.floor(updates / size + 1e-9) * size


def _stepped(schedule: Schedule, progress: float, _epochs: float) -> float:
    passed = bisect_right(sorted(schedule.drops), progress + 1e-12)
    return schedule.multipliers[passed] if schedule.multipliers else float(schedule.decay**passed)


def _cosine(schedule: Schedule, progress: float, _epochs: float) -> float:
    return schedule.end_factor + (1 - schedule.end_factor) * (1 + math.cos(math.pi * progress)) / 2


def _exponential(schedule: Schedule, _progress: float, epochs: float) -> float:
    return float(schedule.decay ** (epochs / schedule.decay_epochs))


def _polynomial(schedule: Schedule, progress: float, _epochs: float) -> float:
    return float(schedule.end_factor + (1 - schedule.end_factor) * (1 - progress) ** schedule.power)


_FUNCTIONS: dict[str, Callable[[Schedule, float, float], float]] = {
    "constant": lambda _schedule, _progress, _epochs: 1.0,
    "stepped": _stepped,
    "cosine": _cosine,
    "exponential": _exponential,
    "polynomial": _polynomial,
}


def make_schedule(config: TrainConfig, batches: Batches, steps: int, steps_per_epoch: int) -> Schedule:
    """The schedule of a run.

    Raises UsageError for wrong --lr_drops or --lr_multipliers, a --warmup_epochs that is too long, and an --lr_end_rate above
    the peak.
    """
    drops, multipliers = _drops(config)
    peak = peak_rate(config, batches)
    if config.lr_end_rate > peak:
        raise UsageError(f"--lr_end_rate {config.lr_end_rate:g} is above the peak of the rate: give one below {peak:g}")
    if config.warmup_epochs * steps_per_epoch >= steps:
        raise UsageError(
            f"--warmup_epochs {config.warmup_epochs:g}{origin(config, 'warmup_epochs')} is the whole run or more "
            f"({steps / steps_per_epoch:g} epochs): give a smaller one"
        )
    return Schedule(
        peak=peak,
        shape=config.lr_schedule,
        total_steps=steps,
        steps_per_epoch=steps_per_epoch,
        drops=drops,
        multipliers=multipliers,
        decay=config.lr_decay,
        decay_epochs=config.lr_decay_epochs,
        power=config.lr_power,
        end_factor=config.lr_end_rate / peak if config.lr_end_rate else config.lr_end,
        warmup_epochs=config.warmup_epochs,
        warmup_mode=config.warmup_mode,
        staircase=config.lr_staircase,
        updates_per_epoch=config.lr_updates_per_epoch,
        length_epochs=config.lr_decay_length,
    )


def _drops(config: TrainConfig) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """--lr_drops and --lr_multipliers. Raises UsageError if they are wrong, or do not belong together."""
    drops, multipliers = _numbers(config.lr_drops), _numbers(config.lr_multipliers)
    if not all(0 <= drop <= 1 for drop in drops):
        of_exponential = "; a number of drops is for --lr_schedule exponential" if len(drops) == 1 and drops[0] > 1 else ""
        raise UsageError(f"--lr_drops {' '.join(config.lr_drops)}: give shares of the run, numbers from 0 to 1{of_exponential}")
    if not all(0 <= number <= 1 for number in multipliers):
        raise UsageError(f"--lr_multipliers {' '.join(config.lr_multipliers)}: give parts of the peak, numbers from 0 to 1")
    if multipliers and len(multipliers) != len(drops) + 1:
        raise UsageError(
            f"--lr_multipliers {' '.join(config.lr_multipliers)}: the drops at {' '.join(config.lr_drops)} divide "
            f"the run into {len(drops) + 1} parts: give as many numbers"
        )
    return drops, multipliers


def _numbers(words: tuple[str, ...]) -> tuple[float, ...]:
    """The numbers, each word that is none as one that is in no range."""
    try:
        return tuple(float(word) for word in words)
    except ValueError:
        return (-1.0,)


def peak_rate(config: TrainConfig, batches: Batches) -> float:
    """--lr, or 2^x times the global batch for --base_learning_rate x."""
    if not config.base_learning_rate:
        assert config.lr, "with_defaults() fills it in"
        return config.lr
    try:
        exponent = float(config.base_learning_rate)
    except ValueError:
        raise UsageError(f"--base_learning_rate {config.base_learning_rate!r} is not a number") from None
    if not -100 <= exponent <= 100:
        raise UsageError(f"--base_learning_rate {config.base_learning_rate}: 2 to that power cannot be a rate")
    return float(2.0**exponent * batches.global_batch)
