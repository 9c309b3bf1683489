"""The body of a request, within the limits of size and time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from starlette.types import Receive

from bulkinfer.serve.gate import Gate, Room
from bulkinfer.serve.refusals import InvalidError, Reason, RefusedError

_PATIENCE_S = 5.0  # to receive what is thrown away, so that a client that still sends reads why it is refused


@contextlib.asynccontextmanager
async def body_of(receive: Receive, headers: Mapping[str, str], gate: Gate, timeout_s: float) -> AsyncIterator[bytearray]:
    """The body, whose bytes take room in the gate until the block ends. Raises RefusedError."""
    with gate.room() as room:
        try:
            _check_head(headers, gate)
            body = await _read(receive, room, timeout_s)
        except RefusedError as refusal:
            if refusal.reason is not Reason.SLOW and "expect" not in headers:  # who expects leave to send has not begun
                await _discard(receive, gate.max_request_bytes)
            raise
        yield body


def _check_head(headers: Mapping[str, str], gate: Gate) -> None:
    """Raises RefusedError for a body that is compressed, or too large by its own account.

    What is announced takes no room: bytes that never come would keep out those of others.
    """
    if encoding := headers.get("content-encoding", ""):
        raise RefusedError(Reason.ENCODED, f"Content-Encoding: {encoding} is not served: send the body as it is")
    gate.check_size(_announced(headers))


async def _read(receive: Receive, room: Room, timeout_s: float) -> bytearray:
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for piece in _pieces(receive):
                body += piece
                room.hold(len(body))
    except TimeoutError:
        raise RefusedError(
            Reason.SLOW, f"{len(body)} bytes came within {timeout_s:g} s (--timeout_s), and the request is not complete"
        ) from None
    return body


def _announced(headers: Mapping[str, str]) -> int:
    """The number of bytes that the header Content-Length announces; 0 without one."""
    text = headers.get("content-length", "0")
    if not text.isascii() or not text.isdecimal():
        raise InvalidError(f"Content-Length is {text!r}")
    return int(text)


async def _pieces(receive: Receive) -> AsyncIterator[bytes]:
    """The body as it comes. Raises RefusedError if the connection ends before it does."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(Reason.GONE, "the connection ended before the request did")
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def _discard(receive: Receive, most_bytes: int) -> None:
    """Receive what is left of a body, for a while and up to a size: the connection ends then in any case."""
    with contextlib.suppress(TimeoutError, RefusedError):
        async with asyncio.timeout(_PATIENCE_S):
            async for piece in _pieces(receive):
                most_bytes -= len(piece)
                if most_bytes < 0:
                    return
