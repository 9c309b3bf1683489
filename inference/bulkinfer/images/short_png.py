"""Finds PNGs whose pixel data are a whole zlib stream of fewer rows than the header says: Pillow leaves the others at zero."""

from __future__ import annotations

import struct
import zlib

from PIL import Image

from bulkinfer.errors import RecordError
from bulkinfer.images.png import START, chunks

_PIXELS = b"IDAT"
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # in a pixel, by colour type
# Of an interlaced PNG, each pass: first column and row, distances of columns and rows (PNG specification, section 8.2).
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_BLOCK_BYTES = 1 << 20


def check_png(data: bytes, image: Image.Image) -> None:
    """Raises RecordError("decode") if the PNG `data`, which Pillow has decoded to `image`, lacks rows.

    What is missing stands last and is zero, so that the data are counted only where one of the last two rows is. The only row
    of an interlaced PNG is always counted: its last pass fills every other column.
    """
    header: tuple[int, ...] = struct.unpack_from(">LLBBBBB", data, START + 8)
    last_rows = range(max(0, image.height - 2), image.height)
    if (image.height > 1 or not header[-1]) and not any(_is_zero(image, row) for row in last_rows):
        return
    expected = _expected_bytes(*header)
    found = _unpacked_bytes(data, expected)
    if found < expected:
        raise RecordError("decode", f"truncated PNG: its pixel data unpack to {found} of {expected} bytes")


def _is_zero(image: Image.Image, row: int) -> bool:
    return not image.crop((0, row, image.width, row + 1)).tobytes().strip(b"\0")


def _expected_bytes(width: int, height: int, bits: int, colour: int, _packing: int, _filters: int, is_interlaced: int) -> int:
    """Bytes of all rows, each with its filter's number, by the header."""
    pixel_bits = bits * _SAMPLES.get(colour, 1)
    if not is_interlaced:
        return height * (1 + -(-width * pixel_bits // 8))
    total = 0
    for left, top, across, down in _PASSES:
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:  # a pass without pixels has no rows
            total += rows * (1 + -(-columns * pixel_bits // 8))
    return total


def _unpacked_bytes(data: bytes, most: int) -> int:
    """How many bytes the first zlib stream of the pixel data unpacks to; `most`, if it is more."""
    unpacker, count = zlib.decompressobj(), 0
    try:
        for packed in (data[at + 8 : end - 4] for kind, at, end in chunks(data) if kind == _PIXELS):
            while packed and count < most and not unpacker.eof:
                count += len(unpacker.decompress(packed, _BLOCK_BYTES))
                packed = unpacker.unconsumed_tail
        while count < most and (rest := unpacker.decompress(b"", _BLOCK_BYTES) if not unpacker.eof else b""):
            count += len(rest)
    except zlib.error:  # Pillow reads on where only the checksum at the end is wrong
        return most
    return min(count, most)
