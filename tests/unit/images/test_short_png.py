"""short_png.py: PNGs of fewer rows than their header says, in a whole zlib stream. C27."""

from __future__ import annotations

import struct
import zlib

import pytest
from bulkinfer.errors import RecordError
from bulkinfer.images.decode import decode, prepare_decoder
from PIL import Image


@pytest.fixture(autouse=True)
def _decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    prepare_decoder()


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">L", len(content)) + kind + content + struct.pack(">L", zlib.crc32(kind + content))


def png(packed: bytes, width: int, height: int, *, bits: int = 8, colour: int = 2, interlaced: int = 0) -> bytes:
    """A PNG of these pixel data, in two chunks."""
    header = struct.pack(">LLBBBBB", width, height, bits, colour, 0, 0, interlaced)
    palette = chunk(b"PLTE", bytes(range(48))) if colour == 3 else b""
    halves = packed[: len(packed) // 2], packed[len(packed) // 2 :]
    return b"".join(
        [b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header), palette, *(chunk(b"IDAT", half) for half in halves), chunk(b"IEND", b"")]
    )


def rows(count: int, row_bytes: int, value: int = 200) -> bytes:
    """Rows without a filter."""
    return (b"\0" + bytes([value]) * row_bytes) * count


def refusal(data: bytes) -> str:
    with pytest.raises(RecordError) as caught:
        decode(data, orientation="exif", max_pixels=10**6)
    return caught.value.message


@pytest.mark.parametrize("there", [0.1, 0.5, 0.9, 0.975])
def test_c27_a_png_of_too_few_rows(there: float) -> None:
    count = int(40 * there)
    data = png(zlib.compress(rows(count, 3 * 30)), 30, 40)
    assert refusal(data) == f"truncated PNG: its pixel data unpack to {count * 91} of 3640 bytes"


def test_c27_pixel_data_in_two_streams() -> None:
    """Decoders stop at the end of the first."""
    assert "of 3640 bytes" in refusal(png(zlib.compress(rows(20, 90)) + zlib.compress(rows(20, 90)), 30, 40))


@pytest.mark.parametrize(
    ("bits", "colour", "row_bytes"), [(8, 2, 90), (8, 0, 30), (1, 0, 4), (4, 3, 15), (8, 6, 120), (16, 2, 180)]
)
@pytest.mark.parametrize("value", [0, 200])
def test_c27_whole_pngs_are_read_also_if_they_are_black(bits: int, colour: int, row_bytes: int, value: int) -> None:
    data = png(zlib.compress(rows(40, row_bytes, value)), 30, 40, bits=bits, colour=colour)
    assert decode(data, orientation="exif", max_pixels=10**6).height == 40
    short = png(zlib.compress(rows(39, row_bytes, value)), 30, 40, bits=bits, colour=colour)
    assert f"{39 * (1 + row_bytes)} of {40 * (1 + row_bytes)} bytes" in refusal(short)


PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


@pytest.mark.parametrize("value", [0, 200])
@pytest.mark.parametrize(("width", "height"), [(30, 40), (1, 2), (5, 3), (8, 8), (2, 9), (8, 1), (3, 1)])
def test_c27_interlaced_pngs(width: int, height: int, value: int) -> None:
    """The last row of the last pass is missing: that of the last odd number. In a single row it is every other column."""
    packed, last = b"", 0
    for left, top, across, down in PASSES:
        columns, lines = len(range(left, width, across)), len(range(top, height, down))
        packed += rows(lines, 3 * columns, value) if columns else b""
        last = 3 * columns if columns and lines else last
    assert decode(png(zlib.compress(packed), width, height, interlaced=1), orientation="exif", max_pixels=10**6).width == width
    short = packed[: -(1 + last)]
    told = refusal(png(zlib.compress(short), width, height, interlaced=1))
    assert told == f"truncated PNG: its pixel data unpack to {len(short)} of {len(packed)} bytes"
