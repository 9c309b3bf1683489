"""How long steps are, and which runs next: fresh ones in order, those of dead workers again, suspects alone and bisected."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from inference.config import LaunchConfig
from inference.types import Step

MAX_BATCHES_PER_STEP = 1500  # the reference system's step
STEP_S, SYNTHETIC_STEP_S = 10.0, 5.0
_STEP_BYTES = 1 << 28  # of saved outputs, which a worker holds until the step is published
_STEPS_PER_WORKER = 4  # at least, where the step's length is ours to choose: the last steps then end close together
DEATHS_BEFORE_SUSPICION = 2  # one death is bad luck (someone's kill -9), two of the same step are not


@dataclass
class StepQueue:
    """Steps to run. `deaths` counts, per range, the workers that died while they held it."""

    pending: deque[Step]
    deaths: dict[Step, int] = field(default_factory=dict)

    @classmethod
    def of(cls, steps: Iterable[Step]) -> StepQueue:
        return cls(deque(steps))

    def is_suspect(self, step: Step) -> bool:
        """Workers died of it before: it runs with nothing else in the same worker."""
        return self.deaths.get(step, 0) >= DEATHS_BEFORE_SUSPICION

    def take(self, held: list[Step], *, only_partition: int | None = None) -> Step | None:
        """The next step for a worker that holds `held`; None if it must finish those first, or nothing is left for it."""
        if len(held) >= 2 or any(self.is_suspect(step) for step in held):
            return None
        for index, step in enumerate(self.pending):
            if only_partition is not None and step.partition != only_partition:
                continue
            if held and self.is_suspect(step):
                return None
            del self.pending[index]
            return step
        return None

    def give_back(self, held: list[Step], batch_size: int) -> list[Step]:
        """Put the unpublished steps of a dead worker back in front; returns single records that are proven to kill.

        A step that was alone in the worker and under suspicion is cut in two; a single record in that place is a killer.
        """
        killers = []
        alone = len(held) == 1
        for step in reversed(held):
            self.deaths[step] = self.deaths.get(step, 0) + 1
            if not (alone and self.deaths[step] > DEATHS_BEFORE_SUSPICION):
                self.pending.appendleft(step)
            elif len(step) == 1:
                killers.append(step)
            else:
                self.pending.extendleft(reversed(self._halves(step, batch_size)))
        return killers

    def _halves(self, step: Step, batch_size: int) -> list[Step]:
        """Two parts, cut between batches while there are several; both stay under suspicion."""
        batches = -(-len(step) // batch_size)
        middle = step.start + (batches // 2 * batch_size if batches > 1 else len(step) // 2)
        halves = [Step(step.partition, step.start, middle), Step(step.partition, middle, step.end)]
        for half in halves:
            self.deaths[half] = DEATHS_BEFORE_SUSPICION
        return halves


def split_step(step: Step, size: int) -> list[Step]:
    """Cut a range into steps of `size` records, the last one shorter."""
    return [Step(step.partition, start, min(start + size, step.end)) for start in range(step.start, step.end, size)]


def plan_steps(
    config: LaunchConfig, num_devices: int, todo: list[Step], rate: float, row_bytes: int = 0
) -> tuple[int, list[Step]]:
    """Batches per step, and the steps: about 10 s each by the warm-up's rate (without pictures 5 s), at most 1500 batches.

    `row_bytes` is the size of the outputs saved of one record: a step holds at most 256 MiB of them, or one batch.
    """
    seconds = SYNTHETIC_STEP_S if config.input != "pictures" else STEP_S
    batches = config.batches_per_step or max(1, min(MAX_BATCHES_PER_STEP, round(rate * seconds / config.batch_size)))
    if config.input != "pictures":
        size = batches * config.batch_size
        workers = range(num_devices)
        return batches, [Step(worker, i * size, (i + 1) * size) for i in range(config.iterations) for worker in workers]
    if not config.batches_per_step:
        fair = sum(map(len, todo)) / (num_devices * _STEPS_PER_WORKER * config.batch_size)
        most = _STEP_BYTES // max(1, row_bytes * config.batch_size)
        batches = max(1, min(batches, math.ceil(fair), most))
    return batches, [step for gap in todo for step in split_step(gap, batches * config.batch_size)]
