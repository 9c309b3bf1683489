"""Limits on the numbers in a picture file, checked before a decoder uses them; and how many pictures a file holds.

Decoders allocate memory and loop by the numbers in a file. Those that the limit on pixels does not bound are checked here: a
file with absurd numbers gets its error row before a decoder sees it. Each check takes time linear in the file, most stop at the
first picture, and none allocates memory by what it reads. Files that end too early are left to the decoder.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from itertools import islice

from bulkinfer.errors import RecordError
from bulkinfer.images.png import END, chunks
from bulkinfer.images.side_blocks import TooManyBlocksError
from bulkinfer.images.tiff import OUTSIDE, check_is_no_raw, directories, entries_at, first_layout, whole_number

MOST_FRAMES = 100_000  # counted; a file of more is one whose pictures could not be counted
USUAL_TILE_PIXELS = 1 << 20  # of a TIFF, allowed whatever the limit on pixels
MOST_CHUNKS = 1_000_000  # of a PNG: 100 million pixels in chunks of 1 kB are a third of that
_MOST_OTHER_CHUNKS = 10_000  # of a PNG that hold no pixels: Pillow keeps each, at many times its size
_MOST_BLOCKS = 1_000_000  # of a GIF before its first picture; Pillow keeps those of comments
_MOST_BLOCKS_COUNTED = 8_000_000  # of a GIF while its pictures are counted: 1 GiB of full ones is half of that
_MOST_BOXES = 10_000  # of a JPEG 2000 file before its code stream
_MOST_STRIPS = 300_000  # of a TIFF, of each kind: Pillow makes some 400 bytes of every one
_MOST_COMMENTS = 10_000  # of a plain PPM: Pillow copies a megabyte for each
_MOST_PPM_HEADER = 1 << 16  # bytes: Pillow reads it one by one
# Its numbers, with blanks and comments before them. The + behind a repetition: what it has taken is not tried otherwise.
_PPM_NUMBER = rb"(?:\s|#[^\r\n]*+[\r\n])*+[^\s#]++"
_LEAST_TILE_PIXELS = 1024  # of a JPEG 2000 in many tiles: OpenJPEG keeps some 10 kB for each
_FEW_TILES = 1024
_MOST_CHANNELS = 4  # that Pillow reads of a JPEG 2000
_MOST_INT32 = 2**31 - 1  # what a row can hold

_OF_PIXELS = (b"IDAT", b"fdAT", b"fcTL", END)
_CODE_STREAM = b"\xff\x4f\xff\x51"
_TILE_WIDTH, _TILE_LENGTH = 322, 323
_STRIPS = (273, 279, 324, 325)  # offsets and sizes of strips and tiles


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Raises RecordError if a picture has more than `max_pixels`."""
    if (pixels := width * height) > max_pixels:
        raise RecordError("decode", f"too large: {width}x{height} = {pixels} pixels, limit {max_pixels}")


def check_claims(data: bytes, name: str, max_pixels: int) -> None:
    """Raises RecordError("decode") if a file of format `name` (see files/magic_bytes.py) holds numbers that no sound file has,
    and TooManyBlocksError if what is too much lies beside the pixels.

    JPEGs have checks of their own, see jpeg.py.
    """
    if check := _CHECKS.get(name):
        try:
            check(data, max_pixels)
        except (*OUTSIDE, IndexError):  # it ends in its header, or points outside the file
            return


def count_frames(data: bytes, name: str, claimed: int) -> int:
    """How many pictures a file holds: those of a GIF and a TIFF are counted, others say so (`claimed`). Decodes none.

    Raises ValueError if they cannot be counted: what follows a sound first picture may be damaged.
    """
    if name == "GIF":
        claimed = sum(1 for _ in _gif_pictures(data, _MOST_BLOCKS_COUNTED))
    elif name == "TIFF":
        claimed = _tiff_directories(data)
    if not 1 <= claimed <= (MOST_FRAMES if name in ("GIF", "TIFF") else _MOST_INT32):
        raise ValueError(f"{claimed} pictures")
    return claimed


def _refusal(name: str, what: str) -> RecordError:
    return RecordError("decode", f"corrupt {name}: {what}")


def _png(data: bytes, max_pixels: int) -> None:
    width, height = struct.unpack_from(">LL", data, 16)
    check_size(width, height, max_pixels)
    others = 0
    for number, (kind, _, _) in enumerate(chunks(data)):
        if number >= MOST_CHUNKS:
            raise _refusal("PNG", f"more than {MOST_CHUNKS} chunks")
        others += kind not in _OF_PIXELS
        if others > _MOST_OTHER_CHUNKS:
            raise TooManyBlocksError(f"more than {_MOST_OTHER_CHUNKS} chunks that hold no pixels")


def _gif(data: bytes, max_pixels: int) -> None:
    """The first picture may be larger than the canvas that the header names: decoders then enlarge the canvas."""
    width, height = struct.unpack_from("<HH", data, 6)
    try:
        at = next(_gif_pictures(data, _MOST_BLOCKS), None)
    except ValueError as error:
        raise _refusal("GIF", f"{error} before its first picture") from None
    if at is not None:
        left, top, inner_width, inner_height = struct.unpack_from("<4H", data, at)
        width, height = max(width, left + inner_width), max(height, top + inner_height)
    check_size(width, height, max_pixels)


