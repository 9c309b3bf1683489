"""Pictures are read from files and from parts of archives, and what cannot be read is a RecordError."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from bulkinfer.errors import AbsentObjectError, AbsentStoreError, ObjectError, RecordError, StoreError
from bulkinfer.records import read_place as reading
from bulkinfer.records.read_place import read_place
from bulkinfer.stores.store import Found
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
    assert refusal(Member(archive, -1, 0)) == (
        "read",
        "0.tar does not hold it: it is a link to no picture there, or sparse",
    )
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


OBJECT = Archive(b"s3://bucket/0.tar", "tar", len(CONTENT), 5)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes | Exception]:
    """Objects by their address; an error is raised where one is read."""
    objects: dict[str, bytes | Exception] = {"s3://bucket/0.tar": CONTENT}

    def content(address: str) -> bytes:
        found = objects[address]
        if isinstance(found, Exception):
            raise found
        return found

    def read_object(address: str, most_bytes: int, admit: Callable[[int], object]) -> bytes:
        admit(len(content(address)))
        return content(address)

    def read_range(address: str, offset: int, count: int) -> tuple[bytes, Found]:
        return content(address)[offset : offset + count], Found(len(content(address)), 5, "")

    monkeypatch.setattr(reading, "read_object", read_object)
    monkeypatch.setattr(reading, "read_range", read_range)
    return objects


def test_an_object_and_a_part_of_one(bucket: dict[str, bytes | Exception]) -> None:
    bucket["https://host/a.jpg"] = b"picture"
    admitted: list[int] = []
    assert read_place(b"https://host/a.jpg", LIMIT, admitted.append) == b"picture"
    assert read_place(Member(OBJECT, 300, 700), LIMIT, admitted.append) == CONTENT[300:1000]
    assert admitted == [7, 700]


def test_objects_that_cannot_be_read(bucket: dict[str, bytes | Exception]) -> None:
    bucket |= {"s3://b/none": AbsentObjectError("object not found"), "s3://b/empty": b"", "s3://b/gone": StoreError("gone")}
    bucket["s3://nosuch/x"] = AbsentStoreError("the bucket s3://nosuch does not exist")  # others of a list can be read
    for place, expected in (
        (b"s3://b/none", ("read", "object not found")),
        (b"s3://b/empty", ("decode", "empty file")),
        (b"s3://nosuch/x", ("read", "bucket not found")),
        (b"s3://b/caf\xe9", ("read", "its address is not UTF-8, as keys of objects are")),
    ):
        with pytest.raises(RecordError) as caught:
            read_place(place, LIMIT)
        assert (caught.value.stage, caught.value.message) == expected
    with pytest.raises(StoreError):  # none of its objects can be read
        read_place(b"s3://b/gone", LIMIT)


def test_archives_in_a_store_that_cannot_be_read(bucket: dict[str, bytes | Exception]) -> None:
    assert refusal(Member(OBJECT, len(CONTENT) - 5, 6)) == ("read", "0.tar ends before the picture does")
    assert refusal(Member(OBJECT, 5, 0)) == ("decode", "empty file")
    bucket["s3://bucket/0.tar"] = CONTENT + b"x"
    assert refusal(Member(OBJECT, 0, 5)) == ("read", "0.tar has changed since it was listed")
    bucket["s3://bucket/0.tar"] = AbsentObjectError("object not found")
    assert refusal(Member(OBJECT, 0, 5)) == ("read", "archive not found: 0.tar")
    bucket["s3://bucket/0.tar"] = ObjectError("the store answered 418")
    assert refusal(Member(OBJECT, 0, 5)) == ("read", "0.tar: the store answered 418")
