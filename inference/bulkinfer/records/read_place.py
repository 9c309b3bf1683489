"""The bytes of a picture from the place where it lies: a file, or a part of a shard."""

from __future__ import annotations

import os
import stat
from functools import lru_cache

from bulkinfer.errors import RecordError
from bulkinfer.images.decode import read_picture
from bulkinfer.types import Member, Place, Shard, printable

_MOST_OPEN = 32  # shards that stay open in a process: the one in work, and the next ones of other threads


def read_place(place: Place, max_file_bytes: int) -> bytes:
    """The bytes of a picture file, wherever it lies.

    Raises RecordError("read") if they cannot be read, are more than `max_file_bytes`, or if their shard has changed since it
    was listed; RecordError("decode") if there are none. See images/decode.read_picture for files.
    """
    if isinstance(place, bytes):
        return read_picture(place, max_file_bytes)
    name = printable(os.path.basename(place.shard.path))
    try:
        data = _read_member(place, name, max_file_bytes)
    except FileNotFoundError:
        raise RecordError("read", f"shard not found: {name}") from None
    except OSError as error:
        raise RecordError("read", f"{name}: {(error.strerror or str(error)).lower()}") from error
    except MemoryError:
        raise RecordError("read", "out of memory") from None
    if not data:
        raise RecordError("decode", "empty file")
    return data


class _OpenShard:
    """An open shard, which is closed when no thread reads it any more. Raises RecordError if it is not the one listed."""

    __slots__ = ("_descriptor", "_shard")

    def __init__(self, shard: Shard) -> None:
        self._shard, self._descriptor = shard, -1
        # O_NONBLOCK: opening a named pipe would wait for a writer for ever.
        self._descriptor = os.open(shard.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset` on, fewer at the end of the file. Its size and time are compared at each read."""
        found = os.fstat(self._descriptor)
        if (found.st_size, found.st_mtime_ns) != (self._shard.size_bytes, self._shard.mtime_ns):
            raise RecordError("read", f"{printable(os.path.basename(self._shard.path))} has changed since it was listed")
        if not stat.S_ISREG(found.st_mode):
            raise RecordError("read", "not a regular file")
        data = os.pread(self._descriptor, count, offset)
        while 0 < len(data) < count and (part := os.pread(self._descriptor, count - len(data), offset + len(data))):
            data += part
        return data


_opened = lru_cache(maxsize=_MOST_OPEN)(_OpenShard)


def _read_member(member: Member, name: str, max_file_bytes: int) -> bytes:
    if member.offset < 0:
        raise RecordError("read", f"{name} names it and does not hold it")
    if member.span > max_file_bytes:
        raise RecordError("read", f"too large: {member.span} bytes, limit {max_file_bytes}")
    data = _opened(member.shard).read(member.offset, member.span)
    if len(data) < member.span:
        raise RecordError("read", f"{name} ends before the picture does")
    return data
