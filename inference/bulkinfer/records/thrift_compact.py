"""Values in the compact protocol of Apache Thrift, in which Parquet describes its files."""

from __future__ import annotations

from typing import Any

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


class Long(int):
    """An integer of 64 bits; others have 32."""


def compact(fields: dict[int, Any]) -> bytes:
    """A structure: field number -> integer, bytes, list of one kind, or structure; numbers ascend by less than 16."""
    return _value(fields)[1]


def _value(value: Any) -> tuple[int, bytes]:
    """The kind of a value, and its bytes."""
    if isinstance(value, int):
        return (_I64 if isinstance(value, Long) else _I32), _natural(value << 1 ^ value >> 63)
    if isinstance(value, bytes):
        return _BINARY, _natural(len(value)) + value
    if isinstance(value, list):
        items = [_value(item) for item in value]
        head = bytes([len(items) << 4 | items[0][0]]) if len(items) < 15 else bytes([0xF0 | items[0][0]]) + _natural(len(items))
        return _LIST, head + b"".join(data for _, data in items)
    found, last = b"", 0
    for number, item in value.items():
        kind, data = _value(item)
        found += bytes([(number - last) << 4 | kind]) + data
        last = number
    return _STRUCT, found + b"\0"


def _natural(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
