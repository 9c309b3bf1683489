"""Reads a file that an option of the command line names."""

from __future__ import annotations

import sys
from pathlib import Path

from bulkinfer.errors import DamagedError, ObjectError, UsageError, os_error_reason
from bulkinfer.files.addresses import address_of, public
from bulkinfer.files.guarded import read_bytes
from bulkinfer.stores.objects import read_object
from bulkinfer.types import printable_path


def shown_file(path: Path) -> str:
    """A file, or an address, for messages."""
    return printable_path(public(address_of(path)) or path)


def read_named_file(path: Path, flag: str, most_bytes: int = sys.maxsize - 1) -> bytes:
    """All bytes of a file of this machine or of a store.

    Raises UsageError, which begins with `flag`, if it is missing, no regular file, or too large; StoreError if its store cannot
    be used.
    """
    if address := address_of(path):
        try:
            return read_object(address, most_bytes)
        except ObjectError as error:
            raise UsageError(
                f"{flag}: {shown_file(path)} cannot be read: {error}: put it back, or give another address"
            ) from None
    try:
        return read_bytes(path, most_bytes)
    except OSError as error:
        raise UsageError(f"{flag}: {printable_path(path)} cannot be read: {os_error_reason(error)}") from None
    except DamagedError as error:
        raise UsageError(f"{flag}: {error}") from None
