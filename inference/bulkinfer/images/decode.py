"""From a path to bytes, and from bytes to an RGB picture as Pillow sees it; every fault of a file is a RecordError.

The content decides how a file is read (see files/magic_bytes.py), never its name. docs/pixels.md has every rule. Of animations
and multi-page files the first picture is taken.

Pillow decides whether a file is truncated, with exceptions. It takes zeros for picture data: a JPEG without its end marker is
an error row, whatever stands in the marker's place. And it does not pass on what its decoders warn of: a JPEG or TIFF whose
decoder had to make up pixels is an error row (lost_pixels.py), and so is a PNG of too few rows (short_png.py). A PNG or GIF
that lacks only what follows its last pixel is read. JPEG has no checksums: no decoder sees damage in the middle that still
reads as picture data.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from dataclasses import dataclass
from typing import NamedTuple

from PIL import ExifTags, Image

from bulkinfer.errors import RecordError, first_line
from bulkinfer.files.magic_bytes import HEAD_BYTES, Content, identify
from bulkinfer.images.colours import Alpha, joined_profile, to_rgb, turbo_by_profile
from bulkinfer.images.header_limits import check_claims, check_size, count_frames
from bulkinfer.images.heic import PILLOW_NAME, check_sizes, require_heif
from bulkinfer.images.jpeg import END_MARKER, Header, check_scans, check_skipped, read_header, turbo_agrees, turbo_decode
from bulkinfer.images.lost_pixels import check_jpeg, check_tiff_jpegs, end_is_missing
from bulkinfer.images.pillow_warnings import count_notice, install_hooks, take_fault, warning_counts
from bulkinfer.images.reasons import is_of_pixels, reason
from bulkinfer.images.short_png import check_png
from bulkinfer.images.side_blocks import without_side_blocks
from bulkinfer.model.recipe import STORED

__all__ = ["Picture", "decode", "prepare_decoder", "read_picture", "warning_counts"]

_UPRIGHT = {  # EXIF orientation -> what turns the picture upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_UNDO = _UPRIGHT | {6: _UPRIGHT[8], 8: _UPRIGHT[6]}
_SWAPS_SIDES = tuple(_UPRIGHT[orientation] for orientation in (5, 6, 7, 8))
_EIGHTH = 8  # sides that are multiples of this are reduced without a remainder
_UNSUPPORTED_BITS = range(9, 17)  # of a JPEG's values; more is damage
_PART_BYTES = 1 << 20  # read at once where the file's size does not say how much is left


@dataclass(frozen=True, slots=True)
class Picture:
    """One decoded picture, first frame only.

    `image` is RGB, loaded, and turned upright unless `orientation` was "stored"; once it is released, the thread's next picture
    may take its memory. `width` and `height` are the size in pixels of the whole picture, of which `image` may
    be a reduced one (see decode()).
    `format` is the real one, in Pillow's names ("JPEG", "PNG", "MPO", ...); `frames` counts the pictures in the file. `flags`:
    "scaled_16bit" (16-bit grey brought to 8 bits; Pillow's convert would clip it), "icc_profile" (an embedded colour profile
    that is not sRGB was ignored), "broken_frames" (the first picture is sound, those behind it could not be counted; `frames`
    is 1).
    """

    image: Image.Image
    format: str
    frames: int
    width: int
    height: int
    flags: tuple[str, ...] = ()


def prepare_decoder() -> None:
    """Set up Pillow for decode(), once per process, before threads start; a second call changes nothing.

    From then on Pillow's warnings are counted and not shown (see pillow_warnings.py). Pillow's own limit on pixels is switched
    off, since decode() has its own. Its plugins and simplejpeg are imported now, not by the first threads.
    """
    Image.MAX_IMAGE_PIXELS = None
    Image.init()
    install_hooks()
    turbo_agrees()


def read_picture(path: bytes, max_file_bytes: int) -> bytes:
    """The bytes of a picture file.

    Raises RecordError("read") if there is no such file, it may not be read, is no regular file, is larger than
    `max_file_bytes` or than the memory that is left, and RecordError("decode") if it is empty.
    """
    try:
        data = _read(path, max_file_bytes)
    except FileNotFoundError:
        raise RecordError("read", "file not found (or a link to a file that is not there)") from None
    except OSError as error:
        raise RecordError("read", (error.strerror or str(error)).lower()) from error
    except ValueError:  # a manifest may hold it, a file system cannot
        raise RecordError("read", "a path with a zero byte in it names no file") from None
    except MemoryError:
        raise RecordError("read", "out of memory") from None
    if not data:
        raise RecordError("decode", "empty file")
    return data


def _read(path: bytes, max_file_bytes: int) -> bytes:
    # O_NONBLOCK: opening a named pipe would wait for a writer for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:  # no file object: making one takes as long as reading a small picture
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            raise RecordError("read", "not a regular file")
        if status.st_size > max_file_bytes:
            raise RecordError("read", f"too large: {status.st_size} bytes, limit {max_file_bytes}")
        data = os.read(descriptor, status.st_size + 1)  # one byte more shows the end of the file without another read
        if data and len(data) != status.st_size:
            data += _rest(descriptor, max_file_bytes + 1 - len(data))
        if len(data) > max_file_bytes:
            raise RecordError("read", f"too large: it grew beyond the limit, {max_file_bytes} bytes, while it was read")
        return data
    finally:
        os.close(descriptor)


def _rest(descriptor: int, most: int) -> bytes:
    """The rest of a file that grew meanwhile, or that one call does not read whole; `most` bytes at most."""
    parts = []
    while most > 0 and (part := os.read(descriptor, min(most, _PART_BYTES))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


class Rules(NamedTuple):
    """What decode() does with a picture besides decoding it, see there."""

    orientation: str
    max_pixels: int
    at_least: int
    colour: str
    alpha_over: Alpha


def decode(
    data: bytes, *, orientation: str, max_pixels: int, at_least: int = 0, colour: str = STORED, alpha_over: Alpha = None
) -> Picture:
    """Decode one picture file. prepare_decoder() must have been called; any number of threads may call this.

    `orientation` "exif" turns the picture upright, "stored" leaves it as it lies in the file. Pictures of more than
    `max_pixels` are refused by their header, before pixels are decoded; up to there memory is about 10 bytes per pixel (20
    for WebP, JPEG 2000, HEIC, and where colours or alpha are converted, 14 for damaged JPEGs). Palettes, grey and CMYK are
    converted exactly as Pillow's convert("RGB") does; 16-bit grey keeps its upper 8 bits. `colour` and `alpha_over` are those
    of a recipe, see colours.py. Blocks of a PNG or JPEG beside its pixels that a decoder fails on are left out.
    With `at_least`, a sound JPEG may be decoded at a reduced size whose short side has that many pixels or more; everything
    else is decoded as without, errors too.
    Raises RecordError("decode"): "empty file", "truncated JPEG: ...", "corrupt PNG: ...", "unsupported format PSD",
    "not a picture: HTML page", "too large: 12000x9000 = 108000000 pixels, limit 100000000", "unsupported pixels: ...".
    """
    assert orientation in ("exif", "stored"), orientation
    assert Image.MAX_IMAGE_PIXELS is None, "prepare_decoder() was not called in this process"
    if not data:
        raise RecordError("decode", "empty file")
    content = identify(data[:HEAD_BYTES])
    if not content.is_picture:
        raise RecordError("decode", f"not a picture: {content.name}")
    rules = Rules(orientation, max_pixels, at_least, colour, alpha_over)
    try:
        try:
            return _decode_as(content, data, rules)
        except RecordError:
            raise
        except Exception as error:
            if is_of_pixels(error, content.name) or (rest := without_side_blocks(data, content.name)) is None:
                raise
            picture = _decode_as(content, rest, rules)
            count_notice(f"blocks of a {content.name} beside its pixels cannot be read, decoded without: {first_line(error)}")
            return picture
    except RecordError:
        raise
    except Exception as error:  # decoders raise SyntaxError, struct.error, MemoryError ...: all of it is about this file
        raise RecordError("decode", reason(error, data, content.name)) from error


def _decode_as(content: Content, data: bytes, rules: Rules) -> Picture:
    header = None
    if content.name == "JPEG":
        header = _jpeg_header(data)
        if header is None or not header.is_plain:
            check_skipped(data)
    elif content.name == "HEIC":
        require_heif()
        check_sizes(data, rules.max_pixels)
    elif not content.readable:
        raise RecordError("decode", f"unsupported format {content.name}")
    else:
        check_claims(data, content.name, rules.max_pixels)
    if header:
        if header.bits in _UNSUPPORTED_BITS:
            raise RecordError("decode", f"unsupported: {header.bits}-bit JPEG")
        check_scans(data, header)
        if header.is_plain and (picture := _decode_plain_jpeg(data, header, rules)):
            return picture
    with io.BytesIO(data) as file:
        return _decode(file, data, content.name, header, rules)


def _decode_plain_jpeg(data: bytes, header: Header, rules: Rules) -> Picture | None:
    """A JPEG whose header holds nothing that Pillow would have to interpret; None if Pillow must decode it all the same."""
    if not data.endswith(END_MARKER):
        return None
    width, height = header.size
    check_size(width, height, rules.max_pixels)
    image = turbo_decode(data, header, header.size, rules.at_least)
    if image is None:
        return None
    flags: tuple[str, ...] = ()
    if header.profile:
        image, flags = turbo_by_profile(image, header, joined_profile(header.profile), rules.colour)
    return Picture(image, "JPEG", 1, width, height, flags)


def _decode(file: io.BytesIO, data: bytes, name: str, header: Header | None, rules: Rules) -> Picture:
    opened: Image.Image = Image.open(file, formats=(PILLOW_NAME if name == "HEIC" else name,))
    width, height = opened.size
    check_size(width, height, rules.max_pixels)
    format_ = name if name == "HEIC" else opened.format or name
    # Pillow turns a TIFF upright while it loads it, and drops the tag: read the tag before, and undo the turn if unwanted.
    tiff_orientation = _orientation(opened) if format_ == "TIFF" else 1
    at_least, is_upright = rules.at_least, rules.orientation == "exif"
    if is_upright and at_least and any(side % _EIGHTH for side in opened.size) and _orientation(opened) != 1:
        at_least = 0  # a reduced size is rounded up: turned, its last pixels, filled in part, would come first
    image = turbo_decode(data, header, opened.size, at_least) if header and opened.mode in ("RGB", "L") else None
    if image is None:
        take_fault()  # of a picture before, which Pillow has refused
        opened.load()
        width, height = opened.size
    if end_is_missing(data, name):
        raise RecordError("decode", f"truncated {name}: no end marker")
    if image is None:
        _check_loaded(data, opened, header, rules.max_pixels)
    turn = _UPRIGHT.get(_orientation(opened)) if is_upright else _UNDO.get(tiff_orientation)
    frames, frame_flags = _count_frames(opened, format_, data)
    profile = opened.info.get("icc_profile")
    profile = profile if isinstance(profile, bytes) else b""
    if image is not None and header:
        image, flags = turbo_by_profile(image, header, profile, rules.colour)
    else:
        image, flags = to_rgb(opened, profile, rules.colour, rules.alpha_over)
    if turn is not None:
        image = image.transpose(turn)
        width, height = (height, width) if turn in _SWAPS_SIDES else (width, height)
    return Picture(image, format_, frames, width, height, flags + frame_flags)


def _check_loaded(data: bytes, opened: Image.Image, header: Header | None, max_pixels: int) -> None:
    """Raises RecordError if the decoder made up pixels of a picture that Pillow has passed."""
    if header:
        check_jpeg(data, header, opened)
    elif opened.format == "PNG":
        check_png(data, opened)
    elif opened.format == "TIFF":
        if fault := take_fault():
            raise RecordError("decode", f"corrupt TIFF: {fault}")
        check_tiff_jpegs(data, opened, max_pixels)


def _jpeg_header(data: bytes) -> Header | None:
    """None if the file ends before its pixels: then Pillow words the error."""
    try:
        return read_header(data)
    except IndexError:
        return None


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 (normal) if there is none or the EXIF data are not in order."""
    try:
        return int(value) if (value := image.getexif().get(ExifTags.Base.Orientation, 1)) in _UPRIGHT else 1
    except Exception as error:  # seen: SyntaxError, struct.error, ValueError; the pixels are good all the same
        count_notice(f"unreadable EXIF data, orientation taken as normal: {type(error).__name__}")
        return 1


def _count_frames(image: Image.Image, format_: str, data: bytes) -> tuple[int, tuple[str, ...]]:
    """How many pictures the file holds, and the flags of the row. Decodes none of them."""
    claimed = 1 if format_ in ("GIF", "TIFF") else int(getattr(image, "n_frames", 1))  # the header says so
    try:
        return count_frames(data, format_, claimed), ()
    except ValueError as error:
        count_notice(f"frames of {format_} could not be counted: {error}")
        return 1, ("broken_frames",)
