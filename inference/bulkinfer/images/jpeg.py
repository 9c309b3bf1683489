"""Decodes JPEGs by libjpeg-turbo's own interface (package simplejpeg): Pillow's pixels with less work, or at reduced size.

It takes only sound baseline and progressive files of YCbCr, RGB or grey, and only if its pixels equal Pillow's bit for bit:
that is tested once per process. A file that causes as little as a warning is left to Pillow, which decides what is an error.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import PIL
from PIL import Image

from bulkinfer.errors import RecordError, UsageError, first_line
from bulkinfer.host.install_hint import install_command
from bulkinfer.images.pillow_warnings import count_notice
from bulkinfer.images.pixel_memory import canvas_for
from bulkinfer.images.side_blocks import TooManyBlocksError

_PLAIN_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended and progressive Huffman; not lossless, arithmetic, hierarchical
SCAN = 0xDA
END_MARKER = b"\xff\xd9"  # of a JPEG and of a JPEG 2000 code stream; does not occur in compressed data
_SILENT = (0xC4, 0xDB, 0xDD, 0xFE)  # Huffman and quantisation tables, restart interval, comment
_PLAIN_SEGMENTS = {0xE0: b"JFIF\0", 0xE2: b"ICC_PROFILE\0"}  # what these must begin with; others may hold anything
_MOST_SEGMENTS = 1000  # before the pixels, 64 MB: a colour profile has 255 at most, depth maps and the like some hundred
_MOST_PADDING = 1 << 16  # bytes of 0xFF between them
_FEW_SCANS = 100  # a progressive file has some ten; each costs a pass over all pixels, and may take no more than ten bytes
_MOST_SCANNED = 1_000_000_000  # pixels times scans, which small pictures of more scans may cost
_MOST_SKIPPED = 1 << 16  # bytes that are in no segment before the pixels: Pillow skips them one by one, a megabyte in 0.3 s
_MOST_MARKERS = 100_000  # behind the beginning of the first scan: a progressive file has some hundred
_BEGINNING = re.compile(rb"\xff[\x01-\xfe]")  # of a segment, for Pillow
_LEAST_MARKER = 0xC0  # at a smaller one Pillow gives up
_BARE = (0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE))  # markers behind which Pillow reads no length
_MARKER = re.compile(rb"\xff+[^\x00\xff\xd0-\xd7]")  # the next one behind the beginning of a scan
_ONE_PASS = (0xC0, 0xC1, 0xC3, 0xC9, 0xCB)  # frames whose scans are not refined by later ones
_LEAST_JFIF = 14  # bytes; Pillow fails on shorter ones
# Sizes worth decoding at, in eighths. libjpeg-turbo has vector code for 1, 2, 4 and 8 only: 3 takes as long as 4, 7 longer than
# 8, and what 6 saves in resizing it costs in decoding.
_EIGHTHS = (1, 2, 4, 5)
_FULL = 8
_MIN_SHORT_SIDE = 64  # below, there is nothing to gain


def require_turbo() -> None:
    """Raises UsageError, naming what is missing and the command to type, if what reduced sizes need is not installed."""
    missing = []
    if importlib.util.find_spec("simplejpeg") is None:
        missing.append("simplejpeg, which is not installed")
    if not hasattr(Image, "fromarrow"):
        missing.append(f"Pillow 11.3 or newer, {PIL.__version__} is installed")
    if missing:
        raise UsageError(f"--decode fast needs {', and '.join(missing)}: {install_command(None, '--upgrade')}")
    if _turbo() is None:
        raise UsageError(
            "--decode fast needs simplejpeg, and the one installed does not load: pip install --force-reinstall simplejpeg"
        )


def eighths_for(short_side: int, at_least: int) -> int:
    """How many eighths of its size a picture may be decoded at, so that its short side keeps `at_least` pixels (0: all 8)."""
    if not at_least or short_side < _MIN_SHORT_SIDE:
        return _FULL
    return next((n for n in _EIGHTHS if short_side * n >= _FULL * at_least), _FULL)


def reduced_size(size: tuple[int, int], eighths: int) -> tuple[int, int]:
    """The size in pixels of a picture that is decoded at so many eighths of `size`."""
    if eighths == _FULL:
        return size
    width, height = (-(-side * eighths // _FULL) for side in size)
    return width, height


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the pixels of a JPEG.

    `frame` is the marker of its frame (0: none), `size` the size in it, `scan_at` where the first scan starts. `is_plain`: it
    holds only what the decoder itself needs, comments and a colour profile, all well-formed: no orientation, no second picture,
    no colours but YCbCr and grey. `channels` and `bits` (of each value) are 0 where the frame does not say. `profile` has the
    segments of the colour profile.
    """

    frame: int
    size: tuple[int, int]
    scan_at: int
    is_plain: bool
    channels: int = 0
    bits: int = 0
    profile: tuple[bytes, ...] = ()


