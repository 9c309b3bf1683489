"""Adds up what the workers report: counts, stage times, the aggregate line per step, and summary.json."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from inference.metrics import Metrics
from inference.results import Part
from inference.runlog import step_line
from inference.types import Step


class Aggregate:
    """All reports of one launch. Pictures are counted once, when their part is published."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.first_ready: float | None = None
        self.last_published: float | None = None
        self.parts: list[Part] = []
        self.pictures = 0
        self.proofs: dict[int, dict[str, Any]] = {}
        self.load_s: dict[int, float] = {}
        self.warm_up_rates: dict[int, float] = {}
        self.versions: dict[str, str] = {}
        self._totals: dict[tuple[int, int], dict[str, Any]] = {}  # worker, its incarnation -> its last report
        self._lives: Counter[int] = Counter()
        self._steps_done: Counter[int] = Counter()
        self._lines = 0
        self._line_pictures = 0
        self._line_time = 0.0
        self._line_shares: list[tuple[float, float]] = []

    def add(self, worker: int, event: dict[str, Any]) -> None:
        """Take one report."""
        kind = event["event"]
        if kind == "ready":
            if self.first_ready is None:
                self.first_ready = self._line_time = time.perf_counter()
            self.proofs[worker], self.load_s[worker] = event["proof"], event["load_s"]
            self.warm_up_rates[worker], self.versions = event["warm_up_rate"], event["versions"]
        elif kind == "step":
            partition, start, _ = event["step"]
            step = Step(partition, start, start + event["count"])
            self.parts.append(Part(step, event["ok"], event["stages"], event["sha256"]))
            self.pictures += event["count"]
            self.last_published = time.perf_counter()
            self._steps_done[worker] += 1
            self._line_pictures += event["count"]
            total_s = max(event["total_s"], 1e-9)
            self._line_shares.append((event["wait_s"] / total_s, event["compute_s"] / total_s))
        elif kind == "replaced":
            self._lives[worker] += 1
        if "metrics" in event:
            self._totals[worker, self._lives[worker]] = event

    def next_line(self, busy_workers: list[int]) -> str | None:
        """The aggregate line, once every worker in `busy_workers` has finished one more step than at the last line."""
        if not self._line_pictures or any(self._steps_done[worker] <= self._lines for worker in busy_workers):
            return None
        return self.line()

    def line(self) -> str:
        """The line of the interval since the last one: wall-clock rate, shares averaged over its steps."""
        now = time.perf_counter()
        total_s = now - self._line_time
        wait, compute = (sum(shares) / max(1, len(self._line_shares)) for shares in zip(*self._line_shares, strict=True))
        text = step_line(total_s, wait * total_s, compute * total_s, self._line_pictures)
        self._lines += 1
        self._line_pictures, self._line_time, self._line_shares = 0, now, []
        return text

    @property
    def failures(self) -> int:
        """Error rows published by this launch."""
        return sum(part.num_errors for part in self.parts)

    @property
    def line_is_due(self) -> bool:
        """Pictures were finished since the last line."""
        return self._line_pictures > 0

    @property
    def startup_s(self) -> float:
        """From the start to the first worker's readiness: process start, model load, compilation, warm-up."""
        return (self.first_ready or time.perf_counter()) - self.started

    @property
    def running_s(self) -> float:
        """From the first worker's readiness to the last published part."""
        return self.last_published - self.first_ready if self.first_ready and self.last_published else 0.0

    @property
    def images_per_s(self) -> float:
        """Unique pictures over wall-clock time, start-up and warm-up apart."""
        return self.pictures / self.running_s if self.running_s else 0.0

    def measurements(self) -> dict[str, Any]:
        """The measured part of summary.json."""
        totals = list(self._totals.values())
        metrics = sum((Metrics.from_json(total["metrics"]) for total in totals), Metrics())
        peaks = {str(worker): total["peak_memory_bytes"] for (worker, _), total in sorted(self._totals.items())}
        return {
            "images_per_s": self.images_per_s,
            "pictures": self.pictures,
            "startup_s": self.startup_s,
            "running_s": self.running_s,
            "stage_thread_seconds": {name: round(seconds, 3) for name, seconds in sorted(metrics.seconds.items())},
            "run_percentiles_s": {f"p{percent}": metrics.run_percentile_s(percent) for percent in (50, 95, 99)},
            "runs": metrics.runs.total(),
            "peak_memory_bytes": peaks,
            "cpu_s": sum(total["cpu_s"] for total in totals),
            "load_s": {str(worker): seconds for worker, seconds in sorted(self.load_s.items())},
            "warm_up_images_per_s": {str(worker): rate for worker, rate in sorted(self.warm_up_rates.items())},
            "ran": {str(worker): proof for worker, proof in sorted(self.proofs.items())},
            "versions": self.versions,
        }
