"""What can be read in parts, such as an object of a store, as a file with a position."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any


class FileInParts(io.RawIOBase):
    """An unbuffered file of `size_bytes` bytes; `read_part(offset, count)` gives `count` of them, fewer at the end."""

    def __init__(self, size_bytes: int, read_part: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size_bytes, self._read_part, self._position = size_bytes, read_part, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._size_bytes - self._position)
        if count <= 0:
            return 0
        data = self._read_part(self._position, count)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
