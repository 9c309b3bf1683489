"""Messages between a worker and its loader processes: which picture goes into which slot, and what became of it.

No pixels: those are written into memory that both share. A message is its length and its bytes, on a socket that one thread on
either side uses.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass, field

from bulkinfer.types import Facts

_LENGTH = struct.Struct("=I")
_OFFSET = struct.Struct("=q")
_MOST_AT_ONCE = 8192  # bytes of one read: nearly every message fits

READY = b"ready"  # the first message of a loader process on each of its sockets


def send(connection: socket.socket, message: bytes) -> None:
    """Send one message. Raises BrokenPipeError or ConnectionResetError if the other process has ended."""
    connection.sendall(_LENGTH.pack(len(message)) + message)


def receive(connection: socket.socket) -> bytes | None:
    """The next message; None if the other process has ended, or closed its end."""
    data = b""
    while len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]:
        try:
            part = connection.recv(_MOST_AT_ONCE)
        except ConnectionResetError:  # it ended and left a message unread
            return None
        if not part:
            return None
        data += part
    return data[_LENGTH.size :]


def encode_request(offset: int, path: bytes) -> bytes:
    """Load the picture file `path` into the slot that begins `offset` bytes into the shared memory."""
    return _OFFSET.pack(offset) + path


def decode_request(message: bytes) -> tuple[int, bytes]:
    """The inverse of encode_request."""
    return _OFFSET.unpack_from(message)[0], message[_OFFSET.size :]


@dataclass(slots=True)
class Reply:
    """What became of a picture: its facts, or `error` (stage and message), or `bug`, an exception that is no RecordError.

    `seconds` are those of each stage, `warned` counts what the decoder has warned of since the last reply, by kind.
    """

    facts: Facts | None = None
    error: tuple[str, str] | None = None
    bug: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    warned: dict[str, int] = field(default_factory=dict)


def encode_reply(reply: Reply) -> bytes:
    """A Reply as bytes."""
    facts, found = reply.facts, None
    if facts is not None:
        found = [facts.format, facts.frames, facts.width, facts.height, facts.flags, facts.size_bytes]
    return json.dumps([found, reply.error, reply.bug, reply.seconds, reply.warned]).encode()


def decode_reply(message: bytes) -> Reply:
    """The inverse of encode_reply."""
    found, error, bug, seconds, warned = json.loads(message)
    facts = None
    if found is not None:
        format_, frames, width, height, flags, size_bytes = found
        facts = Facts(format_, frames, width, height, tuple(flags), size_bytes)
    return Reply(facts, None if error is None else tuple(error), bug, seconds, warned)
