"""Loader threads that fill a fixed set of batches, in any order. Errors reach the consumer, and stop() ends it early."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bulkinfer.errors import RecordError
from bulkinfer.images.decode import decode, read_picture
from bulkinfer.images.preprocess import prepare
from bulkinfer.model.recipe import Recipe
from bulkinfer.types import Batch, Facts, Record, Step
from bulkinfer.worker.in_flight import Mark
from bulkinfer.worker.metrics import Meter


class BatchSource(Protocol):
    """Where streams get their batches: call `next_ready` until it gives None, and `recycle` each; `stop` ends early."""

    def next_ready(self) -> Batch | None: ...

    def recycle(self, batch: Batch) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Pictures beyond these become error rows; JPEGs may be decoded at a short side of `reduce_to` pixels (0: exactly)."""

    max_pixels: int
    max_file_bytes: int
    reduce_to: int = 0


def load_record(record: Record, recipe: Recipe, limits: Limits, out_HWC: np.ndarray[Any, Any], meter: Meter) -> Facts:
    """Read, decode and prepare one picture, which enters stages of the meter. Raises RecordError with the stage that failed."""
    if record.fault is not None:
        raise RecordError(record.fault.stage, record.fault.message)
    meter.enter("read")
    data = read_picture(record.path, limits.max_file_bytes)
    return load_bytes(data, recipe, limits, out_HWC, meter)


def load_bytes(data: bytes, recipe: Recipe, limits: Limits, out_HWC: np.ndarray[Any, Any], meter: Meter) -> Facts:
    """The same, for the bytes of a picture file."""
    meter.enter("decode")
    picture = decode(
        data, orientation=recipe.orientation, max_pixels=limits.max_pixels, at_least=limits.reduce_to, colour=recipe.colour,
        alpha_over=recipe.alpha_over,
    )  # fmt: skip
    meter.enter("preprocess")
    prepare(picture.image, recipe, out_HWC, full_size=(picture.width, picture.height))
    return Facts(picture.format, picture.frames, picture.width, picture.height, picture.flags, len(data))


def empty_batch(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Memory for the pictures of a batch: uint8, zeros."""
    return np.zeros(shape, np.uint8)


def num_batches(num_streams: int, num_loaders: int, batch_size: int) -> int:
    """How many batches a Loader has.

    Per stream one that runs and one that waits, and enough to be filled meanwhile: no side waits for the other.
    """
    return 2 + 2 * num_streams + -(-num_loaders // batch_size)


class Loader:
    """Threads prepare the records of `steps` into batches; each thread has one record at a time.

    `records(step)` yields the step's records; `new_rows(step)` makes the object that collects its rows; `load(record, slot)`
    fills a slot, and enters its stages of the meter; `new_batch` makes the memory of one batch, as empty_batch does. There are
    as many threads as `marks`; each sets its own.
    The next step begins as soon as a batch is free, while batches of earlier steps are still in use. At the end each of
    `num_streams` consumers gets None. An exception that is not a RecordError is raised in one of them.
    """

    def __init__(
        self,
        steps: Iterable[Step],
        *,
        records: Callable[[Step], Iterator[Record]],
        new_rows: Callable[[Step], Any],
        load: Callable[[Record, np.ndarray[Any, Any]], Facts],
        batch_shape: tuple[int, ...],
        marks: Sequence[Mark],
        num_streams: int,
        meter: Meter,
        new_batch: Callable[[tuple[int, ...]], np.ndarray[Any, Any]] = empty_batch,
    ) -> None:
        self._records, self._new_rows, self._load, self._meter = records, new_rows, load, meter
        self._num_streams = num_streams
        self._free: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[Batch | BaseException | None] = queue.SimpleQueue()
        size = batch_shape[0]
        for _ in range(num_batches(num_streams, len(marks), size)):
            self._free.put(Batch(new_batch(batch_shape), [None] * size, [None] * size))
        self._slots = self._assign(steps, size)
        self._assign_lock = threading.Lock()
        self._count_lock = threading.Lock()
        self._stopping = False
        self._threads_left = len(marks)
        for index, mark in enumerate(marks):
            threading.Thread(target=self._work, args=(mark,), name=f"loader-{index}", daemon=True).start()

    def _assign(self, steps: Iterable[Step], size: int) -> Iterator[tuple[Batch, int, Record, int]]:
        """Each record of every step, with its slot and partition. Blocks while no batch is free; ends early after stop()."""
        for step in steps:
            rows, records = self._new_rows(step), self._records(step)
            for offset in range(0, len(step), size):
                batch = self._free.get()
                if batch is None or self._stopping:
                    return
                batch.rows, batch.offset, batch.count = rows, offset, min(size, len(step) - offset)
                batch.waiting = batch.count
                batch.errors.clear()
                batch.images_NHWC[batch.count :] = 0
                for index in range(batch.count):
                    yield batch, index, next(records), step.partition

    def _work(self, mark: Mark) -> None:
        try:
            while True:
                self._meter.enter("wait_for_slot")
                with self._assign_lock:
                    slot = None if self._stopping else next(self._slots, None)
                if slot is None:
                    break
                batch, index, record, partition = slot
                mark.set(partition, record.number, record.number + 1)
                self._fill(batch, index, record)
                mark.clear()
                del slot, batch, record  # a record may hold its picture, and the next one may be long in coming
        except BaseException as error:  # raised in a consumer by next_ready; the other consumers get None
            self._ready.put(error)
            self.stop()
        self._meter.leave()
        with self._count_lock:
            self._threads_left -= 1
            last = self._threads_left == 0
        if last:
            for _ in range(self._num_streams):
                self._ready.put(None)

    def _fill(self, batch: Batch, index: int, record: Record) -> None:
        batch.records[index], batch.facts[index] = record, None
        try:
            batch.facts[index] = self._load(record, batch.images_NHWC[index])
        except RecordError as error:
            batch.images_NHWC[index] = 0
            with self._count_lock:
                batch.errors[index] = (error.stage, error.message)
        with self._count_lock:
            batch.waiting -= 1
            complete = batch.waiting == 0
        if complete:
            self._ready.put(batch)

    def next_ready(self) -> Batch | None:
        """The next filled batch, in order of completion; None when there are no more. Raises errors of loader threads."""
        item = self._ready.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def recycle(self, batch: Batch) -> None:
        """Return a batch to be filled again, which overwrites its pictures."""
        self._free.put(batch)

    def stop(self) -> None:
        """Begin no further record. Filled batches are still delivered, half-filled ones are not."""
        self._stopping = True
        self._free.put(None)
