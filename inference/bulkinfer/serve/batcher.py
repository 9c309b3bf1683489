"""Pictures of many requests share the runs of a network: each run takes what waits, up to its fixed batch.

Shape letters: N pictures of a request, K pictures of a part of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bulkinfer.errors import BulkinferError, RunError, first_line
from bulkinfer.runtime.session import Network
from bulkinfer.types import Array, Batch
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.pipeline import infer

log = logging.getLogger("bulkinfer")


@dataclass(frozen=True, slots=True)
class Answer:
    """The outputs by name, N rows each, and by picture the stage and message of its failure, whose row holds zeros.

    There are no outputs if every picture failed.
    """

    outputs: dict[str, Array]
    errors: dict[int, tuple[str, str]]


class Work:
    """The pictures of one request on their way. `future` gives the Answer; to cancel it is to leave out what has not run."""

    def __init__(self, count: int) -> None:
        self.count, self.future = count, Future[Answer]()
        self._left, self._lock = count, threading.Lock()
        self._outputs: dict[str, Array] = {}
        self._errors: dict[int, tuple[str, str]] = {}

    def fill(self, start: int, count: int, outputs: dict[str, Array], errors: dict[int, tuple[str, str]]) -> None:
        """The rows of pictures from `start` on, and the failures among them, by picture of the request."""
        with self._lock:
            for name, values in outputs.items():
                if name not in self._outputs:
                    self._outputs[name] = np.zeros((self.count, *values.shape[1:]), values.dtype)
                self._outputs[name][start : start + count] = values
            self._errors.update(errors)
            self._left -= count
            is_done = self._left == 0
        if is_done and self.future.set_running_or_notify_cancel():
            self.future.set_result(Answer(self._outputs, self._errors))

    def fail(self, picture: int, stage: str, message: str) -> None:
        """One picture has failed before the network."""
        self.fill(picture, 1, {}, {picture: (stage, message)})

    def end(self, error: BaseException) -> None:
        """No answer will come."""
        with self._lock:
            has_ended, self._left = self._left <= 0, 0
        if not has_ended and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


@dataclass(slots=True)
class _Part:
    """Pictures of a request that wait: K of them as the graph takes them, from picture `start` on. `since` is in seconds."""

    work: Work
    start: int
    images: Array
    since: float


class Observer(Protocol):
    """What is called after each run, with the pictures in its batch and the seconds that it took."""

    def __call__(self, pictures: int, seconds: float, /) -> None: ...


class Batcher:
    """Threads, `streams` of them for each session, run batches of the pictures that wait, in the order in which they came.

    A batch runs when it is full, or its first picture has waited for `max_wait_s`. Where all threads are busy pictures wait
    longer, and batches get fuller. What a client no longer waits for is left out. `observe` is called after each run.
    If the network itself fails, all that waits ends with the RunError, and `broken` says why.
    """

    def __init__(
        self,
        sessions: Sequence[Network],
        streams: int,
        max_wait_s: float,
        *,
        observe: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.size = sessions[0].batch_shape[0]
        self.broken: BulkinferError | None = None
        self._max_wait_s, self._observe, self._clock = max_wait_s, observe, clock
        self._changed = threading.Condition()
        self._parts: deque[_Part] = deque()
        self._waiting = 0  # pictures in the parts
        self._closing = False
        self._meter = Meter()
        self._threads = [
            threading.Thread(target=self._run_all, args=(session,), name=f"stream-{device}-{index}", daemon=True)
            for device, session in enumerate(sessions)
            for index in range(streams)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, work: Work, start: int, images: Array) -> None:
        """K pictures of a request, from picture `start` on, as the graph takes them."""
        with self._changed:
            if self.broken is None:
                self._parts.append(_Part(work, start, images, self._clock()))
                self._waiting += len(images)
                self._changed.notify()
                return
        work.end(self.broken)

    def waiting(self) -> int:
        """How many pictures wait for a run."""
        return self._waiting

    def close(self, *, abandon: bool = False) -> None:
        """Run what waits, or `abandon` it, without waiting for more, and end the threads."""
        with self._changed:
            self._closing = True
            if abandon:
                self._parts.clear()
                self._waiting = 0
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run_all(self, session: Network) -> None:
        images = session.pin(np.zeros(session.batch_shape, session.dtype))
        while parts := self._next_parts():
            try:
                self._run(session, images, parts)
            except BaseException as error:  # the requests get it
                self._break(error, parts)
            del parts  # they hold pictures, and the next may be long in coming

    def _next_parts(self) -> list[_Part]:
        """The parts of the next batch, when it is to run; none after close() when nothing waits."""
        with self._changed:
            while True:
                self._drop_cancelled()
                if not self._parts:
                    if self._closing:
                        return []
                    self._changed.wait()
                    continue
                patience_s = self._parts[0].since + self._max_wait_s - self._clock()
                if self._waiting >= self.size or patience_s <= 0 or self._closing:
                    return self._take()
                self._changed.wait(patience_s)

    def _drop_cancelled(self) -> None:
        while self._parts and self._parts[0].work.future.cancelled():
            self._waiting -= len(self._parts.popleft().images)

    def _take(self) -> list[_Part]:
        """As many pictures as a batch holds, from the front; the rest of a part stays there."""
        taken: list[_Part] = []
        room = self.size
        while room and self._parts:
            part = self._parts[0]
            if part.work.future.cancelled():
                self._waiting -= len(self._parts.popleft().images)
                continue
            images = part.images[:room]
            taken.append(_Part(part.work, part.start, images, part.since))
            if len(images) == len(part.images):
                self._parts.popleft()
            else:
                part.start, part.images = part.start + len(images), part.images[room:]
            room -= len(images)
            self._waiting -= len(images)
        if self._parts:
            self._changed.notify()  # another thread may begin the next batch
        return taken

    def _run(self, session: Network, images: Array, parts: list[_Part]) -> None:
        """Run one batch, and hand out its rows."""
        count = 0
        for part in parts:
            images[count : count + len(part.images)] = part.images
            count += len(part.images)
        images[count:] = 0
        batch = Batch(images, [None] * self.size, [None] * self.size, count=count)
        began = time.perf_counter()
        outputs = infer(session, batch, lambda given: given, self._meter)
        self._observe(count, time.perf_counter() - began)
        slot = 0
        for part in parts:
            end = slot + len(part.images)
            errors = {part.start + index - slot: error for index, error in batch.errors.items() if slot <= index < end}
            part.work.fill(part.start, end - slot, {name: values[slot:end] for name, values in outputs.items()}, errors)
            slot = end

    def _break(self, error: BaseException, parts: list[_Part]) -> None:
        """End everything that waits: the network cannot go on."""
        if not isinstance(error, BulkinferError):
            failure = RunError(f"the network cannot go on ({type(error).__name__}: {first_line(error)})")
            failure.__cause__ = error
            error = failure
        log.error(f"a network cannot go on, its requests are refused: {error}")
        with self._changed:
            self.broken = self.broken or error
            parts = [*parts, *self._parts]
            self._parts.clear()
            self._waiting = 0
        for part in parts:
            part.work.end(error)
