"""Messages between a worker and its loader processes: which pictures go into which slots, and what became of them.

No pixels: those are written into memory that both share. A message is its length and its bytes, on a socket that one thread on
either side uses.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass, field

from bulkinfer.types import Facts
from bulkinfer.worker.loader import Loaded

_LENGTH = struct.Struct("=I")
_MOST_AT_ONCE = 1 << 14  # bytes of one read: nearly every message fits
_ENCODING = ("utf-8", "surrogateescape")  # of paths, which may be any bytes

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


@dataclass(frozen=True, slots=True)
class Request:
    """Load the picture files `paths` into slots side by side, the first of which begins `offset` bytes into the shared memory.

    They are the records from `number` on of a partition.
    """

    offset: int
    partition: int
    number: int
    paths: list[bytes]

    def encode(self) -> bytes:
        """As bytes."""
        paths = [path.decode(*_ENCODING) for path in self.paths]
        return json.dumps([self.offset, self.partition, self.number, paths]).encode()

    @classmethod
    def decode(cls, message: bytes) -> Request:
        """The inverse of encode."""
        offset, partition, number, paths = json.loads(message)
        return cls(offset, partition, number, [path.encode(*_ENCODING) for path in paths])


@dataclass(slots=True)
class Reply:
    """What became of each picture; `bug` is an exception that is no RecordError, and ended the work.

    `seconds` are those of each stage, `warned` counts what the decoder has warned of since the last reply, by kind.
    """

    loaded: list[Loaded] = field(default_factory=list)
    bug: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    warned: dict[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """As bytes."""
        return json.dumps([list(map(_as_list, self.loaded)), self.bug, self.seconds, self.warned]).encode()

    @classmethod
    def decode(cls, message: bytes) -> Reply:
        """The inverse of encode."""
        loaded, bug, seconds, warned = json.loads(message)
        return cls([_from_list(*values) for values in loaded], bug, seconds, warned)


def _as_list(loaded: Loaded) -> list[object]:
    if isinstance(loaded, tuple):
        return list(loaded)
    return [loaded.format, loaded.frames, loaded.width, loaded.height, loaded.flags, loaded.size_bytes]


def _from_list(*values: object) -> Loaded:
    if len(values) == 2:
        return values  # type: ignore[return-value]  # stage and message
    format_, frames, width, height, flags, size_bytes = values
    return Facts(format_, frames, width, height, tuple(flags), size_bytes)  # type: ignore[arg-type]
