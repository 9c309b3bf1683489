"""file_in_parts.py: it reads like the file whose parts it is given."""

from __future__ import annotations

import io
import os
from random import Random

from bulkinfer.files.file_in_parts import FileInParts

DATA = bytes(Random(1).randrange(256) for _ in range(1000))


def test_it_reads_like_a_file() -> None:
    """Any walk of positions and lengths, also over the end; nothing is asked for beyond it."""
    asked = list[tuple[int, int]]()

    def read_part(offset: int, count: int) -> bytes:
        asked.append((offset, count))
        return DATA[offset : offset + count]

    found, expected = FileInParts(len(DATA), read_part), io.BytesIO(DATA)
    assert found.readable()
    assert found.seekable()
    random = Random(2)
    for _ in range(300):
        count = random.randrange(1200)
        whence = random.choice([os.SEEK_SET, os.SEEK_CUR, os.SEEK_END])
        base = {os.SEEK_SET: 0, os.SEEK_CUR: expected.tell(), os.SEEK_END: len(DATA)}[whence]
        offset = random.randrange(1100) - base
        assert found.seek(offset, whence) == expected.seek(offset, whence) == found.tell()
        assert found.read(count) == expected.read(count)
    assert asked
    assert all(count > 0 and offset + count <= len(DATA) for offset, count in asked)


def test_a_part_that_comes_short_is_asked_for_further() -> None:
    file = io.BufferedReader(FileInParts(len(DATA), lambda offset, count: DATA[offset : offset + min(count, 7)]))
    assert file.read() == DATA
