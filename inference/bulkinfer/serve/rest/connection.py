"""One connection of REST: a head that is too long, or too long in coming, ends it. uvicorn itself bounds neither."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bulkinfer.serve.refusals import Reason

_MOST_HEAD_BYTES = 65_536


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with limits for the lines before the body of each request.

    The time runs from the opening of the connection, or from the first byte of a further request; connections that are idle
    between requests end by uvicorn's own limit.
    """

    head_timeout_s = 60.0

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        self._head_bytes = 0
        self._is_in_head = True
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > _MOST_HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large", f"the head of a request has at most {_MOST_HEAD_BYTES} bytes")

    def on_message_begin(self) -> None:
        self._is_in_head = True
        if self._head_timer is None:
            self._start_timer()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head, self._head_bytes = False, 0
        self._stop_timer()
        super().on_headers_complete()

    def _start_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._too_late)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_late(self) -> None:
        self._head_timer = None
        status = str(Reason.SLOW.http_status).encode()
        self._refuse(status + b" Request Timeout", f"the head of a request must come within {self.head_timeout_s:g} s")

    def _refuse(self, status: bytes, text: str) -> None:
        """Answer, and end the connection."""
        if self.transport.is_closing():
            return
        body = b'{"error":"' + text.encode() + b'"}'
        head = (b"content-type: application/json", b"content-length: %d" % len(body), b"connection: close", b"", b"")
        self.transport.write(b"HTTP/1.1 " + status + b"\r\n" + b"\r\n".join(head) + body)
        self.transport.close()


def connection_class(head_timeout_s: float) -> type[Connection]:
    """The class of the connections of one server, which uvicorn makes itself."""
    return type("Connection", (Connection,), {"head_timeout_s": head_timeout_s})
