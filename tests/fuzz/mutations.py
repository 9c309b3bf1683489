"""Damage to files: flipped bytes, cuts, splices, and numbers that headers hold."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**64 - 1)
_HEADER_BYTES = 256  # where most numbers stand that matter


def mutate(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """`data` with one to four damages; `others` are what is spliced in."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        random.choice((_flip, _flip, _number, _number, _cut, _repeat, _splice))(changed, others, random)
    return bytes(changed)


def _place(changed: bytearray, random: Random) -> int:
    end = len(changed) if random.random() < 0.5 else min(len(changed), _HEADER_BYTES)
    return random.randrange(end) if end else 0


def _flip(changed: bytearray, _others: Sequence[bytes], random: Random) -> None:
    if changed:
        changed[_place(changed, random)] = random.randrange(256)


def _number(changed: bytearray, _others: Sequence[bytes], random: Random) -> None:
    """One of the numbers with which sums overflow, in either order of bytes; as digits where there are digits."""
    at, width = _place(changed, random), random.choice((1, 2, 4, 8))
    number = random.choice(_NUMBERS)
    if changed[at : at + 1].isdigit():
        changed[at : at + 1] = str(random.choice((number, -number))).encode()
    else:
        changed[at : at + width] = (number % 256**width).to_bytes(width, random.choice(("big", "little")))


def _cut(changed: bytearray, _others: Sequence[bytes], random: Random) -> None:
    at = _place(changed, random)
    del changed[at : at + random.choice((1, 2, 4, 16, len(changed)))]


def _repeat(changed: bytearray, _others: Sequence[bytes], random: Random) -> None:
    at = _place(changed, random)
    changed[at:at] = changed[at : at + random.choice((1, 4, 32, 200))] * random.choice((1, 2, 50))


def _splice(changed: bytearray, others: Sequence[bytes], random: Random) -> None:
    other = random.choice(others)
    begin = random.randrange(len(other) + 1)
    at = _place(changed, random)
    changed[at : at + random.choice((0, 0, 8, 100))] = other[begin : begin + random.choice((1, 8, 100, len(other)))]
