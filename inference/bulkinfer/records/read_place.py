"""The bytes of a picture from the place where it lies: a file, an object of a store, or a part of an archive."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import lru_cache

from bulkinfer.errors import AbsentObjectError, AbsentStoreError, ObjectError, RecordError
from bulkinfer.files.addresses import address_of
from bulkinfer.images.decode import read_picture
from bulkinfer.records.sources.archives import PictureReader, kind
from bulkinfer.stores.objects import object_address, read_object, read_range
from bulkinfer.types import Archive, Member, Place, printable

_MOST_OPEN = 32  # archives that stay open in a process: the one in work, and the next ones of other threads


def read_place(place: Place, max_file_bytes: int, admit: Callable[[int], object] = lambda _size: None) -> bytes:
    """The bytes of a picture file, wherever it lies. Before one is read from a store, `admit` is called with its size.

    Raises RecordError("read") if they cannot be read, are more than `max_file_bytes`, or if their archive has changed since it
    was listed; RecordError("decode") if there are none; StoreError or UsageError if its store is there and cannot be used. See
    images/decode.read_picture for files.
    """
    if isinstance(place, bytes):
        if place.startswith(b"/") or not address_of(place):
            return read_picture(place, max_file_bytes)
        return _read_stored(place, max_file_bytes, admit)
    name = printable(os.path.basename(place.archive.path))
    try:
        data = _read_member(place, name, max_file_bytes, admit)
    except FileNotFoundError:
        raise RecordError("read", f"archive not found: {name}") from None
    except OSError as error:
        raise RecordError("read", f"{name}: {(error.strerror or str(error)).lower()}") from error
    except MemoryError:
        raise RecordError("read", "out of memory") from None
    if not data:
        raise RecordError("decode", "empty file")
    return data


def _read_stored(place: bytes, max_file_bytes: int, admit: Callable[[int], object]) -> bytes:
    try:
        data = read_object(object_address(place), max_file_bytes, admit)
    except AbsentStoreError:  # of a list, which names many buckets
        raise RecordError("read", "bucket not found") from None
    except ObjectError as error:
        raise RecordError("read", str(error)) from None
    except MemoryError:
        raise RecordError("read", "out of memory") from None
    if not data:
        raise RecordError("decode", "empty file")
    return data


class _OpenArchive:
    """An open archive, which is closed when no thread reads it any more. Raises RecordError if it is not the one listed."""

    __slots__ = ("_descriptor", "archive", "name")

    def __init__(self, archive: Archive) -> None:
        self.archive, self._descriptor = archive, -1
        self.name = printable(os.path.basename(archive.path))
        # O_NONBLOCK: opening a named pipe would wait for a writer for ever.
        self._descriptor = os.open(archive.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # at the end of the process modules are gone
        if self._descriptor >= 0:
            close(self._descriptor)

    @property
    def size_bytes(self) -> int:
        return self.archive.size_bytes

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset` on, fewer at the end of the file. Its size and time are compared at each read."""
        found = os.fstat(self._descriptor)
        _require_unchanged(self.archive, found.st_size, found.st_mtime_ns)
        if not stat.S_ISREG(found.st_mode):
            raise RecordError("read", "not a regular file")
        data = os.pread(self._descriptor, count, offset)
        while 0 < len(data) < count and (part := os.pread(self._descriptor, count - len(data), offset + len(data))):
            data += part
        return data


class _StoredArchive:
    """An archive in a store, of which parts are fetched."""

    def __init__(self, archive: Archive) -> None:
        self.archive, self._address = archive, object_address(archive.path)
        self.name = printable(os.path.basename(archive.path))

    @property
    def size_bytes(self) -> int:
        return self.archive.size_bytes

    def read(self, offset: int, count: int) -> bytes:
        """As of _OpenArchive."""
        if not count:
            return b""
        try:
            data, found = read_range(self._address, offset, count)
        except AbsentObjectError:
            raise FileNotFoundError from None
        except ObjectError as error:
            raise RecordError("read", f"{self.name}: {error}") from None
        if data:
            _require_unchanged(self.archive, found.size_bytes, found.mtime_ns)
        return data


def _require_unchanged(archive: Archive, size_bytes: int, mtime_ns: int) -> None:
    if (size_bytes, mtime_ns) != (archive.size_bytes, archive.mtime_ns):
        raise RecordError("read", f"{printable(os.path.basename(archive.path))} has changed since it was listed")


@lru_cache(maxsize=_MOST_OPEN)
def _opened(archive: Archive) -> PictureReader:
    file = _StoredArchive(archive) if address_of(archive.path) else _OpenArchive(archive)
    return kind(archive.kind).reader(file, archive.columns)


def forget_archives() -> None:
    """Close the archives that stay open, for measurements."""
    _opened.cache_clear()


def _read_member(member: Member, name: str, max_file_bytes: int, admit: Callable[[int], object]) -> bytes:
    if member.offset < 0:
        raise RecordError("read", f"{name} does not hold it: it is a link to no picture there, or sparse")
    admit(min(member.span, max_file_bytes))
    return _opened(member.archive)(member.offset, member.span, max_file_bytes)
