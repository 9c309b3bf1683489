"""Which records each thread of a worker works on, in memory that the launcher can still read after the worker has died.

A worker has one mark per thread: first the loader threads, then the streams. Only that thread writes it, or the loader process
that loads for it.
"""

from __future__ import annotations

import mmap
import os
import struct

from bulkinfer.types import Step

_MARK = struct.Struct("=5q")  # changes so far, partition, start, end (start == end: none), pictures finished so far


class Mark:
    """The records that one thread works on. Setting a mark takes under a microsecond, so every record can have one."""

    __slots__ = ("_changes", "_finished", "_memory", "_offset")

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._memory, self._offset, self._changes, self._finished = memory, offset, 0, 0

    @property
    def index(self) -> int:
        """Which of the worker's marks it is."""
        return self._offset // _MARK.size

    def set(self, partition: int, start: int, end: int) -> None:
        """From now on this thread works on the records start..end (exclusive) of a partition, and on nothing else."""
        self._changes += 1
        _MARK.pack_into(self._memory, self._offset, self._changes, partition, start, end, self._finished)

    def clear(self, finished: int = 0) -> None:
        """From now on this thread works on nothing; it has finished so many pictures more."""
        self._finished += finished
        self.set(0, 0, 0)


class InFlight:
    """The marks of one worker. `descriptor` comes from shared(), in all processes; without one the memory is not shared."""

    def __init__(self, num_loaders: int, num_streams: int, descriptor: int = -1) -> None:
        self.descriptor = descriptor
        self._num_loaders, self._num_marks = num_loaders, num_loaders + num_streams
        self._memory = mmap.mmap(descriptor, self._num_marks * _MARK.size)
        marks = [Mark(self._memory, index * _MARK.size) for index in range(self._num_marks)]
        self.loaders, self.streams = marks[:num_loaders], marks[num_loaders:]

    def loading(self) -> list[Step]:
        """Records that are being read, decoded or prepared."""
        return self._in_hand(range(self._num_loaders))

    def running(self) -> list[Step]:
        """Records of the batches that the network is running on, or whose rows are being made."""
        return self._in_hand(range(self._num_loaders, self._num_marks))

    def finished(self) -> int:
        """How many pictures have their rows."""
        marks = range(self._num_loaders, self._num_marks)
        return sum(int(_MARK.unpack_from(self._memory, index * _MARK.size)[4]) for index in marks)

    def snapshot(self) -> bytes:
        """All marks as bytes: they differ from an earlier snapshot if any thread began or finished anything since."""
        return self._memory[:]

    def close(self) -> None:
        """Unmap the memory; no method may be called afterwards."""
        self._memory.close()

    def _in_hand(self, indices: range) -> list[Step]:
        marks = [_MARK.unpack_from(self._memory, index * _MARK.size) for index in indices]
        return [Step(partition, start, end) for _, partition, start, end, _ in marks if start < end]


def shared(num_loaders: int, num_streams: int) -> int:
    """A file descriptor of memory for InFlight, which a child process can inherit. The caller closes it."""
    descriptor = os.memfd_create("bulkinfer-in-flight")
    os.truncate(descriptor, (num_loaders + num_streams) * _MARK.size)
    return descriptor
