"""tar_gz.py: pictures of a compressed tar file are those of the plain one, found without unpacking what lies before."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from bulkinfer.errors import RecordError, UsageError
from bulkinfer.records.open_place import size_and_time
from bulkinfer.records.read_place import forget_archives, read_place
from bulkinfer.records.sources import tar, tar_gz
from bulkinfer.records.sources.archives import ListedPicture
from bulkinfer.types import Archive, Member

from tests.archives import write_tar

RANDOM = np.random.default_rng(0)
FILES = {f"{number}.jpg": RANDOM.bytes(int(RANDOM.integers(1, 90_000))) for number in range(120)}
LABELS = {name: number % 3 for number, name in enumerate(FILES)}


@pytest.fixture(autouse=True)
def _forgets_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget_archives()


def write(path: Path, *, members: int = 1) -> Path:
    """A compressed tar file, in one gzip member or several, as pigz and cat make them."""
    data = write_tar(path.with_name("plain.tar"), FILES, LABELS).read_bytes()
    size = -(-len(data) // members)
    path.write_bytes(b"".join(gzip.compress(data[start : start + size], 6) for start in range(0, len(data), size)))
    return path


def listed(path: Path) -> list[ListedPicture]:
    with path.open("rb") as file:
        return list(tar_gz.list_pictures(file, os.fsencode(path), Counter()))


def archive_at(path: Path) -> Archive:
    return Archive(os.fsencode(path), "tar.gz", *size_and_time(os.fsencode(path)))


def contents(path: Path, found: list[ListedPicture]) -> dict[str, bytes]:
    archive = archive_at(path)
    return {each.name.decode(): read_place(Member(archive, each.offset, each.span), 1 << 20) for each in found}


@pytest.mark.parametrize("members", [1, 7])
def test_pictures_and_labels_are_those_of_the_plain_file(tmp_path: Path, members: int) -> None:
    path = write(tmp_path / "x.tar.gz", members=members)
    found = listed(path)
    with (tmp_path / "plain.tar").open("rb") as file:
        assert found == list(tar.list_pictures(file, b"plain.tar", Counter()))
    assert contents(path, found[::-1]) == FILES


def test_a_picture_is_read_without_what_lies_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.tar.gz")
    last = listed(path)[-1]
    offsets = list[int]()
    plain = os.pread

    def noted(file: int, count: int, offset: int) -> bytes:
        if count:
            offsets.append(offset)
        return plain(file, count, offset)

    monkeypatch.setattr(os, "pread", noted)
    assert contents(path, [last]) == {last.name.decode(): FILES[last.name.decode()]}
    assert min(offsets) > path.stat().st_size / 2


def test_threads_read_one_archive(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar.gz")
    found = listed(path)
    with ThreadPoolExecutor(8) as pool:
        for names in pool.map(lambda start: contents(path, found[start::8]), range(8)):
            assert names == {name: FILES[name] for name in names}


@pytest.mark.parametrize("damage", ["gone", "flipped", "of another file"])
def test_points_that_are_gone_or_damaged_are_made_again(tmp_path: Path, damage: str) -> None:
    path = write(tmp_path / "x.tar.gz")
    found = listed(path)
    (points,) = tmp_path.glob(".bulkinfer-index-*.points")
    if damage == "gone":
        points.unlink()
    elif damage == "flipped":
        data = bytearray(points.read_bytes())
        data[len(data) // 2] ^= 1
        points.write_bytes(data)
    else:
        os.utime(path, ns=(1, 1))
    assert contents(path, found) == FILES
    forget_archives()
    whole = points.read_bytes()
    assert contents(path, found) == FILES
    assert points.read_bytes() == whole


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.tar.gz")
    monkeypatch.setattr(os, "access", lambda place, _mode: Path(place) != tmp_path)
    assert contents(path, listed(path)) == FILES
    assert len(list((tmp_path / "cache" / "bulkinfer" / "archives").iterdir())) == 1


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.999999])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, share: float) -> None:
    path = write(tmp_path / "x.tar.gz")
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(UsageError, match=r"^\S+x\.tar\.gz is .*cut off.*: fetch it again$"):
        listed(path)


@pytest.mark.parametrize("content", [bytes(1), b"\x1f", b"\x1f\x8b", bytes(40)])
def test_a_few_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"^\S+x\.tar\.gz is no gzip file, is cut off or damaged \(.*\): fetch it again$"):
        listed(path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """Its checksum is compared when it is unpacked for the first time."""
    path = write(tmp_path / "x.tar.gz")
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"is no gzip file, is cut off or damaged"):
        listed(path)


def test_a_file_that_has_changed_is_an_error_of_each_record(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar.gz")
    archive, picture = archive_at(path), listed(path)[0]
    member = Member(archive, picture.offset, picture.span)
    read_place(member, 1 << 20)
    os.utime(path, ns=(1, 1))
    with pytest.raises(RecordError, match="has changed since it was listed"):
        read_place(member, 1 << 20)
    forget_archives()
    with pytest.raises(RecordError, match="has changed since it was listed"):
        read_place(member, 1 << 20)


def test_an_archive_that_is_no_tar_file(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(b"no tar file" * 1000))
    with pytest.raises(UsageError, match=r"x\.tar\.gz cannot be read as a tar file"):
        listed(path)
