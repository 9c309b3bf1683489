"""The length of steps, and which runs next: new ones in order, those of dead workers again, suspect records on their own."""

from __future__ import annotations

import math
import sys
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from bulkinfer.config import LaunchConfig
from bulkinfer.types import Step

MAX_BATCHES_PER_STEP = 1500  # the reference system's step
STEP_S, SYNTHETIC_STEP_S = 10.0, 5.0
_STEP_BYTES = 1 << 28  # of saved outputs; a worker holds them in memory until the step is published
_STEPS_PER_WORKER = 4  # at least, if the length of steps was left open: then the last steps end close together
_LONE_DEATHS = 2  # deaths that prove that a single record kills its worker; one could be somebody's kill -9


@dataclass
class StepQueue:
    """What is to run: ranges of records, cut into steps as they are taken.

    A suspect is a step whose records a worker was working on when it died. It runs with nothing else in its worker; `suspects`
    counts the workers that died so. `unexplained` counts deaths of workers that held a step and worked on none of its records.
    """

    pending: deque[Step]
    suspects: dict[Step, int] = field(default_factory=dict)
    unexplained: Counter[Step] = field(default_factory=Counter)

    @classmethod
    def of(cls, steps: Iterable[Step]) -> StepQueue:
        return cls(deque(steps))

    def take(self, held: list[Step], *, most_records: int = sys.maxsize, only_partition: int | None = None) -> Step | None:
        """The next step for a worker that holds `held`; None if it must finish those first, or none is left.

        What is longer than `most_records` is cut; a suspect runs as it is.
        """
        if len(held) >= 2 or any(step in self.suspects for step in held):
            return None
        for index, step in enumerate(self.pending):
            if only_partition is not None and step.partition != only_partition:
                continue
            if held and step in self.suspects:
                return None
            del self.pending[index]
            if len(step) <= most_records or step in self.suspects:
                return step
            border = step.start + most_records
            self.pending.insert(index, Step(step.partition, border, step.end))
            return Step(step.partition, step.start, border)
        return None

    def give_back(self, held: list[Step], batch_size: int, in_hand: Iterable[Step]) -> list[Step]:
        """Put the unpublished steps of a dead worker back in front; returns single records that are proven to kill workers.

        `in_hand` is what its threads were working on: only that becomes suspect. A suspect that kills again is narrowed to
        those of its records that were in hand, or cut in two. A record that was not in hand is never counted as proven.
        """
        killers = []
        for step in reversed(held):
            alone = step in self.suspects
            seen = hot = _overlaps(step, in_hand)
            lone_deaths = self.suspects.pop(step, 0) + bool(alone and seen)
            if not seen:
                self.unexplained[step] += 1
                hot = [step] if alone or self.unexplained[step] > 1 else []
            if hot != [step] or not alone:
                pieces = _cut(step, hot)
            elif len(step) > 1:
                hot = pieces = _halves(step, batch_size)
            elif lone_deaths < _LONE_DEATHS:
                pieces = hot
            else:
                killers.append(step)
                continue
            self.suspects.update({piece: lone_deaths if piece == step else 0 for piece in hot})
            self.pending.extendleft(reversed(pieces))
        return killers


def _overlaps(step: Step, in_hand: Iterable[Step]) -> list[Step]:
    """The parts of `step` that lie in any of the ranges `in_hand`, in order; adjacent ones are joined."""
    found: list[Step] = []
    for other in sorted(in_hand):
        start, end = max(step.start, other.start), min(step.end, other.end)
        if other.partition != step.partition or start >= end:
            continue
        if found and start <= found[-1].end:
            start, end = found[-1].start, max(end, found.pop().end)
        found.append(Step(step.partition, start, end))
    return found


def _cut(step: Step, hot: list[Step]) -> list[Step]:
    """All of `step` in order: the pieces `hot`, and the ranges between them."""
    borders = sorted({step.start, step.end, *(piece.start for piece in hot), *(piece.end for piece in hot)})
    return [Step(step.partition, start, end) for start, end in pairwise(borders)]


def _halves(step: Step, batch_size: int) -> list[Step]:
    """The two halves of a step, cut between batches if it has several."""
    batches = -(-len(step) // batch_size)
    middle = step.start + (batches // 2 * batch_size if batches > 1 else len(step) // 2)
    return [Step(step.partition, step.start, middle), Step(step.partition, middle, step.end)]


def split_step(step: Step, size: int) -> list[Step]:
    """Cut a range into steps of `size` records, the last one shorter."""
    return [Step(step.partition, start, min(start + size, step.end)) for start in range(step.start, step.end, size)]


def batches_per_step(config: LaunchConfig, num_devices: int, todo: list[Step], rate: float, row_bytes: int = 0) -> int:
    """Those asked for, else about 10 s by `rate` in pictures per second (without pictures 5 s), at most 1500.

    `row_bytes` is the size of the outputs saved of one record: a step holds at most 256 MiB of them, or one batch.
    """
    if config.batches_per_step:
        return config.batches_per_step
    seconds = SYNTHETIC_STEP_S if config.input != "pictures" else STEP_S
    batches = round(min(MAX_BATCHES_PER_STEP, rate * seconds / config.batch_size))
    if config.input == "pictures":
        fair = sum(map(len, todo)) / (num_devices * _STEPS_PER_WORKER * config.batch_size)
        batches = min(batches, math.ceil(fair), _STEP_BYTES // max(1, row_bytes * config.batch_size))
    return max(1, batches)


def steps_without_pictures(config: LaunchConfig, num_devices: int, batches: int) -> list[Step]:
    """`iterations` steps of so many batches for each worker, which has a partition of its own."""
    size = batches * config.batch_size
    workers = range(num_devices)
    return [Step(worker, i * size, (i + 1) * size) for i in range(config.iterations) for worker in workers]
