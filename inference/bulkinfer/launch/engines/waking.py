"""Ends the wait of an engine when a signal comes, or another thread has something for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bulkinfer.launch.engines import signals_to_handle


class Waking:
    """A pipe; `descriptor` can be read when the wait must end."""

    def __init__(self) -> None:
        self.descriptor, self._written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock, self._is_open = threading.Lock(), True

    def wake(self) -> None:
        """End the wait. Any thread may call this; after `close` nothing happens."""
        with self._lock, suppress(BlockingIOError):  # the pipe is full: the wait ends anyway
            if self._is_open:
                os.write(self._written, b"\0")

    def clear(self) -> None:
        """Before what there is to do is done: from now on `descriptor` cannot be read until the next call of `wake`."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 1 << 16)

    def close(self) -> None:
        """Close both ends."""
        with self._lock:
            self._is_open = False
            os.close(self.descriptor)
            os.close(self._written)

    @property
    def for_signals(self) -> int:
        """The descriptor that signal.set_wakeup_fd takes."""
        return self._written


@contextmanager
def waking_on_signals(handler: Callable[[int, Any], None]) -> Iterator[Waking]:
    """Within the block, signals that end a launch go to `handler`, and end the wait; see signals_to_handle."""
    waking = Waking()
    before = {number: signal.signal(number, handler) for number in signals_to_handle()}
    if before:
        signal.set_wakeup_fd(waking.for_signals, warn_on_full_buffer=False)
    try:
        yield waking
    finally:
        if before:
            signal.set_wakeup_fd(-1)
        for number, earlier in before.items():
            signal.signal(number, earlier)
        waking.close()
