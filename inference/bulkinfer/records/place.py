"""Places of pictures: their file, their name for messages, and their form in JSON."""

from __future__ import annotations

from typing import TypeAlias

from bulkinfer.files.addresses import address_of
from bulkinfer.types import Archive, Member, Place, printable

PlaceAsJson: TypeAlias = "str | list[str | int]"

_ENCODING = ("utf-8", "surrogateescape")  # of paths, which may be any bytes
ADDRESSES = b"addresses:"  # in place of a folder, where keys are whole addresses


def is_stored(root: bytes) -> bool:
    """Whether pictures that are named relative to `root` lie in stores."""
    return root == ADDRESSES or bool(address_of(root))


def file_of(place: Place) -> bytes:
    """The path of the file in which a picture lies."""
    return place if isinstance(place, bytes) else place.archive.path


def place_name(place: Place) -> str:
    """A place for messages."""
    where = printable(file_of(place))
    return where if isinstance(place, bytes) else f"the picture at byte {place.offset} of {where}"


def archive_as_json(archive: Archive) -> list[str | int]:
    """An archive as a value of JSON."""
    return [archive.path.decode(*_ENCODING), archive.kind, archive.size_bytes, archive.mtime_ns, *archive.columns]


def archive_from_json(value: list[str | int]) -> Archive:
    """The inverse of archive_as_json."""
    path, kind, size_bytes, mtime_ns, *columns = value
    return Archive(str(path).encode(*_ENCODING), str(kind), int(size_bytes), int(mtime_ns), tuple(map(str, columns)))


def place_as_json(place: Place) -> PlaceAsJson:
    """A place as a value of JSON."""
    if isinstance(place, bytes):
        return place.decode(*_ENCODING)
    return [*archive_as_json(place.archive), place.offset, place.span]


def place_from_json(value: PlaceAsJson) -> Place:
    """The inverse of place_as_json."""
    if isinstance(value, str):
        return value.encode(*_ENCODING)
    *archive, offset, span = value
    return Member(archive_from_json(archive), int(offset), int(span))
