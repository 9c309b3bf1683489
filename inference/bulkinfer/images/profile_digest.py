"""Digests of colour profiles (ICC), under which answers about them are kept: cameras write a profile anew for each picture."""

from __future__ import annotations

import hashlib
import struct
from threading import Lock
from typing import Generic, TypeVar

_DIGEST_BYTES = 16
_HEAD_BYTES = 128
_MOST_TAGS = 100  # as in LittleCMS
_TEXTS = frozenset({b"desc", b"cprt", b"dmnd", b"dmdd", b"vued", b"dscm", b"mmod", b"targ", b"calt"})  # move no colours

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """The last `most` values by their digest. Threads may share it."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._values: dict[bytes, Value] = {}

    def get(self, digest: bytes) -> Value | None:
        return self._values.get(digest)

    def keep(self, digest: bytes, value: Value) -> None:
        with self._lock:
            while len(self._values) >= self._most:
                del self._values[next(iter(self._values))]
            self._values[digest] = value


def digest_of(profile: bytes) -> bytes:
    """The digest of a profile without its date, and without the digest in it."""
    view = memoryview(profile)
    found = hashlib.blake2b(view[:24], digest_size=_DIGEST_BYTES)
    found.update(view[36:84])
    found.update(view[100:])
    return found.digest()


def content_digest(profile: bytes) -> bytes | None:
    """The digest of what moves colours: curves, matrix and tables, not texts, and wherever these lie; None if out of order."""
    view, sections = memoryview(profile), dict[tuple[int, int], int]()
    try:
        size, (count,) = int.from_bytes(view[:4], "big"), struct.unpack_from(">L", view, _HEAD_BYTES)
        if size != len(profile) or count > _MOST_TAGS:
            return None
        tags = [struct.unpack_from(">4sLL", view, _HEAD_BYTES + 4 + 12 * number) for number in range(count)]
    except struct.error:
        return None
    found = hashlib.blake2b(b"content", digest_size=_DIGEST_BYTES)
    for start, end in ((8, 24), (36, 48), (56, 80)):  # version, class, channels; flags; intent and white
        found.update(view[start:end])
    for name, at, length in tags:
        if name not in _TEXTS:
            section = sections.setdefault((at, length), len(sections))
            found.update(struct.pack(">4sLL", name, section, length))
    if sum(length for _, length in sections) > len(profile) or any(at + length > len(profile) for at, length in sections):
        return None
    for at, length in sections:
        found.update(view[at : at + length])
    return found.digest()
