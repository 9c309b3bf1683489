"""Places as JSON, and their names in messages."""

from __future__ import annotations

import json

import pytest
from bulkinfer.records.place import file_of, place_as_json, place_from_json, place_name
from bulkinfer.types import Archive, Member, Place

ARCHIVE = Archive(b"/data/caf\xe9/0.tar", "tar", 1 << 40, 1_700_000_000_123_456_789)
PLACES: list[Place] = [
    b"/a/b.jpg",
    b"",
    b'caf\xe9\xff/\x00\n".png',
    "ü".encode(),
    Member(ARCHIVE, 1 << 39, 77),
    Member(ARCHIVE, -1, 0),
]


@pytest.mark.parametrize("place", PLACES)
def test_a_place_comes_back_from_json(place: Place) -> None:
    assert place_from_json(json.loads(json.dumps(place_as_json(place)))) == place


def test_the_file_and_the_name_of_a_place() -> None:
    assert [file_of(place) for place in (PLACES[0], PLACES[4])] == [b"/a/b.jpg", ARCHIVE.path]
    assert place_name(b"/a/b.jpg") == "/a/b.jpg"
    assert place_name(Member(ARCHIVE, 512, 77)) == "the picture at byte 512 of /data/caf\\xe9/0.tar"
