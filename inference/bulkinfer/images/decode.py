"""From a path to bytes, and from bytes to an RGB picture as Pillow sees it; every fault of a file is a RecordError.

The content decides how a file is read (see files/magic_bytes.py), never its name. Colour profiles (ICC) are ignored: networks
are trained on the numbers in the file. Of animations and multi-page files the first picture is taken: for an APNG the one
that plain PNG readers see, even if the animation leaves it out.

Pillow decides whether a file is truncated, with two exceptions. It takes zeros for picture data: a JPEG without its end
marker is an error row, whatever stands in the marker's place. And it does not pass on what its decoders warn of: a JPEG or TIFF
whose decoder had to make up pixels is an error row (lost_pixels.py). A PNG or GIF that lacks only what follows its last pixel
is read. JPEG has no checksums: no decoder sees damage in the middle that still reads as picture data.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from dataclasses import dataclass

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError, features

from bulkinfer.errors import RecordError
from bulkinfer.files.magic_bytes import HEAD_BYTES, identify
from bulkinfer.images.header_limits import check_claims, check_size, count_frames
from bulkinfer.images.jpeg import Header, check_scans, read_header, turbo_agrees, turbo_decode
from bulkinfer.images.lost_pixels import check_jpeg, check_tiff_jpegs
from bulkinfer.images.pillow_warnings import count_notice, install_hooks, take_fault, warning_counts

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
_BUILD_FEATURES = {"AVIF": "avif", "JPEG2000": "jpg_2000", "WEBP": "webp"}  # formats that a build of Pillow can lack
_PART_BYTES = 1 << 20  # read at once where the file's size does not say how much is left
_END_MARKER = b"\xff\xd9"  # of a JPEG and of a JPEG 2000 code stream; does not occur in compressed data


@dataclass(frozen=True, slots=True)
class Picture:
    """One decoded picture, first frame only.

    `image` is RGB, loaded, and turned upright unless `orientation` was "stored"; once it is released, the thread's next picture
    may take its memory. `width` and `height` are the size in pixels of the whole picture, of which `image` may
    be a reduced one (see decode()).
    `format` is the real one, in Pillow's names ("JPEG", "PNG", "MPO", ...); `frames` counts the pictures in the file. `flags`:
    "scaled_16bit" (16-bit grey brought to 8 bits; Pillow's convert would clip it), "broken_frames" (the first picture is
    sound, those behind it could not be counted; `frames` is 1).
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


def decode(data: bytes, *, orientation: str, max_pixels: int, at_least: int = 0) -> Picture:
    """Decode one picture file. prepare_decoder() must have been called; any number of threads may call this.

    `orientation` "exif" turns the picture upright, "stored" leaves it as it lies in the file. Pictures of more than
    `max_pixels` are refused by their header, before pixels are decoded; up to there memory is about 10 bytes per pixel (20
    for WebP and JPEG 2000, 14 for damaged JPEGs). Alpha is dropped and palettes, grey and CMYK are converted exactly as
    Pillow's convert("RGB") does; 16-bit grey keeps its upper 8 bits.
    With `at_least`, a sound JPEG may be decoded at a reduced size whose short side has that many pixels or more; everything
    else is decoded as without, errors too.
    Raises RecordError("decode"): "empty file", "truncated JPEG: ...", "corrupt PNG: ...", "unsupported format HEIC",
    "not a picture: HTML page", "too large: 12000x9000 = 108000000 pixels, limit 100000000", "unsupported pixels: ...".
    """
    assert orientation in ("exif", "stored"), orientation
    assert Image.MAX_IMAGE_PIXELS is None, "prepare_decoder() was not called in this process"
    if not data:
        raise RecordError("decode", "empty file")
    content = identify(data[:HEAD_BYTES])
    if not content.is_picture:
        raise RecordError("decode", f"not a picture: {content.name}")
    if not content.readable:
        raise RecordError("decode", f"unsupported format {content.name}")
    try:
        header = _jpeg_header(data) if content.name == "JPEG" else None
        if header:
            check_scans(data, header)
        else:
            check_claims(data, content.name, max_pixels)
        if header and header.is_plain and (picture := _decode_plain_jpeg(data, header, max_pixels, at_least)):
            return picture
        with io.BytesIO(data) as file:
            return _decode(file, data, content.name, header, orientation, max_pixels, at_least)
    except RecordError:
        raise
    except Exception as error:  # decoders raise SyntaxError, struct.error, MemoryError ...: all of it is about this file
        raise RecordError("decode", _reason(error, data, content.name)) from error


def _decode_plain_jpeg(data: bytes, header: Header, max_pixels: int, at_least: int) -> Picture | None:
    """A JPEG whose header holds nothing that Pillow would have to interpret; None if Pillow must decode it all the same."""
    if not data.endswith(_END_MARKER):
        return None
    width, height = header.size
    check_size(width, height, max_pixels)
    image = turbo_decode(data, header, header.size, at_least)
    return Picture(image, "JPEG", 1, width, height) if image is not None else None


