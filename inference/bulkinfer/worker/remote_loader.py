"""The loader processes of a worker, as the worker sees them: they load its pictures, in place of its loader threads.

The threads, their marks and their batches stay in the worker (loader.py). Each thread has a socket to one of the processes, and
waits there while that reads, decodes and prepares its picture.
"""

from __future__ import annotations

import mmap
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from bulkinfer.errors import RecordError
from bulkinfer.images.pillow_warnings import add_counts
from bulkinfer.types import Array, Facts, Record
from bulkinfer.worker.loader import Limits, num_batches
from bulkinfer.worker.loader_messages import READY, Reply, decode_reply, encode_request, receive, send
from bulkinfer.worker.loader_process import LoadTask
from bulkinfer.worker.metrics import Meter
from bulkinfer.worker.protocol import RunSpec

COMMAND = (sys.executable, "-P", "-m", "bulkinfer.worker.loader_process")
_DYING_S = 10.0  # a signal that this process sends to itself may take a moment


class LoaderProcessError(Exception):
    """An exception in a loader process that is not about its picture."""


@dataclass(frozen=True, slots=True)
class _Connection:
    """One thread's way to a process."""

    process: subprocess.Popen[bytes]
    socket: socket.socket

    def ask(self, message: bytes) -> bytes | None:
        """The reply; None if the process has ended."""
        try:
            send(self.socket, message)
        except (BrokenPipeError, ConnectionResetError):
            return None
        return receive(self.socket)


class LoaderProcesses:
    """`count` processes that load the pictures of `num_threads` loader threads, which are spread evenly over them.

    `load` and `new_batch` are those of a Loader; only batches of new_batch can be filled. A process that dies takes the worker
    with it, in the same way: so the launcher finds the record from the marks, as if the worker's own decoder had died.
    The thread that makes this must live as long as the processes: the kernel kills them when it ends.
    """

    def __init__(
        self,
        count: int,
        num_threads: int,
        task: LoadTask,
        *,
        batch_shape: tuple[int, ...],
        batches: int,
        meter: Meter,
        say: Callable[[str], None],
    ) -> None:
        self._meter, self._say, self._closing = meter, say, False
        self._stride = -(-int(np.prod(batch_shape)) // mmap.PAGESIZE) * mmap.PAGESIZE  # pages are locked whole
        descriptor = os.memfd_create("bulkinfer-batches")  # without a name anywhere: it cannot outlive its processes
        try:
            os.truncate(descriptor, batches * self._stride)
            self._pixels = np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)
            self._unused_offsets = iter(range(0, batches * self._stride, self._stride))
            self._connections = _start(count, num_threads, task, descriptor)
        finally:
            os.close(descriptor)
        self._address = self._pixels.ctypes.data
        self._unused: queue.SimpleQueue[_Connection] = queue.SimpleQueue()  # each thread takes one, and keeps it
        for connection in self._connections:
            self._unused.put(connection)
        self._of_thread = threading.local()

    @classmethod
    def of(cls, spec: RunSpec, meter: Meter, say: Callable[[str], None]) -> LoaderProcesses | None:
        """Those of a worker of `spec`; None where its own threads load."""
        if not spec.loader_processes or spec.input not in ("pictures", "decode"):
            return None
        recipe, size = spec.recipe, spec.batch_size
        return cls(
            spec.loader_processes,
            spec.num_workers,
            LoadTask(recipe, Limits(spec.max_pixels, spec.max_file_bytes, spec.reduce_to)),
            batch_shape=(size, recipe.height, recipe.width, 3),
            batches=num_batches(spec.session.streams, spec.num_workers, size),
            meter=meter,
            say=say,
        )

    @property
    def pids(self) -> list[int]:
        return sorted({connection.process.pid for connection in self._connections})

    def wait_until_ready(self) -> None:
        """Return when all processes can load."""
        for connection in self._connections:
            if receive(connection.socket) != READY:
                self._end_as(connection.process)

    def new_batch(self, shape: tuple[int, ...]) -> Array:
        """The memory of one batch: uint8, zeros, at the beginning of a page."""
        offset = next(self._unused_offsets)
        return self._pixels[offset : offset + int(np.prod(shape))].reshape(shape)

    def load(self, record: Record, out_HWC: Array) -> Facts:
        """Fill a slot of a batch, as loader.load_record does."""
        self._meter.leave()  # the process counts the stages: waiting for it is none of them
        if record.fault is not None:
            raise RecordError(record.fault.stage, record.fault.message)
        reply = self._ask(encode_request(out_HWC.ctypes.data - self._address, record.path))
        self._meter.add(reply.seconds)
        if reply.warned:
            add_counts(reply.warned)
        if reply.error is not None:
            raise RecordError(*reply.error)
        if reply.bug:
            raise LoaderProcessError(reply.bug)
        assert reply.facts is not None, "neither facts nor a failure"
        return reply.facts

    def close(self) -> None:
        """End the processes; no method but `close` may be called afterwards."""
        self._closing = True
        for connection in self._connections:
            connection.process.kill()
        for connection in self._connections:
            connection.process.wait()
            connection.socket.close()

    def _ask(self, message: bytes) -> Reply:
        try:
            connection: _Connection = self._of_thread.connection
        except AttributeError:
            connection = self._of_thread.connection = self._unused.get_nowait()
        answer = connection.ask(message)
        if answer is None:
            self._end_as(connection.process)
        return decode_reply(answer)

    def _end_as(self, process: subprocess.Popen[bytes]) -> NoReturn:
        """End this process as the other one has ended: by the same signal, or with the same exit code."""
        if self._closing:
            raise LoaderProcessError("the loader processes are closed")
        code = process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        try:
            self._say(f"loader process {process.pid} ended by {how}: its worker ends in the same way")
        finally:  # even if the log cannot be written
            if code < 0:
                os.kill(os.getpid(), -code)
                threading.Event().wait(_DYING_S)
            os._exit(code if code > 0 else signal.SIGKILL)


def _start(count: int, num_threads: int, task: LoadTask, memory: int) -> list[_Connection]:
    """Start the processes; returns the connections in the order in which threads take them. If one fails, none is left."""
    connections: list[tuple[int, _Connection]] = []
    try:
        for index in range(count):
            threads = range(index, num_threads, count)
            pairs = [socket.socketpair() for _ in threads]
            theirs = [other.fileno() for _, other in pairs]
            words = [str(os.getpid()), str(memory), task.encode(), *map(str, theirs)]
            process = subprocess.Popen(
                [*COMMAND, *words], stdin=subprocess.DEVNULL, pass_fds=[memory, *theirs], start_new_session=True
            )
            connections += [(thread, _Connection(process, ours)) for thread, (ours, _) in zip(threads, pairs, strict=True)]
            for _, other in pairs:
                other.close()
    except BaseException:
        for _, connection in connections:
            connection.process.kill()
            connection.process.wait()
        raise
    return [connection for _, connection in sorted(connections, key=lambda pair: pair[0])]
