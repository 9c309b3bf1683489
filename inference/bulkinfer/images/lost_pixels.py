"""Finds pictures that a decoder passes although it had to make up pixels: it warns, and Pillow does not pass warnings on.

libjpeg fills what a JPEG lacks with grey, libtiff what a fax lacks with white. A JPEG that simplejpeg has decoded needs no
check, because simplejpeg refuses what libjpeg warns of; everything here is for what was left to Pillow.

libjpeg reports the first fault only, and bytes that it skips without harm ("extraneous bytes") may come first. Such a file is
decoded once more with other bytes in front of every marker: a sound stretch of pixel data ends before them, and one that is
too short takes them for pixels.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import math
import re
from typing import Any

from PIL import Image

from bulkinfer.errors import RecordError, first_line
from bulkinfer.images.header_limits import USUAL_TILE_PIXELS, check_size
from bulkinfer.images.jpeg import END_MARKER, SCAN, Header, read_header
from bulkinfer.images.pillow_warnings import count_notice

_LOSSES = re.compile(
    r"premature end of data segment|bad Huffman code|bad arithmetic code|found marker \S+ instead of RST\d|"
    r"Premature end of JPEG file",
    re.IGNORECASE,
)
_MARKER = re.compile(rb"\xff+[^\x00\xff]", re.DOTALL)  # in pixel data, with the bytes that fill the space before it
_END, _RESTARTS = 0xD9, range(0xD0, 0xD8)
_OTHER_BYTES = bytes.fromhex("5ac396a5693c1ed2") * 8  # any that decode to something else than zeros do, without 0xFF
_ARITHMETIC = (0xC9, 0xCA, 0xCB)  # frames whose sound pixel data may go on beyond their end, in zeros
_MOST_TABLE_BYTES = 1 << 14  # of a TIFF: all that JPEG knows are 3 kB
_ROWS = 256  # compared at once
_INKS = 4  # channels of a CMYK JPEG


def end_is_missing(data: bytes, name: str) -> bool:
    """Whether a JPEG or JPEG 2000 has no end marker after the start of its pixels.

    Finds files whose end was never written and reads as zeros: zeros are valid picture data, and decode to plain grey.
    """
    if name not in ("JPEG", "JPEG2000") or data.endswith(END_MARKER):
        return False
    return data.find(END_MARKER, read_header(data).scan_at if name == "JPEG" else 0) < 0


def check_jpeg(data: bytes, header: Header, image: Image.Image) -> None:
    """Raises RecordError("decode") if Pillow made up pixels of `image`, which it has decoded from the JPEG `data`."""
    warning = _first_warning(data, header.channels)
    if warning == "":
        return
    if warning and (found := _LOSSES.search(warning)):
        raise RecordError("decode", f"corrupt JPEG: {found.group()}")
    if header.frame not in _ARITHMETIC and _differs(_with_other_bytes(data, header), image):
        raise RecordError("decode", "corrupt JPEG: premature end of data segment")


def check_tiff_jpegs(data: bytes, opened: Image.Image, max_pixels: int) -> None:
    """Raises RecordError("decode") if a strip or tile of a TIFF is a JPEG that lacks pixels. Others, and other TIFFs, pass.

    Also raises it for a strip or tile of more than `max_pixels`. No byte of the file is read twice.
    """
    tags: Any = getattr(opened, "tag_v2", {})
    if tags.get(259) != 7:  # JPEG
        return
    tables = bytes(tags.get(347, b""))
    if len(tables) > _MOST_TABLE_BYTES:  # they are read once for each strip
        raise RecordError("decode", f"corrupt TIFF: {len(tables)} bytes of JPEG tables, limit {_MOST_TABLE_BYTES}")
    for at, end in _stretches(tags, len(data)):
        stream = data[at:end]
        whole = tables[:-2] + stream[2:] if tables else stream  # without the end of the one, and the start of the other
        try:
            header = read_header(whole)
        except IndexError:
            raise RecordError("decode", "truncated TIFF: a strip or tile without pixels") from None
        check_size(*header.size, max(max_pixels, USUAL_TILE_PIXELS))
        if (warning := _first_warning(whole, header.channels)) and (found := _LOSSES.search(warning)):
            raise RecordError("decode", f"corrupt TIFF: {found.group()}")


def _stretches(tags: Any, size: int) -> list[tuple[int, int]]:
    """Where the strips or tiles of a TIFF of `size` bytes begin and end: those of its picture, each once, without overlaps.

    Their list may be longer than the picture needs, and all of it may point to the same bytes.
    """
    width, height, rows = (_number(tags, tag) for tag in (256, 257, 278))
    planes = _number(tags, 277) if tags.get(284) == 2 else 1  # a strip of each channel
    if 324 in tags:
        places, sizes, across, rows = tags[324], tags.get(325, ()), _number(tags, 322), _number(tags, 323)
    else:
        places, sizes, across, rows = tags.get(273, ()), tags.get(279, ()), width, rows or height
    used = planes * math.ceil(width / max(across, 1)) * math.ceil(height / max(rows, 1))
    shortest: dict[int, int] = {}
    for at, length in zip(places[:used], sizes, strict=False):
        shortest[at] = min(length, shortest.get(at, length))
    starts = sorted(shortest)
    return [(at, min(at + shortest[at], after)) for at, after in zip(starts, [*starts[1:], size], strict=True)]


def _number(tags: Any, tag: int) -> int:
    value = tags.get(tag)
    return value if isinstance(value, int) and value > 0 else 0


def _first_warning(data: bytes, channels: int) -> str | None:
    """What libjpeg says first about a JPEG; "" for a sound one, None where nobody can be asked.

    It is asked for an eighth of the size: the pixel data are read alike, and the rest costs little.
    """
    if importlib.util.find_spec("simplejpeg") is None:
        count_notice("simplejpeg is not installed: JPEGs are decoded twice, to find those that lack pixels")
        return None
    try:
        turbo: Any = importlib.import_module("simplejpeg")
        turbo.decode_jpeg(data, "CMYK" if channels == _INKS else "RGB", min_height=1, min_width=1)
    except ValueError as error:
        return first_line(error)
    except Exception:  # an installation that does not load: jpeg.py has counted that
        return None
    return ""


def _with_other_bytes(data: bytes, header: Header) -> bytes:
    """The JPEG with other bytes at the end of each stretch of pixel data.

    Raises RecordError if a scan has more stretches than the picture has blocks of 8 x 8 pixels.
    """
    parts, at = [data[: header.scan_at]], header.scan_at
    blocks = math.prod(math.ceil(side / 8) for side in header.size)
    while at + 3 < len(data) and (marker := data[at + 1]) != _END:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker != SCAN:  # between scans
            following = _MARKER.search(data, end)
            parts.append(data[at : following.start() if following else len(data)])
            at = following.end() - 2 if following else len(data)
            continue
        parts.append(data[at:end])
        restarts = 0
        while (following := _MARKER.search(data, end)) and data[following.end() - 1] in _RESTARTS:
            restarts += 1
            if restarts > blocks:
                raise RecordError("decode", f"corrupt JPEG: more than {blocks} restart markers in a scan")
            parts += data[end : following.start()], _OTHER_BYTES, following.group()
            end = following.end()
        if following is None:
            at = end
            break
        parts += data[end : following.start()], _OTHER_BYTES, following.group()[:-2]
        at = following.end() - 2
    return b"".join([*parts, data[at:]])


def _differs(data: bytes, image: Image.Image) -> bool:
    """Whether the JPEG `data` has other pixels than `image`. It may be refused, where pixel data were taken for a header."""
    with io.BytesIO(data) as file:
        try:
            other = Image.open(file, formats=("JPEG",))
            other.load()
        except (OSError, SyntaxError, ValueError):
            return True
        return any(
            image.crop(rows).tobytes() != other.crop(rows).tobytes()
            for top in range(0, image.height, _ROWS)
            for rows in [(0, top, image.width, min(top + _ROWS, image.height))]
        )
