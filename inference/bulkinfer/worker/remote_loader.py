"""The loader processes of a worker, as the worker sees them: they load its pictures, in place of its loader threads.

The threads and the batches stay in the worker (loader.py). Each thread has pipes to one of the processes, and waits there
while that reads, decodes and prepares a chunk of pictures.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from bulkinfer.errors import RecordError
from bulkinfer.images.pillow_warnings import add_counts
from bulkinfer.types import Array, Record
from bulkinfer.worker.in_flight import Mark
from bulkinfer.worker.loader import Limits, Loaded, num_batches
from bulkinfer.worker.loader_messages import READY, Pipes, Reply, Request
from bulkinfer.worker.loader_process import Setup
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.protocol import RunSpec

COMMAND = (sys.executable, "-P", "-m", "bulkinfer.worker.loader_process")
# Pictures of one message. With 1 the processes took 11 % more CPU time than threads: whoever has waited finds cold caches
# (docs/adr/0024).
CHUNK_SIZE = 8
_DYING_S = 10.0  # a signal that this process sends to itself may take a moment


class LoaderProcessError(Exception):
    """An exception in a loader process that is not about its picture."""


@dataclass(frozen=True, slots=True)
class _Connection:
    """One thread's way to a process."""

    process: subprocess.Popen[bytes]
    pipes: Pipes

    def ask(self, message: bytes) -> bytes | None:
        """The reply; None if the process has ended."""
        try:
            self.pipes.send(message)
        except BrokenPipeError:
            return None
        return self.pipes.receive()


