"""What a file is that should hold weights or a graph but does not: empty, a web page, a pointer file, or cut short."""

from __future__ import annotations

import os
from pathlib import Path

from bulkinfer.files.guarded import open_regular
from bulkinfer.files.magic_bytes import HEAD_BYTES, identify

_ONNX_START = b"\x08"  # the field of the IR version, with which every ONNX file begins
_FIXED_WIDTHS = {1: 8, 5: 4}  # wire types of protobuf, in bytes


def describe_wrong_file(path: Path) -> str:
    """A description of a file that cannot be weights or a graph, as "it is empty (0 bytes)"; "" if the bytes do not show it."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(1024)
        file.seek(max(0, size - 66_000))  # the end record of a zip file lies within its last 65,557 bytes
        tail = file.read()
    if not size:
        return "it is empty (0 bytes)"
    found = identify(head[:HEAD_BYTES]).name
    if found == "HTML page":
        return f"it is an HTML page of {size:,} bytes, an error or login page saved under this name"
    if found == "Git LFS pointer":
        return f"it is a Git LFS pointer of {size:,} bytes, not the file itself: fetch that with git lfs pull"
    if head.startswith(b"PK\x03\x04") and b"PK\x05\x06" not in tail:
        return f"it is cut short ({size:,} bytes; a torch file whose end is missing)"
    if path.suffix == ".onnx" and head.startswith(_ONNX_START) and _promised_bytes(path) > size:
        return f"it is cut short ({size:,} bytes; a graph whose end is missing)"
    return ""


def _promised_bytes(path: Path) -> int:
    """The offset where the last field of a protobuf message should end; beyond the file's end if that is cut inside a field."""
    with open_regular(path) as file:

        def varint() -> int:
            value = 0
            for shift in range(0, 70, 7):
                byte = file.read(1) or b"\0"
                value |= (byte[0] & 0x7F) << shift
                if byte[0] < 0x80:
                    break
            return value

        size = path.stat().st_size
        while file.tell() < size:
            wire_type = varint() & 7
            width = varint() if wire_type in (0, 2) else _FIXED_WIDTHS.get(wire_type, 0)
            file.seek(0 if wire_type == 0 else min(width, size), 1)
        return file.tell()
