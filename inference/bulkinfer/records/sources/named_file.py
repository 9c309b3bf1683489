"""Reads a file that an option of the command line names."""

from __future__ import annotations

import sys
from pathlib import Path

from bulkinfer.errors import DamagedError, UsageError, os_error_reason
from bulkinfer.files.guarded import read_bytes
from bulkinfer.types import printable_path


def read_named_file(path: Path, flag: str, most_bytes: int = sys.maxsize - 1) -> bytes:
    """All bytes of the file. Raises UsageError, which begins with `flag`, if it is missing, no regular file, or too large."""
    try:
        return read_bytes(path, most_bytes)
    except OSError as error:
        raise UsageError(f"{flag}: {printable_path(path)} cannot be read: {os_error_reason(error)}") from None
    except DamagedError as error:
        raise UsageError(f"{flag}: {error}") from None
