"""Files of a data set that are no pictures, such as archives: on this machine, or in a store."""

from __future__ import annotations

import io
import os
import stat

from bulkinfer.errors import AbsentObjectError, AbsentStoreError, ObjectError, UsageError
from bulkinfer.files.addresses import address_of
from bulkinfer.files.guarded import open_regular
from bulkinfer.stores.objects import find_object, object_address, open_object
from bulkinfer.types import printable


def size_and_time(path: bytes) -> tuple[int, int]:
    """The size of a file in bytes and the time of its last change in ns. Raises OSError, or UsageError for an object."""
    if not address_of(path):
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns
    try:
        size_bytes, mtime_ns, _ = find_object(object_address(path))
    except ObjectError as error:
        raise UsageError(
            f"{printable(os.fsencode(address_of(path)))} cannot be read: {error}: put it back, or give another address"
        ) from None
    return size_bytes, mtime_ns


def open_place(path: bytes) -> io.BufferedReader:
    """Open a file for reading. Raises OSError or UsageError."""
    if not address_of(path):
        return open_regular(os.fsdecode(path), error=UsageError)
    try:
        return open_object(object_address(path))
    except ObjectError as error:
        raise UsageError(
            f"{printable(os.fsencode(address_of(path)))} cannot be read: {error}: put it back, or give another address"
        ) from None


def is_there(path: bytes) -> bool:
    """Whether there is a regular file, or an object. Raises StoreError if its store is there and cannot be used."""
    if not address_of(path):
        try:
            return stat.S_ISREG(os.stat(path).st_mode)
        except (OSError, ValueError):
            return False
    try:
        find_object(object_address(path))
    except (AbsentObjectError, AbsentStoreError):
        return False
    except ObjectError:  # perhaps it may be read and its facts may not be
        return True
    return True