def _gif_pictures(data: bytes, most_blocks: int) -> Iterator[int]:
    """Where the description of each picture of a GIF begins, up to the end of the file, wherever that is.

    Raises ValueError if the file ends within such a description, or has more than `most_blocks`, or MOST_FRAMES pictures.
    """
    at, blocks, frames = 13 + _colours(data[10] if len(data) > 10 else 0), 0, 0
    while at < len(data) and data[at] != 0x3B:  # the trailer
        kind, at, blocks = data[at], at + 1, blocks + 1
        if kind == 0x2C:
            frames += 1
            if at + 10 > len(data) or frames > MOST_FRAMES:
                raise ValueError("it ends in a header" if frames <= MOST_FRAMES else f"more than {MOST_FRAMES} pictures")
            yield at
            at += 10 + _colours(data[at + 8])
        elif kind == 0x21:
            at += 1
        if kind in (0x2C, 0x21):  # else junk, which decoders skip
            while at < len(data) and (size := data[at]) and blocks <= most_blocks:
                at, blocks = at + 1 + size, blocks + 1
            at += 1
        if blocks > most_blocks:
            raise ValueError(f"more than {most_blocks} blocks")


def _colours(flags: int) -> int:
    """Bytes of a table of colours."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _tiff_directories(data: bytes) -> int:
    """How many directories there are, up to one more than MOST_FRAMES. Raises ValueError if one lies outside the file."""
    try:
        layout, at = first_layout(data)
        return sum(1 for _ in islice(directories(data, layout, at), MOST_FRAMES + 1))
    except OUTSIDE:
        raise ValueError("a directory lies outside the file") from None


def _tiff(data: bytes, max_pixels: int) -> None:
    """Tiles are decoded whole, however small the picture is, and Pillow makes a list of all strips."""
    layout, at = first_layout(data)
    sides = {_TILE_WIDTH: 0, _TILE_LENGTH: 0}
    for entry in entries_at(data, layout, at):
        if entry.tag in _STRIPS and entry.values > _MOST_STRIPS:
            raise _refusal("TIFF", f"{entry.values} strips or tiles")
        if entry.tag in sides and (value := whole_number(layout, entry)) is not None:
            sides[entry.tag] = max(sides[entry.tag], value)
    width, length = sides.values()
    if width * length > max(max_pixels, USUAL_TILE_PIXELS):  # a small limit does not forbid tiles of usual size
        raise _refusal("TIFF", f"tiles of {width}x{length} pixels, limit {max_pixels}")
    check_is_no_raw(data, layout, at)


def _webp(data: bytes, max_pixels: int) -> None:
    """libwebp allocates two canvases when it opens a file."""
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    elif kind == b"VP8L":
        (bits,) = struct.unpack_from("<L", data, 21)
        width, height = (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
    else:
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    check_size(width, height, max_pixels)


def _jpeg2000(data: bytes, max_pixels: int) -> None:
    """Memory is allocated by the code stream; the boxes around it, which Pillow reads, may say something else."""
    at = _code_stream_at(data)
    if at is None:
        return
    _, _, right, bottom, left, top, tile_width, tile_height, tile_left, tile_top, channels = struct.unpack_from(
        ">HH8LH", data, at + 4
    )
    width, height = max(right - left, 0), max(bottom - top, 0)
    check_size(width, height, max_pixels)
    if channels > _MOST_CHANNELS:
        raise _refusal("JPEG2000", f"{channels} channels")
    if tile_width and tile_height:
        tiles = -(-(right - tile_left) // tile_width) * -(-(bottom - tile_top) // tile_height)
        if tiles > max(_FEW_TILES, width * height // _LEAST_TILE_PIXELS):
            raise _refusal("JPEG2000", f"{tiles} tiles")


def _code_stream_at(data: bytes) -> int | None:
    """None if the boxes do not lead to one."""
    if data.startswith(_CODE_STREAM):
        return 0
    at = 0
    for _ in range(_MOST_BOXES):
        length, kind = struct.unpack_from(">L4s", data, at)
        head = 8
        if length == 1:
            (length,), head = struct.unpack_from(">Q", data, at + 8), 16
        if kind == b"jp2c":
            return at + head
        if length < head:
            return None
        at += length
    raise _refusal("JPEG2000", f"more than {_MOST_BOXES} boxes")


def _ppm(data: bytes, _max_pixels: int) -> None:
    numbers = 2 if data[1:2] in b"14" else 3
    is_long = len(data) > _MOST_PPM_HEADER
    if is_long and not re.match(rb"P.(?:%b){%d}" % (_PPM_NUMBER, numbers), data[:_MOST_PPM_HEADER], re.DOTALL):
        raise _refusal("PPM", f"more than {_MOST_PPM_HEADER} bytes before its pixels")
    if data[1:2] in b"123" and data.count(b"#") > _MOST_COMMENTS:
        raise _refusal("PPM", f"more than {_MOST_COMMENTS} comments")


_CHECKS: dict[str, Callable[[bytes, int], None]] = {
    "PNG": _png,
    "GIF": _gif,
    "TIFF": _tiff,
    "WEBP": _webp,
    "JPEG2000": _jpeg2000,
    "PPM": _ppm,
}
