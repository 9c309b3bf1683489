"""The bytes of a picture from the place where it lies: a file, or a part of an archive."""

from __future__ import annotations

import os
import stat
from functools import lru_cache

from bulkinfer.errors import RecordError
from bulkinfer.images.decode import read_picture
from bulkinfer.records.sources.archives import kind
from bulkinfer.types import Archive, Member, Place, printable

_MOST_OPEN = 32  # archives that stay open in a process: the one in work, and the next ones of other threads


def read_place(place: Place, max_file_bytes: int) -> bytes:
    """The bytes of a picture file, wherever it lies.

    Raises RecordError("read") if they cannot be read, are more than `max_file_bytes`, or if their archive has changed since it
    was listed; RecordError("decode") if there are none. See images/decode.read_picture for files.
    """
    if isinstance(place, bytes):
        return read_picture(place, max_file_bytes)
    name = printable(os.path.basename(place.archive.path))
    try:
        data = _read_member(place, name, max_file_bytes)
    except FileNotFoundError:
        raise RecordError("read", f"archive not found: {name}") from None
    except OSError as error:
        raise RecordError("read", f"{name}: {(error.strerror or str(error)).lower()}") from error
    except MemoryError:
        raise RecordError("read", "out of memory") from None
    if not data:
        raise RecordError("decode", "empty file")
    return data


class _OpenArchive:
    """An open archive, which is closed when no thread reads it any more. Raises RecordError if it is not the one listed."""

    __slots__ = ("_archive", "_descriptor", "picture_in")

    def __init__(self, archive: Archive) -> None:
        self._archive, self._descriptor = archive, -1
        self.picture_in = kind(archive.kind).picture_in
        # O_NONBLOCK: opening a named pipe would wait for a writer for ever.
        self._descriptor = os.open(archive.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset` on, fewer at the end of the file. Its size and time are compared at each read."""
        found = os.fstat(self._descriptor)
        if (found.st_size, found.st_mtime_ns) != (self._archive.size_bytes, self._archive.mtime_ns):
            raise RecordError("read", f"{printable(os.path.basename(self._archive.path))} has changed since it was listed")
        if not stat.S_ISREG(found.st_mode):
            raise RecordError("read", "not a regular file")
        data = os.pread(self._descriptor, count, offset)
        while 0 < len(data) < count and (part := os.pread(self._descriptor, count - len(data), offset + len(data))):
            data += part
        return data


_opened = lru_cache(maxsize=_MOST_OPEN)(_OpenArchive)


def _read_member(member: Member, name: str, max_file_bytes: int) -> bytes:
    if member.offset < 0:
        raise RecordError("read", f"{name} names it and does not hold it")
    if member.span > max_file_bytes:
        raise RecordError("read", f"too large: {member.span} bytes, limit {max_file_bytes}")
    archive = _opened(member.archive)
    data = archive.read(member.offset, member.span)
    if len(data) < member.span:
        raise RecordError("read", f"{name} ends before the picture does")
    try:
        return archive.picture_in(data)
    except RecordError as error:
        raise RecordError(error.stage, f"{error.message}, at byte {member.offset} of {name}") from None