def _decode(
    file: io.BytesIO, data: bytes, name: str, header: Header | None, orientation: str, max_pixels: int, at_least: int
) -> Picture:
    opened: Image.Image = Image.open(file, formats=(name,))
    width, height = opened.size
    check_size(width, height, max_pixels)
    format_ = opened.format or name
    # Pillow turns a TIFF upright while it loads it, and drops the tag: read the tag before, and undo the turn if unwanted.
    tiff_orientation = _orientation(opened) if format_ == "TIFF" else 1
    if orientation == "exif" and at_least and any(side % _EIGHTH for side in opened.size) and _orientation(opened) != 1:
        at_least = 0  # a reduced size is rounded up: turned, its last pixels, filled in part, would come first
    image = turbo_decode(data, header, opened.size, at_least) if header and opened.mode in ("RGB", "L") else None
    if image is None:
        take_fault()  # of a picture before, which Pillow has refused
        opened.load()
        width, height = opened.size
    if _end_is_missing(data, name):
        raise RecordError("decode", f"truncated {name}: no end marker")
    if image is None:
        _check_loaded(data, opened, header)
    if orientation == "exif":
        turn = _UPRIGHT.get(_orientation(opened))
    else:
        turn = _UNDO.get(tiff_orientation)
    frames, frame_flags = _count_frames(opened, format_, data)
    image, flags = (image, ()) if image is not None else _to_rgb(opened)
    if turn is not None:
        image = image.transpose(turn)
        width, height = (height, width) if turn in _SWAPS_SIDES else (width, height)
    return Picture(image, format_, frames, width, height, flags + frame_flags)


def _check_loaded(data: bytes, opened: Image.Image, header: Header | None) -> None:
    """Raises RecordError if the decoder made up pixels of a picture that Pillow has passed."""
    if header:
        check_jpeg(data, header, opened)
    elif opened.format == "TIFF":
        if fault := take_fault():
            raise RecordError("decode", f"corrupt TIFF: {fault}")
        check_tiff_jpegs(data, opened)


def _jpeg_header(data: bytes) -> Header | None:
    """None if the file ends before its pixels: then Pillow words the error."""
    try:
        return read_header(data)
    except IndexError:
        return None


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 (normal) if there is none or the EXIF data are not in order."""
    try:
        value = image.getexif().get(ExifTags.Base.Orientation, 1)
        return int(value) if value in _UPRIGHT else 1
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


def _to_rgb(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """The picture as RGB with 8 bits a channel, and the flags of the row."""
    if image.mode == "RGB":
        return image, ()
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):  # values up to 65535
        # The upper byte, as Pillow takes it of 16-bit RGB. Its convert() of 16-bit grey would clip: nearly all white.
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB"), ("scaled_16bit",)
    if image.mode in ("I", "F", "LAB"):
        kind = {"I": "32-bit integers, range unknown", "F": "32-bit floats, range unknown", "LAB": "Lab colours"}
        raise RecordError("decode", f"unsupported pixels: {kind[image.mode]}")
    return image.convert("RGB"), ()


def _end_is_missing(data: bytes, name: str) -> bool:
    """Whether a JPEG or JPEG 2000 has no end marker after the start of its pixels.

    Finds files whose end was never written and reads as zeros: zeros are valid picture data, and decode to plain grey.
    """
    if name not in ("JPEG", "JPEG2000") or data.endswith(_END_MARKER):
        return False
    return data.find(_END_MARKER, read_header(data).scan_at if name == "JPEG" else 0) < 0


def _reason(error: Exception, data: bytes, name: str) -> str:
    """Why a file of a readable format was not decoded, in one line that quotes the decoder."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, UnidentifiedImageError):  # its message holds an address
        if name in _BUILD_FEATURES and not features.check(_BUILD_FEATURES[name]):
            return f"unsupported format {name}: this Pillow was built without it"
        detail = "its header cannot be read"
    else:
        detail = " ".join(str(error).split())[:200] or type(error).__name__
    is_cut = isinstance(error, EOFError) or "truncated" in detail.lower() or _ends_early(data, name)
    return f"{'truncated' if is_cut else 'corrupt'} {name}: {detail}"


def _ends_early(data: bytes, name: str) -> bool:
    """Whether a file that could not be decoded lacks its end."""
    if name in ("JPEG", "JPEG2000"):
        return _END_MARKER not in data[-2:]
    if name == "PNG":
        return b"IEND" not in data[-12:]
    if name == "WEBP":
        return len(data) < 8 + int.from_bytes(data[4:8], "little")
    if name == "TIFF":  # its directory of tags usually stands at the end
        return len(data) < int.from_bytes(data[4:8], "little" if data.startswith(b"II") else "big")
    return False
