"""The chunks of a PNG, read from its bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

START = 8  # bytes before the first chunk
END = b"IEND"


def chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The chunks of a PNG, up to its last: the kind of each, where it begins, and where the next one begins.

    A file that ends early has no last chunk; the one before may claim to reach beyond the end of the file.
    """
    at = START
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">L4s", data, at)
        end = at + 12 + length
        yield kind, at, end
        if kind == END:
            return
        at = end
