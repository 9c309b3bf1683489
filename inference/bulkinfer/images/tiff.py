"""The directories of a TIFF, read from its bytes; and which TIFFs are camera raw, of which decoders see only a thumbnail."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from bulkinfer.errors import RecordError

_SHORT, _LONG, _LONG8, _OFFSET, _OFFSET8 = 3, 4, 16, 13, 18  # types of whole numbers
_LETTERS = {_SHORT: "H", _LONG: "L", _LONG8: "Q", _OFFSET: "L", _OFFSET8: "Q"}
_MOST_ENTRIES = 65_535
_SUBFILE_TYPE, _OLD_SUBFILE_TYPE, _PHOTOMETRIC, _SUB_DIRECTORIES = 254, 255, 262, 330
_REDUCED, _OLD_REDUCED = 1, 2  # the bit of a subfile type; the old tag's value
_OF_A_SENSOR = (32803, 34892)  # photometrics: one colour for each pixel, and linear values
_MOST_SUB_DIRECTORIES = 64  # cameras write two to five; as many following pages are looked at
_MOST_OTHER_ENTRIES = 512  # looked at in each of these: its photometric stands among the first, since entries are sorted by tag
OUTSIDE = (struct.error, OverflowError)  # what struct raises for a place outside the file, or beyond any file


class Layout(NamedTuple):
    """Formats for struct of the number of entries, of an entry, of an offset; the size of an entry in bytes."""

    num_entries: str
    entry: str
    offset: str
    size: int


class Entry(NamedTuple):
    """One entry of a directory: `values` of type `kind`, in the 4 or 8 bytes of `raw` or where these point to."""

    tag: int
    kind: int
    values: int
    raw: bytes


def first_layout(data: bytes) -> tuple[Layout, int]:
    """How the numbers of a TIFF are written, and where its first directory begins. Raises OUTSIDE if it is too short."""
    order = "<" if data[:2] == b"II" else ">"
    if b"+" in data[2:4]:  # BigTIFF
        layout, at = Layout(f"{order}Q", f"{order}HHQ8s", f"{order}Q", 20), 8
    else:
        layout, at = Layout(f"{order}H", f"{order}HHL4s", f"{order}L", 12), 4
    return layout, struct.unpack_from(layout.offset, data, at)[0]


def entries_at(data: bytes, layout: Layout, at: int) -> Iterator[Entry]:
    """The entries of the directory at `at`. Raises OUTSIDE if it leaves the file."""
    (entries,) = struct.unpack_from(layout.num_entries, data, at)
    at += struct.calcsize(layout.num_entries)
    for number in range(min(entries, _MOST_ENTRIES)):
        yield Entry(*struct.unpack_from(layout.entry, data, at + number * layout.size))


def directories(data: bytes, layout: Layout, at: int) -> Iterator[int]:
    """Where the directories of a chain begin, from the one at `at` on, each once. Raises OUTSIDE if one leaves the file."""
    seen = set[int]()
    while at and at not in seen:
        seen.add(at)
        (entries,) = struct.unpack_from(layout.num_entries, data, at)
        yield at
        (at,) = struct.unpack_from(layout.offset, data, at + struct.calcsize(layout.num_entries) + entries * layout.size)


def whole_number(layout: Layout, entry: Entry) -> int | None:
    """The value of an entry that holds one whole number."""
    if entry.values != 1 or entry.kind not in _LETTERS:
        return None
    value: int = struct.unpack_from(layout.entry[0] + _LETTERS[entry.kind], entry.raw)[0]
    return value


def check_is_no_raw(data: bytes, layout: Layout, at: int) -> None:
    """Raises RecordError if the first directory holds values of a sensor, or a thumbnail beside directories that do.

    Any other first page that is marked as reduced is a picture like others. Raises OUTSIDE if the first directory leaves the
    file.
    """
    first = {entry.tag: entry for entry in entries_at(data, layout, at)}
    if _photometric(layout, first) in _OF_A_SENSOR:
        raise RecordError("decode", "unsupported format camera raw: the values of a sensor")
    if not _is_reduced(layout, first):
        return
    others = dict.fromkeys(chain(_sub_directories(data, layout, first), _following(data, layout, at)))
    if any(_is_of_a_sensor(data, layout, place) for place in others):
        raise RecordError("decode", "camera raw: only a thumbnail")


def _is_of_a_sensor(data: bytes, layout: Layout, at: int) -> bool:
    """True if the directory at `at` holds values of a sensor; False also if it lies outside the file."""
    try:
        entries = {entry.tag: entry for entry in islice(entries_at(data, layout, at), _MOST_OTHER_ENTRIES)}
    except OUTSIDE:
        return False
    return _photometric(layout, entries) in _OF_A_SENSOR


def _is_reduced(layout: Layout, entries: dict[int, Entry]) -> bool:
    new, old = entries.get(_SUBFILE_TYPE), entries.get(_OLD_SUBFILE_TYPE)
    if new is not None and (whole_number(layout, new) or 0) & _REDUCED:
        return True
    return old is not None and whole_number(layout, old) == _OLD_REDUCED


def _sub_directories(data: bytes, layout: Layout, entries: dict[int, Entry]) -> tuple[int, ...]:
    """Where the first sub-directories begin; none if their list lies outside the file."""
    try:
        return _offsets(data, layout, entries[_SUB_DIRECTORIES]) if _SUB_DIRECTORIES in entries else ()
    except OUTSIDE:
        return ()


def _following(data: bytes, layout: Layout, at: int) -> Iterator[int]:
    """Where the pages after the one at `at` begin, up to one that lies outside the file."""
    try:
        yield from islice(directories(data, layout, at), 1, 1 + _MOST_SUB_DIRECTORIES)
    except OUTSIDE:
        return


def _photometric(layout: Layout, entries: dict[int, Entry]) -> int | None:
    entry = entries.get(_PHOTOMETRIC)
    return whole_number(layout, entry) if entry else None


def _offsets(data: bytes, layout: Layout, entry: Entry) -> tuple[int, ...]:
    """The first values of an entry that names places."""
    if entry.values <= 1:
        value = whole_number(layout, entry)
        return () if value is None else (value,)
    letter = _LETTERS.get(entry.kind, "L")
    count = min(entry.values, _MOST_SUB_DIRECTORIES)
    if entry.values * struct.calcsize(layout.entry[0] + letter) <= len(entry.raw):
        return struct.unpack_from(f"{layout.entry[0]}{count}{letter}", entry.raw)
    (at,) = struct.unpack_from(layout.offset, entry.raw)
    return struct.unpack_from(f"{layout.entry[0]}{count}{letter}", data, at)
