"""HEIC, by the package pillow-heif (extra `heic`), which makes it a format of Pillow."""

from __future__ import annotations

import importlib
import importlib.util
import struct
from functools import cache
from typing import Any

from bulkinfer.errors import RecordError
from bulkinfer.images.header_limits import check_size

PILLOW_NAME = "HEIF"
_MOST_BOXES = 10_000
_SIZE_BOX = b"ispe"


def require_heif() -> None:
    """Make Pillow read HEIC. Raises RecordError("decode") that names the extra to install if pillow-heif is missing."""
    if importlib.util.find_spec("pillow_heif") is None:
        # Not the command for the extra, which holds a path of this host: rows are the same on all.
        needed = "pillow-heif (extra heic), which is not installed: pip install pillow-heif"
        raise RecordError("decode", f"unsupported format HEIC: it needs {needed}")
    _register()


@cache
def _register() -> None:
    heif: Any = importlib.import_module("pillow_heif")
    heif.options.DECODE_THREADS = 1  # loader threads share the cores
    heif.options.THUMBNAILS = heif.options.DEPTH_IMAGES = heif.options.AUX_IMAGES = False
    heif.register_heif_opener()


def check_sizes(data: bytes, max_pixels: int) -> None:
    """Raises RecordError if a HEIC says of any of its pictures that it has more than `max_pixels`.

    Of any, since a picture that is shown may be cut out of a larger one, which is decoded first.
    """
    at, boxes = 0, 0
    while at + 8 <= len(data):
        if boxes == _MOST_BOXES:
            raise RecordError("decode", f"corrupt HEIC: more than {_MOST_BOXES} boxes")
        length, kind = struct.unpack_from(">L4s", data, at)
        if length == 1 and at + 16 <= len(data):
            (length,) = struct.unpack_from(">Q", data, at + 8)
        end = at + length if length >= 8 else len(data)
        if kind == b"meta":
            _check_sizes_in(data, at, min(end, len(data)), max_pixels)
        at, boxes = end, boxes + 1


def _check_sizes_in(data: bytes, at: int, end: int, max_pixels: int) -> None:
    while (at := data.find(_SIZE_BOX, at, end)) >= 0 and at + 16 <= end:
        width, height = struct.unpack_from(">LL", data, at + 8)
        check_size(width, height, max_pixels)
        at += len(_SIZE_BOX)