def read_header(data: bytes) -> Header:
    """The header of a JPEG. Raises IndexError if the file ends before its first scan.

    Raises TooManyBlocksError if there are more segments than any sound file has: Pillow keeps each, and joins those of EXIF one
    by one. Segments are skipped, since EXIF may hold a whole JPEG.
    """
    at, frame, size, is_plain, channels, bits, segments, padding = 2, 0, (0, 0), True, 0, 0, 0, 0
    profile: tuple[bytes, ...] = ()
    while data[at] == 0xFF and (marker := data[at + 1]) != SCAN:
        if marker == 0xFF:  # padding
            at, padding = at + 1, padding + 1
            if padding > _MOST_PADDING:
                raise RecordError("decode", f"corrupt JPEG: more than {_MOST_PADDING} bytes of padding before its pixels")
            continue
        segments += 1
        if segments > _MOST_SEGMENTS:
            raise TooManyBlocksError(f"more than {_MOST_SEGMENTS} segments before its pixels")
        end = at + 2 + 256 * data[at + 2] + data[at + 3]
        if marker in _SILENT:
            at = end
            continue
        segment = data[at + 4 : end]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC8, 0xCC):
            is_plain = is_plain and not frame and _is_plain_frame(segment)
            frame, size = marker, (int.from_bytes(segment[3:5], "big"), int.from_bytes(segment[1:3], "big"))
            bits, channels = (segment[0], segment[5]) if len(segment) > 5 else (0, 0)
        elif len(segment) < _LEAST_JFIF or not segment.startswith(_PLAIN_SEGMENTS.get(marker, b"-")):
            is_plain = False
        elif marker == 0xE2:
            profile += (segment,)
        at = end
    return Header(frame, size, at, is_plain and data[at] == 0xFF and frame in _PLAIN_FRAMES, channels, bits, profile)


def check_skipped(data: bytes) -> None:
    """Raises RecordError for a JPEG with more bytes between its segments than any sound file has, before Pillow skips them.

    Raises TooManyBlocksError as read_header does. It goes from segment to segment as Pillow does.
    """
    at, skipped, segments = 2, 0, 0
    while True:
        found = _BEGINNING.search(data, at)
        skipped += (found.start() if found else len(data)) - min(at, len(data))
        if skipped > _MOST_SKIPPED:
            raise RecordError("decode", f"corrupt JPEG: more than {_MOST_SKIPPED} bytes in no segment before its pixels")
        if found is None or (marker := data[found.end() - 1]) == SCAN or marker < _LEAST_MARKER:
            return
        segments += 1
        if segments > _MOST_SEGMENTS:
            raise TooManyBlocksError(f"more than {_MOST_SEGMENTS} segments before its pixels")
        at = found.end() + (0 if marker in _BARE else max(2, int.from_bytes(data[found.end() : found.end() + 2], "big")))