class LoaderProcesses:
    """`count` processes that load pictures for a worker of `spec`, whose loader threads are spread evenly over them.

    A Loader's `chunk_loader`; only batches of `new_batch` can be filled. `marks` is the descriptor of the worker's marks.
    A process that dies takes the worker with it, in the same way: so the launcher finds the record from the marks, as if the
    worker's own decoder had died. The thread that makes this must live as long as they: the kernel kills them when it ends.
    """

    def __init__(self, spec: RunSpec, marks: int, meter: Meter, say: Callable[[str], None]) -> None:
        self._meter, self._say, self._closing, self._is_ready = meter, say, False, False
        self._end_lock = threading.Lock()
        self.chunk_size = min(CHUNK_SIZE, spec.batch_size)
        self._shape = (spec.batch_size, spec.recipe.height, spec.recipe.width, 3)
        self._stride = -(-int(np.prod(self._shape)) // mmap.PAGESIZE) * mmap.PAGESIZE  # pages are locked whole
        batches = num_batches(spec.session.streams, spec.num_workers * self.chunk_size, spec.batch_size)
        descriptor = os.memfd_create("bulkinfer-batches")  # without a name anywhere: it cannot outlive its processes
        try:
            os.truncate(descriptor, batches * self._stride + 1)  # the last byte says that the worker stops
            self._pixels = np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)
            limits = Limits(spec.max_pixels, spec.max_file_bytes, spec.reduce_to)
            setup = Setup(spec.recipe, limits, os.getpid(), descriptor, marks, spec.num_workers)
            self._connections = _start(spec.loader_processes, setup)
        finally:
            os.close(descriptor)
        self._address = self._pixels.ctypes.data
        self._offsets = iter(range(0, batches * self._stride, self._stride))

    @classmethod
    def of(cls, spec: RunSpec, marks: int, meter: Meter, say: Callable[[str], None]) -> LoaderProcesses | None:
        """Those of a worker of `spec`; None where its own threads load."""
        has_pictures = spec.input in ("pictures", "decode")
        return cls(spec, marks, meter, say) if spec.loader_processes and has_pictures else None

    @property
    def pids(self) -> list[int]:
        return sorted({connection.process.pid for connection in self._connections})

    def wait_until_ready(self) -> None:
        """Return when all processes can load."""
        for connection in self._connections:
            if connection.pipes.receive() != READY:
                self._end_as(connection.process)
        self._is_ready = True

    def new_batch(self, shape: tuple[int, ...]) -> Array:
        """The memory of one batch: uint8, zeros, at the beginning of a page."""
        assert shape == self._shape, (shape, self._shape)
        offset = next(self._offsets)
        return self._pixels[offset : offset + int(np.prod(shape))].reshape(shape)

    def load_chunk(self, mark: Mark, partition: int, records: list[Record], slots_NHWC: Array) -> list[Loaded]:
        """Fill a slot for each of the records, which follow each other. Raises LoaderProcessError for a bug."""
        self._meter.leave()  # the process counts the stages: waiting for it is none of them
        if (fault := records[0].fault) is not None:  # that of a whole step
            return [(fault.stage, fault.message)] * len(records)
        errors, contents = self._read_ahead(mark, partition, records)
        places = [] if contents else [record.place for record in records]
        request = Request(slots_NHWC.ctypes.data - self._address, partition, records[0].number, places, contents)
        reply = self._ask(self._connections[mark.index], request)
        self._meter.add(reply.seconds)
        if reply.warned:
            add_counts(reply.warned)
        if reply.bug:
            raise LoaderProcessError(reply.bug)
        return [errors.get(index, loaded) for index, loaded in enumerate(reply.loaded)]

    def _read_ahead(self, mark: Mark, partition: int, records: list[Record]) -> tuple[dict[int, Loaded], list[bytes | None]]:
        """The bytes of records that this process reads itself, and the errors of those that it cannot read, by their index."""
        errors, contents = dict[int, Loaded](), list[bytes | None]()
        for index, record in enumerate(records):
            if record.ahead is None:
                continue
            mark.set(partition, record.number, record.number + 1)
            self._meter.enter("read")
            try:
                contents.append(record.ahead())
            except RecordError as error:
                contents.append(None)
                errors[index] = (error.stage, error.message)
        self._meter.leave()
        assert len(contents) in (0, len(records)), "the records of a step are read ahead, or none of them"
        return errors, contents

    def stop(self) -> None:
        """Begin no further picture."""
        self._pixels[-1] = 1

    def close(self) -> None:
        """End the processes; nothing can be loaded afterwards."""
        self._closing = True
        self._kill()
        for connection in self._connections:
            connection.pipes.close()

    def _kill(self) -> None:
        for connection in self._connections:
            connection.process.kill()
        for connection in self._connections:
            connection.process.wait()

    def _ask(self, connection: _Connection, request: Request) -> Reply:
        answer = connection.ask(request.encode())
        if answer is None:
            self._end_as(connection.process)
        return Reply.decode(answer)

    def _end_as(self, process: subprocess.Popen[bytes]) -> NoReturn:
        """End this process as the other one has ended: by the same signal, or with the same exit code."""
        if self._closing:
            raise LoaderProcessError("the loader processes are closed")
        self._end_lock.acquire()  # for ever: the first death decides
        code = process.wait()
        self._kill()  # they set marks, which the launcher reads when this process has ended
        try:
            if self._is_ready:  # otherwise what it said itself is the last line of the log
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                self._say(f"loader process {process.pid} ended by {how}: its worker ends in the same way")
        finally:  # even if the log cannot be written
            if code < 0 and signal.getsignal(-code) == signal.SIG_DFL:
                os.kill(os.getpid(), -code)
                threading.Event().wait(_DYING_S)
            os._exit(code if code > 0 else 128 - code)


def _start(count: int, setup: Setup) -> list[_Connection]:
    """Start the processes; returns the connections by mark. If one cannot be started, none is left."""
    connections: dict[int, _Connection] = {}
    try:
        for index in range(count):
            ends = {mark: Pipes.pair() for mark in range(index, setup.num_marks, count)}
            words = [":".join(map(str, [*theirs.descriptors, mark])) for mark, (_, theirs) in ends.items()]
            inherited = [descriptor for _, theirs in ends.values() for descriptor in theirs.descriptors]
            process = subprocess.Popen(
                [*COMMAND, setup.encode(), *words],
                stdin=subprocess.DEVNULL, pass_fds=[setup.batches, setup.marks, *inherited], start_new_session=True,
            )  # fmt: skip
            for mark, (ours, theirs) in ends.items():
                connections[mark] = _Connection(process, ours)
                theirs.close()
    except BaseException:
        for connection in connections.values():
            connection.process.kill()
            connection.process.wait()
        raise
    return [connections[mark] for mark in sorted(connections)]
