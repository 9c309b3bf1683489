"""The last pages that were read, so that the pictures of a step do not read the same page again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class PageCache:
    """Keeps values of at most `most_bytes`, and the last two in any case: threads may be on both sides of the end of a page.

    `size_of` says how many bytes a value has. Of threads that want the same value at once, one makes it.
    """

    def __init__(self, most_bytes: int, size_of: Callable[[Any], int]) -> None:
        self._most_bytes, self._size_of, self._lock = most_bytes, size_of, threading.Lock()
        self._held: OrderedDict[Hashable, Any] = OrderedDict()
        self._making: dict[Hashable, threading.Event] = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of `key`, made if it is not there. Raises what `make` raises."""
        while True:
            with self._lock:
                if key in self._held:
                    self._held.move_to_end(key)
                    return self._held[key]
                if (other := self._making.get(key)) is None:
                    self._making[key] = mine = threading.Event()
                    break
            other.wait()
        try:
            value = make()
            with self._lock:
                self._held[key] = value
                while len(self._held) > 2 and self._size_bytes() > self._most_bytes:
                    self._held.popitem(last=False)
            return value
        finally:
            with self._lock:
                del self._making[key]
            mine.set()

    def _size_bytes(self) -> int:
        return sum(map(self._size_of, self._held.values()))
