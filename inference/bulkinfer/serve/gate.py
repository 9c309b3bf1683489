"""Which requests come in: none while the server ends, and no more bytes at once than there is room for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from bulkinfer.serve.refusals import Reason, RefusedError

_REQUESTS = 16  # of the largest size that there is room for at once


class Gate:
    """Counts open requests and the bytes that they hold; for the thread of the event loop alone.

    Of the requests that were `accepted`, so many are `answered`, and the clients of others had `gone` before. `is_ending` says
    that none is accepted any more, `is_over` that those without an answer get none.
    """

    def __init__(self, max_request_bytes: int) -> None:
        self.max_request_bytes = max_request_bytes
        self.open = self.accepted = self.answered = self.gone = 0
        self.is_ending = self.is_over = False
        self.room_bytes = _REQUESTS * max_request_bytes  # for further requests
        self._empty = asyncio.Event()
        self._empty.set()

    @contextlib.asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """A request is open. Raises RefusedError while the server ends."""
        if self.is_ending:
            raise RefusedError(Reason.ENDING, "the server is shutting down: send it to another one, or again later")
        self.open += 1
        self._empty.clear()
        try:
            yield
        finally:
            self.open -= 1
            if not self.open:
                self._empty.set()

    @contextlib.contextmanager
    def room(self) -> Iterator[Room]:
        """Room for the bytes of one request, until the block ends."""
        room = Room(self)
        try:
            yield room
        finally:
            self.room_bytes += room.held_bytes

    def check_size(self, size_bytes: int) -> None:
        """Raises RefusedError for a request that is larger than any may be."""
        if size_bytes > self.max_request_bytes:
            raise RefusedError(
                Reason.TOO_LARGE,
                f"a request has at most {self.max_request_bytes} bytes (--max_request_mb), this has {size_bytes} or more",
            )

    async def end(self, within_s: float) -> bool:
        """Let no more in, and wait until all that are open are answered; False if that takes longer than `within_s`."""
        self.is_ending = True
        if self.open:
            try:
                await asyncio.wait_for(self._empty.wait(), within_s)
            except TimeoutError:
                self.is_over = True
                return False
        self.is_over = True
        return True


class Room:
    """The bytes that one request holds, `held_bytes`."""

    def __init__(self, gate: Gate) -> None:
        self._gate, self.held_bytes = gate, 0

    def hold(self, size_bytes: int) -> None:
        """Hold at least so many bytes. Raises RefusedError if a request may not have so many, or there is no room now."""
        self._gate.check_size(size_bytes)
        more = size_bytes - self.held_bytes
        if more > self._gate.room_bytes:
            raise RefusedError(Reason.BUSY, "the server holds as many bytes of requests as it may: send it again later")
        if more > 0:
            self._gate.room_bytes -= more
            self.held_bytes = size_bytes
