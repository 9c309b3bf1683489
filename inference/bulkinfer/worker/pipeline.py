"""The main path: batches from the loader threads go through the network into rows, without a pause between steps."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bulkinfer.errors import BulkinferError, RunError, ShapeError
from bulkinfer.runtime.onnxruntime_graph import runtime_reason
from bulkinfer.runtime.session import Network
from bulkinfer.types import Array, Batch, Step
from bulkinfer.worker.in_flight import Mark
from bulkinfer.worker.loader import BatchSource
from bulkinfer.worker.metrics import Meter

_END_OF_STREAM = object()


def run_steps(
    source: BatchSource,
    session: Network,
    *,
    to_input: Callable[[Array], Array],
    marks: Sequence[Mark],
    meter: Meter,
    publish: Callable[[Any], None],
) -> None:
    """Run every batch of `source` in concurrent streams, one per mark; `publish` gets the rows of each finished step.

    `publish` is called in this thread, in the order in which steps finish. The first exception of any thread is raised here,
    after `source` was stopped. The rows of steps that a stop left unfinished are not published.
    """
    finished: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def stream(mark: Mark) -> None:
        try:
            while True:
                with meter.timing("wait_for_batch"):
                    batch = source.next_ready()
                if batch is None:
                    break
                rows, step = batch.rows, batch.rows.step
                mark.set(step.partition, step.start + batch.offset, step.start + batch.offset + batch.count)
                outputs = infer(session, batch, to_input, meter)
                with meter.timing("rows"):
                    complete = rows.fill(batch, outputs)
                meter.count_pictures(batch.count)
                mark.clear(batch.count)
                source.recycle(batch)
                if complete:
                    finished.put(rows)
            finished.put(_END_OF_STREAM)
        except BaseException as error:  # run_steps raises it
            finished.put(error)

    for index, mark in enumerate(marks):
        threading.Thread(target=stream, args=(mark,), name=f"stream-{index}", daemon=True).start()
    streams_left = len(marks)
    try:
        while streams_left:
            item = finished.get()
            if item is _END_OF_STREAM:
                streams_left -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                with meter.timing("write"):
                    publish(item)
    except BaseException:
        source.stop()
        raise


def infer(session: Network, batch: Batch, to_input: Callable[[Array], Array], meter: Meter) -> Mapping[str, Array]:
    """The network's outputs for a batch; empty if every picture of it has an error.

    If the runtime raises an exception, the records that cause it are found and get an error; the others get their outputs.
    """
    if len(batch.errors) == batch.count and batch.count:
        return {}
    images = to_input(batch.images_NHWC)
    try:
        with meter.timing("infer"):
            return session.run(images)
    except Exception as error:  # the runtime documents no classes
        return _isolate(session, batch, images, error, meter)


def _isolate(session: Network, batch: Batch, images: Array, error: Exception, meter: Meter) -> Mapping[str, Array]:
    """Bisect a failed batch: run parts of it, with the first picture of the part in all other slots.

    Records that fail alone go into batch.errors. Raises RunError with the reason of `error` if the network fails on zeros as
    well: then the network or its session is broken, not the pictures. An output whose size depends on the pictures may have
    another size for zeros too.
    """
    outputs: dict[str, Array] = {}
    faults: dict[int, tuple[str, str]] = {}

    def run_part(part: list[int]) -> None:
        masked = np.repeat(images[part[:1]], len(images), axis=0)  # no other picture decides a size, nor do zeros
        masked[part] = images[part]
        try:
            with meter.timing("infer"):
                found = session.run(masked)
        except Exception as part_error:  # see infer
            split(part, part_error)
            return
        for name, values in found.items():
            outputs.setdefault(name, np.zeros_like(values))[part] = values[part]

    def split(part: list[int], reason: Exception) -> None:
        if len(part) == 1:
            named = "" if isinstance(reason, BulkinferError) else f"{type(reason).__name__}: "
            faults[part[0]] = ("infer", f"{named}{str(reason).strip()}"[:500])
            return
        run_part(part[: len(part) // 2])
        run_part(part[len(part) // 2 :])

    good = [index for index in range(batch.count) if index not in batch.errors]
    if len(good) == 1 < len(images):
        run_part(good)
    else:
        split(good, error)
    if not outputs:
        try:
            session.run(np.zeros_like(images))
        except ShapeError:
            pass  # the network runs: only the size of an output depends on the pictures
        except Exception:  # see infer
            if isinstance(error, AssertionError):
                raise error from None  # a fault of this program, not of the network
            raise RunError(f"the network fails on pictures, and on zeros as well: {runtime_reason(error)}") from error
    batch.errors.update(faults)
    return outputs


class Tally:
    """In place of the rows of a step, where none are written: counts the pictures."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self._left = len(step)
        self._lock = threading.Lock()

    def fill(self, batch: Batch, outputs: Mapping[str, Array]) -> bool:
        """Count a batch; True when the step is complete."""
        assert outputs or batch.errors, "a batch without failures has outputs"
        with self._lock:
            self._left -= batch.count
            return self._left == 0

    def finished_prefix(self) -> int:
        """How many pictures were counted."""
        return len(self.step) - self._left


class StepFeed:
    """The steps that the launcher sends, as an iterable that ends after `close`."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Step | None] = queue.SimpleQueue()

    def put(self, step: Step) -> None:
        """Add a step."""
        self._queue.put(step)

    def close(self) -> None:
        """No more steps will come."""
        self._queue.put(None)

    def __iter__(self) -> Iterator[Step]:
        while (step := self._queue.get()) is not None:
            yield step
