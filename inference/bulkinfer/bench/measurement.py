"""One measurement: a launch's own worker processes, run for some seconds, and what they report between two finished steps.

The workers are those of infer_launch, run by its engine. The measured time lies between the first and the last step that a
worker finished: it holds no start, loading or warm-up, and no filling or draining of the pipeline.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bulkinfer.errors import BulkinferError, RunError
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.host.stop_signals import STOP_SIGNALS
from bulkinfer.launch.engines import EngineOptions
from bulkinfer.launch.engines.local import LocalEngine
from bulkinfer.types import Step
from bulkinfer.worker.metrics import Metrics
from bulkinfer.worker.protocol import Died, Event, Ready, StepDone

_STEPS = 5  # in a measurement; the first one more is not counted
_SPARE = 40  # times as many steps are prepared, for hosts that are faster than expected


@dataclass(frozen=True, slots=True)
class Measurement:
    """The work of all workers together. `stages` are thread-seconds, `seconds` is the time of the slowest worker.

    `bad` of the `pictures` got error rows.
    """

    pictures: int
    bad: int
    seconds: float
    images_per_s: float
    cpu_s: float
    stages: dict[str, float]
    peak_memory_bytes: int

    @property
    def cpu_s_per_picture(self) -> float:
        return self.cpu_s / self.pictures

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "cpu_s_per_picture": self.cpu_s_per_picture}


def between(laps: dict[int, list[StepDone]]) -> Measurement:
    """What lies between the first and the last finished step of each worker. Raises RunError if one finished fewer than two."""
    pictures, bad, longest, rate, cpu_s, peak = 0, 0, 0.0, 0.0, 0.0, 0
    stages = dict[str, float]()
    for worker, events in laps.items():
        if len(events) < 2:
            raise RunError(f"worker {worker} finished {len(events)} step(s) in this measurement: give more --seconds")
        first, last = events[0].totals, events[-1].totals
        seconds = sum(event.total_s for event in events[1:])
        counted = sum(event.count for event in events[1:])
        pictures += counted
        bad += sum(sum(event.stages.values()) for event in events[1:])
        longest = max(longest, seconds)
        rate += counted / max(seconds, 1e-9)
        cpu_s += last.cpu_s - first.cpu_s
        peak += last.peak_memory_bytes
        before, after = (Metrics.from_json(totals.metrics).seconds for totals in (first, last))
        for stage, spent in after.items():
            stages[stage] = stages.get(stage, 0.0) + spent - before[stage]
    return Measurement(pictures, bad, longest, rate, cpu_s, dict(stages), peak)


class Stopwatch:
    """The hooks of one measurement: hands out more than enough steps, and calls `stop` when the time is over."""

    def __init__(self, make_steps: Callable[[float, int], list[Step]], num_workers: int, seconds: float) -> None:
        self.make_steps = make_steps
        self.stop: Callable[[], None] = lambda: None
        self.laps: dict[int, list[StepDone]] = {worker: [] for worker in range(num_workers)}
        self.ready: Ready | None = None
        self._seconds, self._start, self._over = seconds, 0.0, False

    def on_event(self, worker: int, event: Event, busy_workers: Collection[int]) -> BulkinferError | None:
        """Keep a finished step. A worker that dies makes the measurement useless."""
        del busy_workers
        if isinstance(event, Ready):
            self.ready = self.ready or event
        elif isinstance(event, Died):
            return RunError(f"worker {worker} ended by {event.how}: there is nothing to measure")
        elif isinstance(event, StepDone) and not self._over:  # what a stop leaves of a step is no lap
            self.laps[worker].append(event)
            fewest = min(map(len, self.laps.values()))
            if fewest == 1 and not self._start:
                self._start = time.perf_counter()
            if fewest > 1 and time.perf_counter() - self._start >= self._seconds:
                self._over = True
                self.stop()
        return None

    def on_progress(self, worker: int, pictures: int) -> None:
        """Nothing: only finished steps are measured."""
        del worker, pictures

    def most_records(self) -> int:
        """No limit: the steps have their length already."""
        return sys.maxsize

    def must_stop(self) -> None:
        """None: only events end a measurement."""

    def is_published(self, step: Step) -> bool:
        """False: no step runs again."""
        del step
        return False


def step_size(rate: float, seconds: float, streams: int, batch_size: int) -> int:
    """Pictures per step, so that a few fit into the time at `rate` pictures per second; each stream gets a batch at least."""
    return max(streams, round(rate * seconds / _STEPS / batch_size)) * batch_size


def cut(size: int, num_records: int, num_workers: int, batch_size: int) -> list[Step]:
    """Steps of `size` of the records at hand, more than a measurement can need.

    Where pictures are so small that the records would run out, steps are shorter, so that each worker finishes a few.
    """
    most = num_records // ((_STEPS + 1) * num_workers) // batch_size * batch_size
    size = max(batch_size, min(size, most))
    steps = min(num_records // size, _STEPS * _SPARE * num_workers)
    return [Step(0, index * size, (index + 1) * size) for index in range(steps)]


def measure(
    run_file: Path, plan: ThreadPlan, *, batch_size: int, num_records: int, rate: float | None, seconds: float
) -> tuple[Measurement, Ready]:
    """Run the launch of `run_file` for some seconds. `rate` is the expected one of a worker, by the warm-up if None.

    Raises RunError or UsageError of a worker, and what `stopped_by` says after a signal.
    """

    def make_steps(warm_up_rate: float, num_workers: int) -> list[Step]:
        expected = warm_up_rate if rate is None else min(rate, warm_up_rate) if warm_up_rate else rate
        return cut(step_size(expected, seconds, plan.streams, batch_size), num_records, num_workers, batch_size)

    stopwatch = Stopwatch(make_steps, plan.num_devices, seconds)
    engine = LocalEngine(run_file, plan, stopwatch, EngineOptions(batch_size))
    stopwatch.stop = engine.stop
    engine.run()
    if engine.signal is not None:
        raise stopped_by(engine.signal)
    assert stopwatch.ready is not None, "an engine that returns has had a worker"
    return between(stopwatch.laps), stopwatch.ready


class StoppedError(BulkinferError):
    """A signal ended the measurements."""


def stopped_by(number: int) -> StoppedError:
    """The error of a bench that a signal ended: one sentence, and the exit code of that signal."""
    error = StoppedError("stopped before the end: nothing is kept")
    error.exit_code = 128 + number
    return error


def ignore_stop_signals() -> None:
    """Ignore further stop signals until they are handled again: what is left to do takes milliseconds."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
