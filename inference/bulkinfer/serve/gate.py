"""Which requests come in: none while the server ends, and no more bytes at once than there is room for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from bulkinfer.serve.refusals import Reason, RefusedError

_REQUESTS = 8  # of the largest size that there is room for at once


class Gate:
    """Counts open requests and the bytes that they hold; for the thread of the event loop alone.

    Of the requests that were `accepted`, so many are `answered`, and the clients of others had `gone` before. `is_ending` says
    that none is accepted any more, `is_over` that those without an answer get none.
    """

    def __init__(self, max_request_bytes: int) -> None:
        self.max_request_bytes = max_request_bytes
        self.open = self.accepted = self.answered = self.gone = 0
        self.is_ending = self.is_over = False
        self._room = _REQUESTS * max_request_bytes
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

    def take(self, size_bytes: int) -> None:
        """Room for bytes of a request. Raises RefusedError if there is none now."""
        if size_bytes > self._room:
            raise RefusedError(Reason.BUSY, "the server holds as many bytes of requests as it may: send it again later")
        self._room -= size_bytes

    def give_back(self, size_bytes: int) -> None:
        """The bytes are not needed any more."""
        self._room += size_bytes

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
