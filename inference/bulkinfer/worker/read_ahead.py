"""Pictures in stores are read ahead of the loader threads: many at once, since each is long in coming and takes no work.

How many follows from what is seen: where a loader thread has to wait for a picture there are more, where most of them lie ready
there are fewer. So the number adapts to how long a store takes to answer, and to how fast pictures are used. Their bytes are
bounded as well.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from bulkinfer.records.read_place import read_place
from bulkinfer.types import Place, Record, Step
from bulkinfer.worker.protocol import RunSpec

MOST_BYTES = 256 << 20  # of pictures that are read and not taken yet; a single larger one is read by itself
MOST_PICTURES = 128  # that are being read, or lie ready

Read: TypeAlias = Callable[[Place, Callable[[int], None]], bytes]


class _Coming:
    """A picture that is being read. `wanted`: a thread waits for it, so that it is read whatever else lies ready."""

    __slots__ = ("_arrived", "_owner", "data", "error", "place", "size_bytes", "wanted")

    def __init__(self, owner: ReadAhead, place: Place) -> None:
        self._owner, self.place = owner, place
        self._arrived = threading.Lock()
        self._arrived.acquire()
        self.data: bytes | None = None
        self.error: BaseException | None = None
        self.size_bytes, self.wanted = 0, False

    def is_here(self) -> bool:
        return self.data is not None or self.error is not None

    def arrive(self) -> None:
        """Let the thread go on that waits for it."""
        self._arrived.release()

    def take(self) -> bytes:
        """The bytes, once. Raises what reading them raised."""
        waits = not self.is_here()
        if waits:
            self._owner.want(self)
        self._arrived.acquire()
        self._owner.taken(self, waits)
        data, error = self.data, self.error
        self.data = None
        if error is not None:
            raise error
        assert data is not None, "a picture is taken once"
        return data


class ReadAhead:
    """Reads the pictures of the records of `steps` before they are asked for; `read(place, admit)` reads one.

    `read` calls `admit` with the size of the picture before it reads it, and may have to wait there. `least` pictures are
    always read at once. `steps()` and then `records(step)` of each, in this order, give the same as the callables that were
    passed, but the records have `ahead`. `stop` ends both.
    """

    def __init__(
        self,
        steps: Iterable[Step],
        records: Callable[[Step], Iterator[Record]],
        read: Read,
        *,
        least: int,
        most: int = MOST_PICTURES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._given, self._records_of, self._read = steps, records, read
        self._least, self._most, self._most_bytes = min(least, most), most, most_bytes
        self.depth = self._least
        self._lock = threading.Lock()
        self._has_room, self._has_memory = threading.Condition(self._lock), threading.Condition(self._lock)
        self.waiting = self.ready = 0  # threads that wait for a picture, pictures that lie ready
        self._outstanding = self._bytes = self._readers = 0
        self._stopping = False
        self._asked: queue.SimpleQueue[_Coming | None] = queue.SimpleQueue()
        self._out: queue.SimpleQueue[Step | Record | BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=self._feed, name="read-ahead", daemon=True).start()

    def steps(self) -> Iterator[Step]:
        """The steps, in order."""
        while (item := self._next()) is not None:
            assert isinstance(item, Step), "all records of the step before have been taken"
            yield item

    def records(self, step: Step) -> Iterator[Record]:
        """The records of the step that `steps` gave last."""
        for _ in range(len(step)):
            item = self._next()
            if item is None:  # stopped
                return
            assert isinstance(item, Record), item
            yield item

    def stop(self) -> None:
        """Begin no further picture."""
        with self._lock:
            self._stopping = True
            self._has_room.notify_all()
            self._has_memory.notify_all()

    def _next(self) -> Step | Record | None:
        item = self._out.get()
        if isinstance(item, BaseException):
            raise item
        if item is None:
            self._out.put(None)  # for whoever asks again
        return item

    def _feed(self) -> None:
        try:
            for step in self._given:
                self._out.put(step)
                for record in islice(self._records_of(step), len(step)):
                    if not self._begin(record):
                        return
        except BaseException as error:  # raised in the thread that takes the records
            self._out.put(error)
        finally:
            self._out.put(None)
            self._asked.put(None)

    def _begin(self, record: Record) -> bool:
        """Have a record's picture read, once there is room; False after a stop."""
        if record.fault is not None:  # it must not be read again
            self._out.put(record)
            return True
        with self._lock:
            while self._outstanding >= self.depth and not self._stopping:
                self._has_room.wait()
            if self._stopping:
                return False
            self._outstanding += 1
            needs_reader = self._readers < self._outstanding
            self._readers += needs_reader
        coming = _Coming(self, record.place)
        self._asked.put(coming)
        if needs_reader:
            threading.Thread(target=self._work, name=f"reader-{self._readers}", daemon=True).start()
        self._out.put(replace(record, ahead=coming.take))
        return True

    def _work(self) -> None:
        """Read pictures, one at a time, until there are no more."""
        while (coming := self._asked.get()) is not None:
            try:
                data = self._read(coming.place, lambda size, coming=coming: self._admit(coming, size))  # type: ignore[misc]
            except BaseException as error:  # raised in the thread that takes the picture
                coming.error = error
            else:
                coming.data = data
            with self._lock:
                self.ready += 1
            coming.arrive()
            del coming  # it may be long until the next one comes
        self._asked.put(None)  # for the next thread

    def _admit(self, coming: _Coming, size_bytes: int) -> None:
        """Wait until there is memory for a picture. One that is waited for gets it in any case: no thread waits for ever."""
        with self._lock:
            self._bytes -= coming.size_bytes  # of an earlier try
            coming.size_bytes = 0
            while self._bytes and self._bytes + size_bytes > self._most_bytes and not (coming.wanted or self._stopping):
                self._has_memory.wait()
            coming.size_bytes = size_bytes
            self._bytes += size_bytes

    def want(self, coming: _Coming) -> None:
        """A thread begins to wait for a picture."""
        with self._lock:
            coming.wanted = True
            self.waiting += 1
            self._has_memory.notify_all()

    def taken(self, coming: _Coming, waited: bool) -> None:
        """A picture has been taken, after a wait or without: this decides how many are read at once."""
        with self._lock:
            if waited:
                self.waiting -= 1
                self.depth = min(self._most, self.depth + 1 + self.depth // 8)
            elif self.ready > self.depth * 3 // 4:
                self.depth = max(self._least, self.depth - 1)
            self.ready -= 1
            self._outstanding -= 1
            self._bytes -= coming.size_bytes
            self._has_room.notify()
            if coming.size_bytes:
                self._has_memory.notify_all()


def reading_ahead(
    spec: RunSpec, steps: Iterable[Step], records: Callable[[Step], Iterator[Record]], chunk_size: int
) -> ReadAhead | None:
    """The reading ahead of a worker, whose loader threads take chunks of records; None where its pictures are files."""
    if not any(ref.is_stored for ref in spec.manifests.values()):
        return None

    def read(place: Place, admit: Callable[[int], None]) -> bytes:
        return read_place(place, spec.max_file_bytes, admit)

    return ReadAhead(steps, records, read, least=2 * spec.num_workers * chunk_size)
