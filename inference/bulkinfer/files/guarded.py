"""Open files that somebody else may have put there: regular files only, without waiting, and no larger than a bound.

A named pipe would be waited for, a device never ends, and a file larger than memory ends the process. The files that bulkinfer
reads are small and regular; this is the one way to open them (tests/rules/test_guarded.py).
"""

from __future__ import annotations

import errno
import io
import os
import stat

from bulkinfer.errors import BulkinferError, DamagedError
from bulkinfer.types import printable_path

JSON_BYTES = 64 << 20  # most bytes of a control file
JOB_BYTES = 1 << 30  # most bytes of a _job.json: one of a million parts has some 200 MB
GRAPH_BYTES = 1 << 31  # most bytes of a graph: protobuf allows no more
TEXT_BYTES = 64 << 20  # most bytes of a text that the user names: labels, options, tables
_PIECE_BYTES = 1 << 20

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(
    path: str | os.PathLike[str], *, most_bytes: int | None = None, error: type[BulkinferError] = DamagedError
) -> io.BufferedReader:
    """Open a regular file for reading bytes; a link is followed.

    Raises `error` if it is of another kind, or larger than `most_bytes`; OSError if it is missing or cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as failure:
        if failure.errno == errno.ENXIO:  # what opening a socket gives
            raise error(f"{printable_path(path)} is a socket or a device, not a file") from None
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "of an unknown kind")
            raise error(f"{printable_path(path)} is {kind}, not a file")
        if most_bytes is not None and found.st_size > most_bytes:
            raise error(_too_large(path, found.st_size, most_bytes))
        return io.BufferedReader(io.FileIO(descriptor))
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: str | os.PathLike[str], most_bytes: int, *, error: type[BulkinferError] = DamagedError) -> bytes:
    """All bytes of a regular file; see open_regular."""
    with open_regular(path, most_bytes=most_bytes, error=error) as file:
        size = os.fstat(file.fileno()).st_size
        # one byte more than the file says that it has: a file that grew is seen, and memory for it is taken once
        data = file.read(min(size, most_bytes) + 1) if size else _of_unknown_size(file, most_bytes + 1)
        if len(data) > size > 0:
            data += _of_unknown_size(file, most_bytes + 1 - len(data))
    if len(data) > most_bytes:
        raise error(_too_large(path, len(data), most_bytes))
    return data


def _of_unknown_size(file: io.BufferedReader, most: int) -> bytes:
    """The rest of a file, `most` bytes at most, in pieces: one read() would first take memory for all that it may read."""
    pieces, count = list[bytes](), 0
    while count < most and (piece := file.read(min(_PIECE_BYTES, most - count))):
        pieces.append(piece)
        count += len(piece)
    return b"".join(pieces)


def read_text(path: str | os.PathLike[str], most_bytes: int, *, error: type[BulkinferError] = DamagedError) -> str:
    """All of a regular UTF-8 file, with \\n as its line end; see open_regular. Raises UnicodeDecodeError for other bytes."""
    return read_bytes(path, most_bytes, error=error).decode().replace("\r\n", "\n").replace("\r", "\n")


def _too_large(path: str | os.PathLike[str], size: int, most_bytes: int) -> str:
    return f"{printable_path(path)} has {size:,} bytes or more; such a file has at most {most_bytes:,}"
