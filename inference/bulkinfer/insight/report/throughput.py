"""Pictures per second over the time of a job, from the event logs of its workers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bulkinfer.files.guarded import open_regular

_MOST_LOG_BYTES = 1 << 32
_MOST_POINTS = 120
_PAUSE_S = 5.0  # a longer time without any worker at work is left out: the job was stopped and continued
_STEP = '"kind": "StepDone"'


@dataclass(frozen=True)
class Interval:
    """A worker finished `pictures` between `start` and `end` (seconds since 1970)."""

    start: float
    end: float
    pictures: int


@dataclass(frozen=True)
class Curve:
    """Pictures per second of all workers together, in points of equal length.

    `num_pauses` between launches are left out; `num_unreadable` lines of the logs are no events.
    """

    point_s: float
    images_per_s: tuple[float, ...]
    num_workers: int
    num_pauses: int
    num_unreadable: int

    @property
    def seconds(self) -> float:
        return self.point_s * len(self.images_per_s)


def throughput_curve(log_dir: Path) -> Curve | None:
    """The curve of a job by the logs worker-*.jsonl in `log_dir`; None if they hold no steps after the warm-up.

    Each step counts evenly over the time that it took. The warm-up is left out, as it is in all rates.
    """
    paths = sorted(log_dir.glob("worker-*.jsonl"))
    found = [read_intervals(path) for path in paths]
    intervals = sorted((each for worker, _ in found for each in worker), key=lambda each: each.start)
    if not intervals:
        return None
    offsets, seconds, num_pauses = _without_pauses(intervals)
    size = max(1, min(_MOST_POINTS, len(intervals)))
    point_s = seconds / size
    counts = [0.0] * size
    for each, offset in zip(intervals, offsets, strict=True):
        for index, share in _shares(offset, offset + each.end - each.start, point_s, size):
            counts[index] += share * each.pictures
    rates = tuple(count / point_s for count in counts)
    return Curve(point_s, rates, sum(bool(worker) for worker, _ in found), num_pauses, sum(bad for _, bad in found))


def read_intervals(path: Path) -> tuple[list[Interval], int]:
    """The steps in an event log, and how many lines cannot be read: a killed worker leaves half a line."""
    found, unreadable = [], 0
    with open_regular(path, most_bytes=_MOST_LOG_BYTES) as file:
        for line in file:
            if _STEP.encode() not in line:
                continue
            try:
                event = json.loads(line)
                interval = _interval(event)
            except (ValueError, KeyError, TypeError):
                unreadable += 1
                continue
            if interval is not None:
                found.append(interval)
    return found, unreadable


def _interval(event: dict[str, Any]) -> Interval | None:
    pictures = int(event["count"]) - int(event.get("warm_up", 0))
    end, total_s = float(event["time"]), float(event["total_s"])
    if pictures <= 0 or not (math.isfinite(end) and 0 < total_s < math.inf):
        return None
    return Interval(end - total_s, end, pictures)


def _without_pauses(intervals: list[Interval]) -> tuple[list[float], float, int]:
    """The start of each interval in seconds of running time, the length of the running time, and the number of pauses."""
    offsets, left_out, busy_until, num_pauses = [], intervals[0].start, intervals[0].start, 0
    for each in intervals:
        if each.start - busy_until > _PAUSE_S:
            left_out += each.start - busy_until
            num_pauses += 1
        busy_until = max(busy_until, each.end)
        offsets.append(each.start - left_out)
    return offsets, max(busy_until - left_out, 1e-9), num_pauses


def _shares(start: float, end: float, point_s: float, size: int) -> Iterator[tuple[int, float]]:
    """The points that an interval touches, each with the share of the interval in it; the shares add up to 1."""
    first, last = (min(size - 1, max(0, int(time / point_s))) for time in (start, end))
    for index in range(first, last + 1):
        begin = start if index == first else index * point_s
        finish = end if index == last else (index + 1) * point_s
        yield index, (finish - begin) / (end - start)