def check_scans(data: bytes, header: Header) -> None:
    """Raises RecordError if a JPEG has so many scans or segments between them that decoding it would take minutes or hours."""
    in_first_scan = data[header.scan_at + 4 : header.scan_at + 5]
    if header.frame in _ONE_PASS and in_first_scan == bytes([header.channels]):
        return  # all channels at once: what follows is not read
    pixels = header.size[0] * header.size[1]
    most = max(_FEW_SCANS, _MOST_SCANNED // max(pixels, 1))
    at, scans, markers = header.scan_at, 0, 0
    while data[at : at + 1] == b"\xff" and (marker := data[at + 1 : at + 2]) not in (b"", b"\xd9"):  # the end of the picture
        scans += marker[0] == SCAN
        markers += 1
        if markers > _MOST_MARKERS:
            raise RecordError("decode", f"corrupt JPEG: more than {_MOST_MARKERS} segments behind the beginning of its pixels")
        if scans > most:
            raise RecordError("decode", f"corrupt JPEG: more than {most} scans of {pixels} pixels")
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        found = _MARKER.search(data, at)
        if found is None:
            return
        at = found.end() - 2


def _is_plain_frame(segment: bytes) -> bool:
    """8 bits, and either grey or three components with the numbers that stand for YCbCr."""
    if len(segment) < 6 or segment[0] != 8 or len(segment) != 6 + 3 * segment[5]:
        return False
    return segment[6::3] in (b"\x01", b"\x01\x02\x03")


def turbo_decode(data: bytes, header: Header, size: tuple[int, int], at_least: int) -> Image.Image | None:
    """The picture of a JPEG of `size` (width, height) in YCbCr, RGB or grey, as RGB; None where Pillow must decode it.

    With `at_least` its short side may be reduced to that many pixels, see eighths_for(); without, it is Pillow's to the bit.
    """
    eighths = eighths_for(min(size), at_least)
    if header.frame not in _PLAIN_FRAMES or (eighths == _FULL and not turbo_agrees()) or (turbo := _turbo()) is None:
        return None
    width, height = reduced_size(size, eighths)
    try:
        canvas = canvas_for(width * height)
        pixels_HWX = turbo.decode_jpeg(data, "RGBX", min_height=height, min_width=width, buffer=canvas.memory)
    except ValueError:  # raised for damaged and for unusual files alike
        return None
    return canvas.image(width, height) if pixels_HWX.shape == (height, width, 4) else None


@cache
def _turbo() -> Any:
    """The package simplejpeg; None if it does not load, or Pillow is too old for it."""
    if importlib.util.find_spec("simplejpeg") is None or not hasattr(Image, "fromarrow"):
        return None
    try:
        turbo = importlib.import_module("simplejpeg")
        assert callable(turbo.decode_jpeg)
        return turbo
    except Exception as error:  # anything may be wrong with an installation
        count_notice(f"simplejpeg is installed but does not load ({first_line(error)}): Pillow decodes")
        return None


def turbo_pixels(data: bytes, max_pixels: int) -> np.ndarray[Any, Any] | None:
    """What libjpeg-turbo alone makes of a file, H x W x 3, for measuring; None where it does not take it."""
    turbo = _turbo()
    try:
        height, width, *_ = turbo.decode_jpeg_header(data)
        pixels_HWC: np.ndarray[Any, Any] | None = turbo.decode_jpeg(data, "RGB") if height * width <= max_pixels else None
    except (AttributeError, ValueError):  # it is not installed, or this is no JPEG for it
        return None
    return pixels_HWC


@cache
def turbo_agrees() -> bool:
    """Whether simplejpeg is there and gives Pillow's pixels for one small JPEG of every kind that it is used for.

    Both are built around libjpeg-turbo, each with its own; a Pillow that is built around another library differs.
    """
    turbo = _turbo()
    if turbo is None:
        return False
    noise = np.random.default_rng(0).integers(0, 256, (43, 61, 3), np.uint8)
    colours = Image.fromarray(noise).resize((183, 129), Image.Resampling.BICUBIC)
    kinds: list[dict[str, Any]] = [{"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}, {"keep_rgb": True}]
    for image in (colours, colours.convert("L")):
        for kind in kinds:
            for progressive in (False, True):
                with io.BytesIO() as file:
                    image.save(file, "JPEG", quality=80, progressive=progressive, **kind)
                    data = file.getvalue()
                    with Image.open(file) as opened:
                        expected = np.asarray(opened.convert("RGB"))
                if not np.array_equal(turbo.decode_jpeg(data, "RGBX")[..., :3], expected):
                    return False
    return True
