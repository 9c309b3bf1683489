"""Pictures are read from files and from parts of archives, and what cannot be read is a RecordError."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from bulkinfer.errors import RecordError
from bulkinfer.records import read_place as reading
from bulkinfer.records.read_place import read_place
from bulkinfer.types import Archive, Member

CONTENT = bytes(range(256)) * 8
LIMIT = 1000


def archive_of(path: Path) -> Archive:
    """The file as it is now."""
    found = path.stat()
    return Archive(os.fsencode(path), "tar", found.st_size, found.st_mtime_ns)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    (tmp_path / "0.tar").write_bytes(CONTENT)
    return archive_of(tmp_path / "0.tar")


def refusal(member: Member, limit: int = LIMIT) -> tuple[str, str]:
    """Stage and message."""
    with pytest.raises(RecordError) as caught:
        read_place(member, limit)
    return caught.value.stage, caught.value.message


def test_a_file_and_a_part_of_a_archive(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"picture")
    assert read_place(os.fsencode(tmp_path / "a.jpg"), LIMIT) == b"picture"
    assert read_place(Member(archive, 300, 700), LIMIT) == CONTENT[300:1000]
    assert read_place(Member(archive, len(CONTENT) - 1, 1), LIMIT) == CONTENT[-1:]


def test_what_cannot_be_read(archive: Archive, tmp_path: Path) -> None:
    assert refusal(Member(archive, -1, 0)) == ("read", "0.tar names it and does not hold it")
    assert refusal(Member(archive, 0, 701), 700) == ("read", "too large: 701 bytes, limit 700")
    assert refusal(Member(archive, 5, 0)) == ("decode", "empty file")
    assert refusal(Member(archive, len(CONTENT) - 5, 6)) == ("read", "0.tar ends before the picture does")
    absent = Archive(os.fsencode(tmp_path / "1.tar"), "tar", 1, 1)
    assert refusal(Member(absent, 0, 1)) == ("read", "archive not found: 1.tar")
    folder = tmp_path / "2.tar"
    folder.mkdir()
    assert refusal(Member(archive_of(folder), 0, 1)) == ("read", "not a regular file")


def cut(path: Path) -> None:
    os.truncate(path, 100)


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def replace(path: Path) -> None:
    path.with_name("new").write_bytes(CONTENT[::-1])
    os.utime(path.with_name("new"), ns=(5, 5))
    path.with_name("new").rename(path)


@pytest.mark.parametrize("change", [cut, touch])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_archive_that_has_changed_is_not_read(archive: Archive, change: Callable[[Path], None], is_open: bool) -> None:
    """Its pictures may lie elsewhere now: other bytes would be decoded under their names."""
    if is_open:
        read_place(Member(archive, 0, 10), LIMIT)
    change(Path(os.fsdecode(archive.path)))
    assert refusal(Member(archive, 0, 10)) == ("read", "0.tar has changed since it was listed")


def test_a_archive_that_was_replaced_is_read_once_it_is_listed_again(archive: Archive) -> None:
    path = Path(os.fsdecode(archive.path))
    read_place(Member(archive, 0, 10), LIMIT)
    replace(path)
    assert read_place(Member(archive_of(path), 0, 10), LIMIT) == CONTENT[::-1][:10]


def test_threads_read_more_archives_than_stay_open(tmp_path: Path) -> None:
    for number in range(3 * reading._MOST_OPEN):
        (tmp_path / f"{number}.tar").write_bytes(b"%03d" % number * 100)
    archives = [archive_of(tmp_path / f"{number}.tar") for number in range(3 * reading._MOST_OPEN)]
    before = set(os.listdir("/proc/self/fd"))
    wrong: list[int] = []

    def read_all(start: int) -> None:
        for number in range(len(archives)):
            at = (start + number) % len(archives)
            if read_place(Member(archives[at], 3, 30), LIMIT) != b"%03d" % at * 10:
                wrong.append(at)

    threads = [threading.Thread(target=read_all, args=(start,)) for start in range(0, len(archives), 24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(set(os.listdir("/proc/self/fd")) - before) <= reading._MOST_OPEN
