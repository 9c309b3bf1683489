"""How far a running command has come: the numbers, and the words in which they are shown."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from bulkinfer.host.number_text import duration_text, percent_text, rate_text

STARTING, RUNNING, FINISHED, STOPPED, FAILED, KILLED = "starting", "running", "finished", "stopped", "failed", "killed"
ENDED = "ended"  # of a worker

_WINDOW_S = 30.0  # the rate is that of the last seconds


@dataclass(frozen=True)
class WorkerStatus:
    """One worker: starting, running, ended or failed; and how many pictures its process has done so far."""

    state: str
    pictures: int = 0


@dataclass(frozen=True)
class Status:
    """How far a command has come.

    `state` is one of the words above. `done` of `total` pictures have their rows, also those of earlier launches; `total` is
    None where it is not known yet. `images_per_s` is the rate of the last 30 s over all workers, 0 while it is not known.
    `errors` counts error rows by stage. `workers` are by number, empty in a command without any. `waiting_for_pictures` is the
    share (0 to 1) of the streams' time in which they wait for pictures, `waiting_for_device` that of the loader threads' time
    in which finished pictures wait for the device; None while they are not known.
    """

    state: str = RUNNING
    done: int = 0
    total: int | None = None
    images_per_s: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    workers: dict[int, WorkerStatus] = field(default_factory=dict)
    waiting_for_pictures: float | None = None
    waiting_for_device: float | None = None

    @property
    def left_s(self) -> float | None:
        """Seconds to the end at the present rate; None if that is not known."""
        return (self.total - self.done) / self.images_per_s if self.total is not None and self.images_per_s else None

    @property
    def percent(self) -> float:
        """Rounded down to a tenth: 100 only when all is done."""
        return math.floor(1000 * self.done / self.total) / 10 if self.total else 0.0


class Pace:
    """The rate of the last 30 s, from how many pictures were done at which times.

    The time until the first ones are done is left out.
    """

    def __init__(self) -> None:
        self._before: int | None = None  # done when it began
        self._changes: deque[tuple[float, int]] = deque()  # when how many were done, the newest last

    def add(self, now_s: float, done: int) -> float:
        """Note how many are `done`; returns the pictures per second, 0 while it is not known."""
        if self._before is None:
            self._before = done
        last = self._changes[-1][1] if self._changes else self._before
        if done < last:  # a worker has died, and with it the rows that it had not published
            self._before -= last - done
            self._changes = deque((then_s, count - (last - done)) for then_s, count in self._changes)
        elif done > last:
            self._changes.append((now_s, done))
        while len(self._changes) > 2 and now_s - self._changes[1][0] >= _WINDOW_S:
            self._changes.popleft()
        if len(self._changes) < 2:
            return 0.0
        (start_s, first), (before_s, _), (end_s, _) = self._changes[0], self._changes[-2], self._changes[-1]
        late_s = (now_s - end_s) - (end_s - before_s)  # the next change is late once it takes longer than the last one did
        return (done - first) / (end_s - start_s + max(0.0, late_s))


def rows_of(status: Status) -> list[list[str]]:
    """The status in short pieces of ASCII text, in rows that belong together."""
    errors = _errors(status) if status.workers else ""
    waiting = [
        f"{percent_text(share, 0)} waiting for {what}"
        for share, what in ((status.waiting_for_pictures, "pictures"), (status.waiting_for_device, "the device"))
        if share is not None
    ]
    rows = [[_done(status), _rate(status), _left(status)], [errors, *waiting], [_workers(status)]]
    return [kept for row in rows if (kept := [piece for piece in row if piece])]


def line_of(status: Status) -> str:
    """The status as one line for logs."""
    percent = f" ({percent_text(status.percent / 100)})" if status.total else ""
    pieces = [f"{_done(status)}{percent}", _rate(status), _left(status)]
    return f"{status.state}: {', '.join([*filter(None, pieces), *([_errors(status)] if status.workers else [])])}"


def _done(status: Status) -> str:
    return f"{status.done:,} pictures" if status.total is None else f"{status.done:,} of {status.total:,} pictures"


def _rate(status: Status) -> str:
    if status.state not in (STARTING, RUNNING):
        return rate_text(status.images_per_s) if status.images_per_s else ""
    if status.images_per_s:
        return rate_text(status.images_per_s)
    states = {worker.state for worker in status.workers.values()}
    if not states:
        return ""
    return "starting workers" if states <= {STARTING} else "first batches"


def _left(status: Status) -> str:
    is_going_on = status.state in (STARTING, RUNNING) and status.left_s is not None
    return f"{duration_text(math.ceil(status.left_s or 0.0))} left" if is_going_on else ""


def _errors(status: Status) -> str:
    count = sum(status.errors.values())
    stages = ", ".join(f"{number:,} {stage}" for stage, number in sorted(status.errors.items()))
    return f"{count:,} error{'s' if count != 1 else ''} ({stages})" if count else "no errors"


def _workers(status: Status) -> str:
    """How many workers are in each state; empty in a command without workers."""
    states = [worker.state for worker in status.workers.values()]
    counts = [f"{count} {state}" for state in (RUNNING, STARTING, FAILED, ENDED) if (count := states.count(state))]
    return f"workers: {', '.join(counts)}" if counts else ""
