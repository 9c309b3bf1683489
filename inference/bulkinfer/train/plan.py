"""Batch sizes (micro batch x accumulation x replicas = global batch), and how an epoch is divided into updates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from bulkinfer.errors import UsageError


@dataclass(frozen=True, slots=True)
class Batches:
    """`global_batch` pictures per update of the weights: `accumulation` forward passes of `micro_batch` on each replica."""

    micro_batch: int
    accumulation: int
    replicas: int

    @property
    def global_batch(self) -> int:
        return self.micro_batch * self.accumulation * self.replicas


def solve(micro_batch: int, accumulation: int, replicas: int, global_batch: int, *, default_micro_batch: int) -> Batches:
    """The batch sizes that follow from the given numbers (0: not given).

    What they leave open becomes 1, the micro batch its default. Raises UsageError if the numbers contradict each other.
    """
    known = (micro_batch or 1) * (accumulation or 1) * (replicas or 1)
    if global_batch:
        left, rest = divmod(global_batch, known)
        if rest or (left != 1 and micro_batch and accumulation and replicas):
            raise UsageError(_contradiction(micro_batch, accumulation, replicas, global_batch))
        if not micro_batch and not accumulation:  # at most the default, and the rest by accumulation
            micro_batch = next(size for size in range(min(left, default_micro_batch), 0, -1) if left % size == 0)
            accumulation = left // micro_batch
        elif not micro_batch:
            micro_batch = left
        elif not accumulation:
            accumulation = left
        elif not replicas:
            replicas = left
    return Batches(micro_batch or default_micro_batch, accumulation or 1, replicas or 1)


def _contradiction(micro_batch: int, accumulation: int, replicas: int, global_batch: int) -> str:
    given = {
        "--micro_batch_size": micro_batch,
        "--gradient_accumulation": accumulation,
        "the number of replicas": replicas,
    }
    product = " x ".join(f"{name} {value}" for name, value in given.items() if value)
    return (
        f"{product} do not make --global_batch_size {global_batch}: micro batch x accumulation x replicas is the global batch"
    )


@dataclass(frozen=True, slots=True)
class Epochs:
    """How the `num_samples` of each epoch are divided into updates, and the number of updates in all.

    Every update takes the next `global_batch` samples, the last one of an epoch takes the rest. A rest of one sample joins the
    update before it, since batch norm has no variance over one sample. `updates_per_epoch`, if it is not 0, is what lengths,
    rates, logs and checkpoints count as an epoch; the samples are those of passes over all of them in either case.

    Stages of a network need whole micro batches: with a `unit`, the samples of a micro batch of all replicas, the rest is cut
    to a multiple of it, and left out if that is less than `least` of them.
    """

    num_samples: int
    global_batch: int
    total_steps: int
    updates_per_epoch: int = 0
    unit: int = 0
    least: int = 1

    @property
    def steps_per_epoch(self) -> int:
        """Updates that count as an epoch."""
        return self.updates_per_epoch or self.steps_per_pass

    @property
    def steps_per_pass(self) -> int:
        """Updates of one pass over all samples."""
        whole, left = divmod(self.num_samples, self.global_batch)
        if self.unit:
            return whole + (left // self.unit >= self.least)
        return max(1, whole + (left > 1 or (left == 1 and self.global_batch == 1)))

    @property
    def samples_per_pass(self) -> int:
        """The samples that a pass takes: all of them, but for what stages leave out."""
        if not self.unit:
            return self.num_samples
        return min(self.num_samples // self.unit * self.unit, self.steps_per_pass * self.global_batch)

    def pass_of(self, step: int) -> int:
        """The pass over the samples, from 0, that update `step`, from 0, belongs to."""
        return step // self.steps_per_pass

    def window(self, step: int) -> tuple[int, int]:
        """Start and end (exclusive) of an update's samples in the order of its pass."""
        position = step % self.steps_per_pass
        start = position * self.global_batch
        return start, self.samples_per_pass if position == self.steps_per_pass - 1 else start + self.global_batch

    def pictures(self, done: int) -> int:
        """The number of pictures in the first `done` updates."""
        passes, position = divmod(done, self.steps_per_pass)
        return passes * self.samples_per_pass + position * self.global_batch


def share(start: int, end: int, rank: int, replicas: int) -> tuple[int, int]:
    """The contiguous part of a window that one replica takes; parts differ in size by one at most."""
    size = end - start
    return start + size * rank // replicas, start + size * (rank + 1) // replicas


def micro_batches(start: int, end: int, size: int) -> list[tuple[int, int]]:
    """Divide a replica's share of a window into pieces of at most `size`; [] if it is empty.

    A last piece of one sample shares the samples of the piece before evenly, or joins it if that has two: batch norm has no
    variance over one sample.
    """
    borders = [*range(start, end, size), end]
    if len(borders) > 2 and borders[-1] - borders[-2] == 1 and size > 1:
        if size == 2:
            del borders[-2]
        else:
            borders[-2] = borders[-3] + math.ceil((end - borders[-3]) / 2)
    return [(one, other) for one, other in pairwise(borders) if one < other]


def micro_batches_of(
    start: int, end: int, *, micro_batch: int, replica: int, replicas: int, span: int = 1
) -> list[tuple[int, int]]:
    """The micro batches of one replica in a window; [] if there is nothing for it.

    The `span` replicas that share the statistics of batch norm are one replica with so many times the micro batch, of which
    each takes its part. So all of them have the same number of micro batches, and some of these may be empty.
    """
    pieces = micro_batches(*share(start, end, replica // span, replicas // span), micro_batch * span)
    return [share(one, other, replica % span, span) for one, other in pieces]


def total_steps(epochs: float, steps: int, steps_per_epoch: int) -> int:
    """The number of updates of a run: `steps` if that is not 0, else those of `epochs`, rounded up."""
    return steps or math.ceil(epochs * steps_per_epoch - 1e-9)


def every(count_per_epoch: Fraction, steps_per_epoch: int) -> float:
    """Updates between two events that happen `count_per_epoch` times per epoch (1/2: every other epoch); inf for 0."""
    return float(steps_per_epoch / count_per_epoch) if count_per_epoch else math.inf


def is_due(done: int, interval: float, offset: float = 0.0) -> bool:
    """Whether an event is due after update number `done`.

    Events happen every `interval` updates, the first one `offset` updates later. The interval may be fractional: the k-th event
    is due after ceil(k x interval) updates.
    """
    if math.isinf(interval):
        return False
    return math.floor(_ratio(done - offset, interval)) > max(0, math.floor(_ratio(done - 1 - offset, interval)))


def _ratio(updates: float, interval: float) -> float:
    return max(0.0, updates) / interval + 1e-9  # so that rounding errors do not miss a whole number
