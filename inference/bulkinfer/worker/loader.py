"""Loader threads that fill a fixed set of batches, in any order. Errors reach the consumer, and stop() ends it early."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeAlias

import numpy as np

from bulkinfer.errors import RecordError
from bulkinfer.images.decode import decode
from bulkinfer.images.preprocess import prepare
from bulkinfer.model.recipe import Recipe
from bulkinfer.records.read_place import read_place
from bulkinfer.types import Array, Batch, Facts, Record, Step
from bulkinfer.worker.in_flight import Mark
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.read_ahead import ReadAhead

Loaded: TypeAlias = "Facts | tuple[str, str]"  # of one record: its facts, or the stage and message of its failure


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
    data = record.ahead() if record.ahead else read_place(record.place, limits.max_file_bytes)
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


class ChunkLoader(Protocol):
    """Loads chunks of records in other processes, `chunk_size` of them at once or fewer."""

    chunk_size: int

    def load_chunk(self, mark: Mark, partition: int, records: list[Record], slots_NHWC: Array) -> list[Loaded]:
        """Fill one slot per record, and set `mark` for each meanwhile; returns what became of each, of fewer after stop()."""

    def stop(self) -> None:
        """Begin no further record."""


def num_batches(num_streams: int, num_filling: int, batch_size: int) -> int:
    """How many batches a Loader has that fills `num_filling` slots at once.

    Per stream one that runs and one that waits, and enough to be filled meanwhile: no side waits for the other.
    """
    return 2 + 2 * num_streams + -(-num_filling // batch_size)


class Loader:
    """Threads prepare the records of `steps` into batches; each thread has one record at a time.

    `records(step)` yields the step's records; `new_rows(step)` makes the object that collects its rows; `load(record, slot)`
    fills a slot, and enters its stages of the meter; `new_batch` makes the memory of one batch, as empty_batch does. There are
    as many threads as `marks`; each sets its own. With `chunk_loader` they give it chunks of records that lie side by side in
    a batch, and `load` is not called. With `read_ahead` steps and records come from there.
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
        chunk_loader: ChunkLoader | None = None,
        read_ahead: ReadAhead | None = None,
    ) -> None:
        self._records, self._new_rows, self._load, self._meter = records, new_rows, load, meter
        self._read_ahead = read_ahead
        if read_ahead:
            steps, self._records = read_ahead.steps(), read_ahead.records
        self._chunk_loader = chunk_loader
        self._load_chunk = chunk_loader.load_chunk if chunk_loader else self._load_single
        self._chunk_size = chunk_loader.chunk_size if chunk_loader else 1
        self._num_streams = num_streams
        self._free: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[Batch | BaseException | None] = queue.SimpleQueue()
        size = batch_shape[0]
        for _ in range(num_batches(num_streams, len(marks) * self._chunk_size, size)):
            self._free.put(Batch(new_batch(batch_shape), [None] * size, [None] * size))
        self._chunks = self._assign(steps, size)
        self._assign_lock = threading.Lock()
        self._count_lock = threading.Lock()
        self._stopping = False
        self._threads_left = len(marks)
        for index, mark in enumerate(marks):
            threading.Thread(target=self._work, args=(mark,), name=f"loader-{index}", daemon=True).start()

    def _assign(self, steps: Iterable[Step], size: int) -> Iterator[tuple[Batch, int, list[Record], int]]:
        """The records of every step in chunks, each with its first slot and its partition.

        Blocks while no batch is free; ends early after stop().
        """
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
                for index in range(0, batch.count, self._chunk_size):
                    end = min(index + self._chunk_size, batch.count)
                    chunk = [*islice(records, end - index)]
                    if len(chunk) < end - index:
                        assert self._stopping, "a step has as many records as it says"
                        return
                    yield batch, index, chunk, step.partition
                    del chunk  # see _work

    def _work(self, mark: Mark) -> None:
        try:
            while True:
                self._meter.enter("wait_for_slot")
                with self._assign_lock:
                    chunk = None if self._stopping else next(self._chunks, None)
                if chunk is None:
                    break
                batch, index, records, partition = chunk
                self._fill(batch, index, records, self._load_chunk(mark, partition, records, batch.images_NHWC[index:]))
                del chunk, batch, records  # a record may hold its picture, and the next one may be long in coming
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

    def _load_single(self, mark: Mark, partition: int, records: list[Record], slots_NHWC: Array) -> list[Loaded]:
        """A chunk of one record, in this thread."""
        (record,) = records
        loaded: Loaded
        mark.set(partition, record.number, record.number + 1)
        try:
            loaded = self._load(record, slots_NHWC[0])
        except RecordError as error:
            loaded = (error.stage, error.message)
        mark.clear()
        return [loaded]

    def _fill(self, batch: Batch, start: int, records: list[Record], loaded: list[Loaded]) -> None:
        """Note what became of the records whose slots begin at `start`; after a stop, of the first of them."""
        errors = {}
        for index, (record, result) in enumerate(zip(records, loaded, strict=False), start):
            batch.records[index] = record
            batch.facts[index] = None if isinstance(result, tuple) else result
            if isinstance(result, tuple):
                batch.images_NHWC[index], errors[index] = 0, result
        with self._count_lock:
            batch.errors.update(errors)
            batch.waiting -= len(loaded)
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
        if self._chunk_loader:
            self._chunk_loader.stop()
        if self._read_ahead:
            self._read_ahead.stop()
        self._free.put(None)
