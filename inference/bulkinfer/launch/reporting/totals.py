"""Adds up what the workers report: counts, stage times, the aggregate line per step, and the figures of summary.json."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from bulkinfer.errors import BulkinferError
from bulkinfer.host.console import step_line
from bulkinfer.launch.engines import Engine
from bulkinfer.launch.reporting.progress import Progress
from bulkinfer.results.parquet_parts import Part
from bulkinfer.types import Step
from bulkinfer.worker.metrics import Metrics
from bulkinfer.worker.protocol import Died, Ended, Event, Ready, Recovered, StepDone, Totals


class Aggregate:
    """The sums over all reports of one launch. A picture is counted once, when its part is published.

    Rates leave out the time until the first warm-up is over, and the pictures of every warm-up. In a run that ends within its
    warm-up they are those of all pictures, from when the first worker is ready.
    """

    def __init__(self, started: float) -> None:
        """`started` is when the command began, by time.perf_counter()."""
        self.started = started
        self.first_ready: float | None = None
        self.first_warm: float | None = None  # the end of the first warm-up, once a step with pictures after it is published
        self.last_published: float | None = None
        self.parts: list[Part] = []
        self.pictures = 0
        self.warm_up_pictures = 0
        self.failures = 0
        self.ready: dict[int, Ready] = {}  # by worker, the last one
        self._totals: dict[tuple[int, int], Totals] = {}  # worker, its incarnation -> its last report
        self._lives: Counter[int] = Counter()
        self._steps_done: Counter[int] = Counter()
        self._lines = 0
        self._behind: list[int] = []  # workers that may not have finished a step since the last line
        self._line_pictures = 0
        self._line_time: float | None = None  # when the last line was made
        self._line_shares: list[tuple[float, float]] = []

    def add(self, worker: int, event: Event) -> None:
        """Add one event of a worker."""
        if isinstance(event, Ready):
            if self.first_ready is None:
                self.first_ready = time.perf_counter()
            self.ready[worker] = event
        elif isinstance(event, StepDone):
            self._add_step(worker, event)
        elif isinstance(event, Recovered):
            self._count(len(event.step))
        elif isinstance(event, Died):
            self._lives[worker] += 1
        if isinstance(event, StepDone | Ended):
            self._totals[worker, self._lives[worker]] = event.totals

    def _add_step(self, worker: int, event: StepDone) -> None:
        step = Step(event.step.partition, event.step.start, event.step.start + event.count)
        part = Part(step, event.ok, event.stages, event.sha256)
        self.parts.append(part)
        self.failures += part.num_errors
        now = self._count(event.count, event.warm_up)
        if event.warm_up == event.count:
            return
        begun = now - event.total_s
        self.first_warm = begun if self.first_warm is None else min(self.first_warm, begun)
        self._steps_done[worker] += 1
        total_s = max(event.total_s, 1e-9)
        self._line_shares.append((event.wait_s / total_s, event.compute_s / total_s))

    def _count(self, pictures: int, warm_up: int = 0) -> float:
        self.pictures += pictures
        self.warm_up_pictures += warm_up
        self._line_pictures += pictures - warm_up
        self.last_published = time.perf_counter()
        return self.last_published

    def next_line(self, busy_workers: Collection[int]) -> str | None:
        """The aggregate line, once every worker in `busy_workers` has finished one more step than at the last line.

        For each line every worker is looked at about once, not at each call.
        """
        if not self._line_pictures or self._waits_for_any_of(busy_workers):
            return None
        return self.line()

    def _waits_for_any_of(self, busy_workers: Collection[int]) -> bool:
        behind = self._behind
        while behind and (self._steps_done[behind[-1]] > self._lines or behind[-1] not in busy_workers):
            behind.pop()
        if not behind:  # all of those; others may have become busy since they were listed
            self._behind = [worker for worker in busy_workers if self._steps_done[worker] <= self._lines]
        return bool(self._behind)

    def line(self) -> str:
        """The line of the interval since the last one: wall-clock rate, shares averaged over its steps."""
        now = self.last_published or time.perf_counter()
        total_s = now - (self._line_time or self.running_from)
        steps = max(1, len(self._line_shares))
        wait, compute = (sum(shares[side] for shares in self._line_shares) / steps for side in (0, 1))
        pictures = self._line_pictures or self._rated_pictures
        text = step_line(total_s, wait * total_s, compute * total_s, pictures)
        self._lines += 1
        self._line_pictures, self._line_time, self._line_shares = 0, now, []
        return text

    @property
    def line_is_due(self) -> bool:
        """True if pictures were finished since the last line, or all of them during the warm-up."""
        return self._line_pictures > 0 or (self.is_all_warm_up and not self._lines)

    @property
    def is_all_warm_up(self) -> bool:
        """True if there are pictures, and all were finished during a warm-up."""
        return 0 < self.pictures == self.warm_up_pictures

    @property
    def _rated_pictures(self) -> int:
        return self.pictures if self.is_all_warm_up else self.pictures - self.warm_up_pictures

    @property
    def running_from(self) -> float:
        """The end of the first warm-up; without one, when the first worker is ready."""
        ready = self.first_ready or time.perf_counter()
        return ready if self.first_warm is None else max(ready, self.first_warm)

    @property
    def startup_s(self) -> float:
        """Seconds from the command to `running_from`: hashes, scan, process start, model load, warm-up."""
        return self.running_from - self.started

    @property
    def running_s(self) -> float:
        """Seconds from `running_from` to the last published part."""
        return self.last_published - self.running_from if self.first_ready and self.last_published else 0.0

    @property
    def images_per_s(self) -> float:
        """Pictures per second of wall-clock time, without start-up and warm-up."""
        return self._rated_pictures / self.running_s if self.running_s else 0.0

    def metrics(self) -> Metrics:
        """Stage times and run times of all workers together."""
        return sum((Metrics.from_json(totals.metrics) for totals in self._totals.values()), Metrics())

    def measurements(self) -> dict[str, Any]:
        """The measured part of summary.json."""
        metrics, totals = self.metrics(), self._totals
        peaks = Counter[str]()
        for (worker, _), used in sorted(totals.items()):
            peaks[str(worker)] = max(peaks[str(worker)], used.peak_memory_bytes)
        return {
            "images_per_s": self.images_per_s,
            "pictures": self.pictures,
            "warm_up_pictures": self.warm_up_pictures,
            "startup_s": self.startup_s,
            "running_s": self.running_s,
            "stage_thread_seconds": {name: round(seconds, 3) for name, seconds in sorted(metrics.seconds.items())},
            "run_percentiles_s": {f"p{percent}": metrics.run_percentile_s(percent) for percent in (50, 95, 99)},
            "runs": metrics.runs.total(),
            "peak_memory_bytes": dict(peaks),
            "cpu_s": sum(used.cpu_s for used in totals.values()),
            "load_s": {str(worker): ready.load_s for worker, ready in sorted(self.ready.items())},
            "warm_up_images_per_s": {
                str(worker): ready.warm_up_rate for worker, ready in sorted(self.ready.items()) if ready.warm_up_rate
            },
            "ran": {str(worker): ready.proof for worker, ready in sorted(self.ready.items())},
            "versions": next((ready.versions for ready in self.ready.values()), {}),
        }


@dataclass(frozen=True)
class Outcome:
    """How a run ended: what the workers reported, the engine and the progress (None: nothing was to do), and the error that
    ended it early.
    """

    aggregate: Aggregate
    engine: Engine | None = None
    refusal: BulkinferError | None = None
    progress: Progress | None = None
