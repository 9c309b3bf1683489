"""Counters that add with `+`: thread-seconds per stage, and a histogram of run times."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The stages, in thread-seconds of loader, stream and publishing threads:
# read, decode, preprocess, wait_for_slot, wait_for_batch, normalise (for graphs that take float32), infer, rows, write;
# warm_up in place of infer for the runs that warm up a worker.

_BUCKETS_PER_OCTAVE = 16  # a bucket is 4.4 % wide


@dataclass
class Metrics:
    """Seconds per stage, and run times of the network. The sum of two is that of both workers."""

    seconds: Counter[str] = field(default_factory=Counter)
    runs: Counter[int] = field(default_factory=Counter)  # bucket -> count of session runs

    def __add__(self, other: Metrics) -> Metrics:
        return Metrics(self.seconds + other.seconds, self.runs + other.runs)

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Add thread-seconds to `stage`."""
        self.seconds[stage] += seconds  # type: ignore[assignment]  # Counter holds floats as well

    def count_run(self, seconds: float) -> None:
        """One run of the network."""
        self.runs[round(math.log2(max(seconds, 1e-9)) * _BUCKETS_PER_OCTAVE)] += 1

    def run_percentile_s(self, percent: float) -> float:
        """The time of a run, in seconds to within 2.2 %, that `percent` of the runs do not exceed; 0 without runs."""
        total, seen = self.runs.total(), 0
        for bucket in sorted(self.runs):
            seen += self.runs[bucket]
            if seen >= total * percent / 100:
                return float(2 ** (bucket / _BUCKETS_PER_OCTAVE))
        return 0.0

    def as_json(self) -> dict[str, Any]:
        return {"seconds": dict(self.seconds), "runs": {str(bucket): count for bucket, count in self.runs.items()}}

    @staticmethod
    def from_json(value: dict[str, Any]) -> Metrics:
        return Metrics(Counter(value["seconds"]), Counter({int(bucket): count for bucket, count in value["runs"].items()}))


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A warm-up that is over: when it ended (time.perf_counter()), how many pictures had their rows by then, and the counts."""

    end: float
    pictures: int
    metrics: Metrics


class Timing:
    """One block that is being timed. It is a class because contextmanager() alone would take longer than the timing."""

    __slots__ = ("_meter", "stage", "start")

    def __init__(self, meter: Meter, stage: str) -> None:
        self._meter, self.stage, self.start = meter, stage, 0.0

    def __enter__(self) -> None:
        self._meter.begin(self)

    def __exit__(self, *_failure: object) -> None:
        self._meter.end(self)


class _Lap:
    """The stage that one thread is in, since when, and its seconds in earlier ones. `lock` is free but during a snapshot."""

    __slots__ = ("lock", "seconds", "stage", "start")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seconds: Counter[str] = Counter()
        self.stage, self.start = "", 0.0


class Meter:
    """Thread-safe collector of one worker's Metrics.

    A thread either times blocks (`timing`), or goes from one stage to the next (`enter`, `leave`). The latter takes a third of
    the time, since threads share no lock.

    The first `warm_up_runs` runs of the network are the warm-up: their time counts as the stage warm_up, and not as runs.
    `warm_up` says what was done by its end; it is None until then.
    """

    def __init__(self, warm_up_runs: int = 0) -> None:
        self._lock = threading.Lock()
        self._metrics = Metrics()
        self._warm_up_to_begin = self._warm_up_to_end = warm_up_runs
        self._pictures = 0
        self.warm_up = None if warm_up_runs else WarmUp(time.perf_counter(), 0, Metrics())
        self._open: set[Timing] = set()  # timings that have not ended yet
        self._laps: list[_Lap] = []
        self._of_thread = threading.local()

    def enter(self, stage: str) -> None:
        """This thread's time counts for `stage` from now on, until it enters another one, or leaves."""
        try:
            lap: _Lap = self._of_thread.lap
        except AttributeError:
            lap = self._of_thread.lap = _Lap()
            with self._lock:
                self._laps.append(lap)
        with lap.lock:  # the clock is read under the lock: a snapshot never counts more than the end does
            now = time.perf_counter()
            if lap.stage:
                lap.seconds[lap.stage] += now - lap.start  # type: ignore[assignment]  # Counter holds floats as well
            lap.stage, lap.start = stage, now

    def leave(self) -> None:
        """This thread's time counts for no stage from now on."""
        self.enter("")

    def take(self) -> dict[str, float]:
        """This thread leaves its stage. Returns its seconds by stage, which no longer count here."""
        self.leave()
        lap: _Lap = self._of_thread.lap
        with lap.lock:
            seconds, lap.seconds = lap.seconds, Counter()
        return dict(seconds)

    def add(self, seconds: Mapping[str, float]) -> None:
        """Count seconds by stage that another process spent for this thread, which has left its own stage meanwhile."""
        lap: _Lap = self._of_thread.lap
        with lap.lock:
            lap.seconds.update(seconds)

    def timing(self, stage: str) -> Timing:
        """Add the wall time of the block that enters it to `stage`; time inside the network also counts as a run."""
        return Timing(self, stage)

    def begin(self, timing: Timing) -> None:
        """Start its clock."""
        with self._lock:
            if timing.stage == "infer" and self._warm_up_to_begin:
                self._warm_up_to_begin -= 1
                timing.stage = "warm_up"
            timing.start = time.perf_counter()
            self._open.add(timing)

    def end(self, timing: Timing) -> None:
        """Stop its clock and count it."""
        with self._lock:  # the clock is read under the lock: a snapshot never counts more than the end does
            self._open.remove(timing)
            seconds = time.perf_counter() - timing.start
            self._metrics.add_seconds(timing.stage, seconds)
            if timing.stage == "infer":
                self._metrics.count_run(seconds)
            elif timing.stage == "warm_up":
                self._warm_up_to_end -= 1

    def count_pictures(self, pictures: int) -> None:
        """So many more pictures have their rows. The warm-up ends with the first batch of which that is said after its runs."""
        with self._lock:
            self._pictures += pictures
            if self.warm_up is None and not self._warm_up_to_end:
                self.warm_up = WarmUp(time.perf_counter(), self._pictures, self._copy())

    def snapshot(self) -> Metrics:
        """A copy of all counts so far, including the elapsed time of timings and stages that have not ended.

        So the difference of two snapshots is exactly the time spent between them.
        """
        with self._lock:
            return self._copy()

    def _copy(self) -> Metrics:
        """See snapshot; the lock is held."""
        now = time.perf_counter()
        copy = Metrics(self._metrics.seconds.copy(), self._metrics.runs.copy())
        for timing in self._open:
            copy.add_seconds(timing.stage, now - timing.start)
        for lap in self._laps:
            with lap.lock:
                copy.seconds.update(lap.seconds)
                if lap.stage:
                    copy.add_seconds(lap.stage, time.perf_counter() - lap.start)
        return copy
