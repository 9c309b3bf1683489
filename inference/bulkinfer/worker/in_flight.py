"""Which records the threads of a worker have in hand: memory shared with the launcher, who can read it when the worker is dead.

A worker has one mark per thread, those of the loader threads before those of the streams. Only its thread writes a mark.
"""

from __future__ import annotations

import mmap
import os
import struct

from bulkinfer.types import Step

_MARK = struct.Struct("=4q")  # changes so far, partition, start, end; start == end: nothing in hand


class Mark:
    """What one thread has in hand. A mark costs under a microsecond, so that every record can have one."""

    __slots__ = ("_changes", "_memory", "_offset")

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._memory, self._offset, self._changes = memory, offset, 0

    def set(self, partition: int, start: int, end: int) -> None:
        """The records start..end (exclusive) of a partition are in hand from now on, and nothing else."""
        self._changes += 1
        _MARK.pack_into(self._memory, self._offset, self._changes, partition, start, end)

    def clear(self) -> None:
        """Nothing is in hand any more."""
        self.set(0, 0, 0)


class InFlight:
    """The marks of one worker. `descriptor` is that of shared(), in either process; without one nobody else sees them."""

    def __init__(self, num_loaders: int, num_streams: int, descriptor: int = -1) -> None:
        self._num_loaders, self._num_marks = num_loaders, num_loaders + num_streams
        self._memory = mmap.mmap(descriptor, self._num_marks * _MARK.size)
        marks = [Mark(self._memory, index * _MARK.size) for index in range(self._num_marks)]
        self.loaders, self.streams = marks[:num_loaders], marks[num_loaders:]

    def loading(self) -> list[Step]:
        """Records that are being read, decoded or prepared."""
        return self._in_hand(range(self._num_loaders))

    def running(self) -> list[Step]:
        """Records of the batches that are inside the network, or whose rows are being made."""
        return self._in_hand(range(self._num_loaders, self._num_marks))

    def snapshot(self) -> bytes:
        """Differs from an earlier one if any thread took or finished anything since."""
        return self._memory[:]

    def close(self) -> None:
        """Let go of the memory; nothing here can be used any more."""
        self._memory.close()

    def _in_hand(self, indices: range) -> list[Step]:
        marks = [_MARK.unpack_from(self._memory, index * _MARK.size) for index in indices]
        return [Step(partition, start, end) for _, partition, start, end in marks if start < end]


def shared(num_loaders: int, num_streams: int) -> int:
    """A descriptor of memory for InFlight that a child can inherit; the caller closes it."""
    descriptor = os.memfd_create("bulkinfer-in-flight")
    os.truncate(descriptor, (num_loaders + num_streams) * _MARK.size)
    return descriptor
