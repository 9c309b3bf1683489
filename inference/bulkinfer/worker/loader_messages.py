"""Messages between a worker and its loader processes: which pictures go into which slots, and what became of them.

No pixels: those are written into memory that both share. A message is its length and its bytes, on pipes that one thread on
either side uses.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass, field
from io import FileIO
from itertools import accumulate

from bulkinfer.records.place import place_as_json, place_from_json
from bulkinfer.types import Facts, Place
from bulkinfer.worker.loader import Loaded

_LENGTH = struct.Struct("=Q")
_MOST_AT_ONCE = 1 << 14  # bytes of one read: nearly every message fits

READY = b"ready"  # the first message of each thread of a loader process


class Pipes:
    """One thread's end of two pipes, to a thread of the other process. `descriptors` are those to read from and to write to."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = FileIO(reading, "r"), FileIO(writing, "w")
        self.descriptors = (reading, writing)

    @classmethod
    def pair(cls) -> tuple[Pipes, Pipes]:
        """Both ends."""
        (one_reads, other_writes), (other_reads, one_writes) = os.pipe(), os.pipe()
        return cls(one_reads, one_writes), cls(other_reads, other_writes)

    def send(self, message: bytes) -> None:
        """Send one message. Raises BrokenPipeError if the other process has ended."""
        data = _LENGTH.pack(len(message)) + message
        while data:
            data = data[self._writing.write(data) :]

    def receive(self) -> bytes | None:
        """The next message; None if the other process has ended, or closed its end."""
        data = bytearray()
        while len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]:
            if not (part := self._reading.read(_MOST_AT_ONCE)):
                return None
            data += part
        return bytes(memoryview(data)[_LENGTH.size :])

    def close(self) -> None:
        """Close this end; nothing can be sent or received afterwards."""
        self._reading.close()
        self._writing.close()


@dataclass(frozen=True, slots=True)
class Request:
    """Load the pictures at `places` into slots side by side, the first of which begins `offset` bytes into the shared memory.

    They are the records from `number` on of a partition. `contents` are the bytes of pictures that the worker has read itself,
    in place of `places`; None: it could not, and says so itself.
    """

    offset: int
    partition: int
    number: int
    places: list[Place]
    contents: list[bytes | None] = field(default_factory=list)

    def encode(self) -> bytes:
        """As bytes: a line of JSON, and behind it the contents."""
        places = [place_as_json(place) for place in self.places]
        sizes = [None if content is None else len(content) for content in self.contents]
        head = json.dumps([self.offset, self.partition, self.number, places, sizes]).encode()
        return b"\n".join([head, b"".join(content for content in self.contents if content)])

    @classmethod
    def decode(cls, message: bytes) -> Request:
        """The inverse of encode."""
        head, _, rest = message.partition(b"\n")
        offset, partition, number, places, sizes = json.loads(head)
        ends = list(accumulate(size or 0 for size in sizes))
        contents = [None if size is None else rest[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        return cls(offset, partition, number, [place_from_json(place) for place in places], contents)


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
