"""TFRecord files as archives: records of tf.train.Example with a picture in `image/encoded`, as those of ImageNet.

A record lies in a frame: its length (uint64), a checksum of that, the record, a checksum of it. Checksums are masked crc32c of
32 bits; all numbers are little-endian (tensorflow/core/lib/io/record_writer.h).
"""

from __future__ import annotations

import os
import posixpath
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bulkinfer.errors import RecordError, UsageError
from bulkinfer.records.sources.archives import (
    ArchiveFile,
    ListedPicture,
    PackedPicture,
    PictureReader,
    read_part,
    refuse_compressed,
)
from bulkinfer.records.sources.match_names import leads_out
from bulkinfer.records.sources.tf_example import example_of, missing_package, parsed, values
from bulkinfer.types import printable

_HEADER, _FOOTER = struct.Struct("<QI"), struct.Struct("<I")
_AROUND = _HEADER.size + _FOOTER.size
_MASK = 0xA282EAD8
_GZIP = b"\x1f\x8b"
_MOST_BYTES = (1 << 31) - 1  # of an Example: protobuf takes no more
_NUMBER = re.compile(rb"[0-9]{8,}")  # what a record without a name of its own is called
_SIDES = ("xmin", "ymin", "xmax", "ymax")


class Frame(NamedTuple):
    """A frame: where it begins, how many bytes it has, and its record; None if the record does not match its checksum."""

    offset: int
    span: int
    record: bytes | None


def checksum(data: bytes) -> int:
    """The masked crc32c of `data`."""
    try:
        import google_crc32c
    except ModuleNotFoundError:
        raise missing_package("google-crc32c") from None
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def frame_of(record: bytes) -> bytes:
    """A record in its frame."""
    length = len(record).to_bytes(8, "little")
    return length + _FOOTER.pack(checksum(length)) + record + _FOOTER.pack(checksum(record))


def frames(file: Any, path: bytes) -> Iterator[Frame]:
    """The frames of an open file in order. Raises UsageError where a length is damaged: what is behind it is not known."""
    size, offset, shown = file.seek(0, os.SEEK_END), 0, printable(path)
    while offset < size:
        file.seek(offset)
        header = file.read(_HEADER.size)
        if header.startswith(_GZIP) and not offset:
            refuse_compressed(path)
        is_length = len(header) == _HEADER.size and _FOOTER.pack(checksum(header[:8])) == header[8:]
        if not is_length and not offset:
            raise UsageError(f"{shown} is no TFRecord file, or is damaged: its first length does not match its checksum")
        span = _HEADER.unpack(header)[0] + _AROUND if is_length else 0
        if offset + span > size or len(header) < _HEADER.size:
            raise UsageError(f"{shown} is cut off in the record at byte {offset}, and has {size} bytes: fetch it again")
        if not is_length:
            raise UsageError(f"{shown} is damaged at byte {offset}: a length does not match its checksum: fetch it again")
        yield Frame(offset, span, _record(header + file.read(span - len(header))) if span <= _MOST_BYTES else None)
        offset += span


def _record(frame: bytes) -> bytes | None:
    """The record in the bytes of a frame; None if a checksum or the length is wrong."""
    if len(frame) < _AROUND or _HEADER.unpack_from(frame) != (len(frame) - _AROUND, checksum(frame[:8])):
        return None
    record = frame[_HEADER.size : -_FOOTER.size]
    return record if _FOOTER.pack(checksum(record)) == frame[-_FOOTER.size :] else None


def reader(file: ArchiveFile, _columns: tuple[str, ...] = ()) -> PictureReader:
    """Reads the pictures of records; see archives.Kind."""

    def read(offset: int, span: int, most_bytes: int) -> bytes:
        data = read_part(file, offset, span, most_bytes)
        try:
            return picture_in(data)
        except RecordError as error:
            raise RecordError(error.stage, f"{error.message}, at byte {offset} of {file.name}") from None

    return read


def picture_in(data: bytes) -> bytes:
    """The picture in the bytes of a frame. Raises RecordError if they hold none."""
    if (record := _record(data)) is None:
        raise RecordError("read", "the record does not match its checksum")
    if (features := parsed(record)) is None:
        raise RecordError("read", "the record is no tf.train.Example")
    for picture in values(features, "image/encoded", "bytes_list"):
        return bytes(picture)
    raise RecordError("read", "the record has no image/encoded")


def write(file: Any, pictures: Iterable[PackedPicture]) -> None:
    """Write pictures as records; labels begin at 1, as in ImageNet's."""
    for picture in pictures:
        features: dict[str, bytes | int] = {"image/encoded": picture.data, "image/filename": picture.key}
        if picture.label is not None:
            features |= {"image/class/label": picture.label + 1, "image/class/text": picture.class_name.encode()}
        file.write(frame_of(example_of(features)))


def list_pictures(file: Any, path: bytes, _left_out: Counter[str], _columns: tuple[str, ...] = ()) -> Iterator[ListedPicture]:
    """The records of an open file in order; see archives.Kind. A record without a usable name is called by its number.

    One that is damaged or holds no picture is listed without a size: reading it says what is wrong.
    """
    seen = set[bytes]()
    for number, frame in enumerate(frames(file, path)):
        own = b"%08d" % number
        features = None if frame.record is None else parsed(frame.record)
        if features is None:
            yield ListedPicture(own, None, frame.offset, frame.span)
            continue
        name = _name(features)
        if not name or name in seen:
            name = own
        seen.add(name)
        picture = next(iter(values(features, "image/encoded", "bytes_list")), None)
        yield ListedPicture(
            name,
            None if picture is None else len(picture),
            frame.offset,
            frame.span,
            next(iter(values(features, "image/class/label", "int64_list")), None),
            _class_name(features),
            _boxes(features),
        )


def _name(features: Any) -> bytes:
    """The name of the picture's file, as a path below its archive; empty if it has none that is one."""
    name = posixpath.normpath(next(iter(values(features, "image/filename", "bytes_list")), b"") or b".")
    return b"" if leads_out(name) or _NUMBER.fullmatch(name) else name


def _class_name(features: Any) -> str:
    """The WordNet id of the class, else its name."""
    for feature in ("image/class/synset", "image/class/text"):
        for value in values(features, feature, "bytes_list"):
            if value:
                return bytes(value).decode("utf-8", "backslashreplace")
    return ""


def _boxes(features: Any) -> tuple[float, ...]:
    """Left, top, right, bottom of each object, as shares of width and height."""
    sides = [list(values(features, f"image/object/bbox/{side}", "float_list")) for side in _SIDES]
    return tuple(value for box in zip(*sides, strict=False) for value in box)
