"""archive_index.py and index_file.py: an index is made once, kept beside the archives, and renewed for what has changed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.archives import index_file
from bulkinfer.records.archives.archive_index import INDEX_FILE, ArchiveIndex, open_index
from bulkinfer.records.manifest_rows import raw_key_column

from tests.archives import write_tar, write_tfrecord


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache; not that of whoever runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The archives that are read from now on."""
    names: list[str] = []
    plain = index_file._list
    monkeypatch.setattr(
        index_file, "_list", lambda root, archive: (names.append(archive.path.decode()), plain(root, archive))[1]
    )
    return names


def write(folder: Path, count: int = 3, size: int = 2) -> Path:
    """Archives s0.tar, s1.tar and so on, with pictures 0.jpg, 1.jpg of other bytes each."""
    for number in range(count):
        write_tar(folder / f"s{number}.tar", {f"{n}.jpg": b"%d of %d" % (n, number) for n in range(size)}, {"0.jpg": number})
    return folder


def names(*numbers: int) -> list[bytes]:
    return [b"s%d.tar" % number for number in numbers]


def listed(index: ArchiveIndex) -> list[tuple[bytes, int | None, bytes]]:
    """Key, label and content of each picture, as the index says where it lies."""
    found = []
    for block in index.lines.blocks(index_file.INDEX_SCHEMA.names, 0, len(index.lines)):
        for key, row in zip(raw_key_column(block).to_pylist(), block.to_pylist(), strict=True):
            data = Path(os.fsdecode(index.root + b"/" + index.archives[row["archive"]].path)).read_bytes()
            found.append((key, row["label"], data[row["offset"] : row["offset"] + row["span"]]))
    return found


def pictures(*numbers: int, size: int = 2) -> list[tuple[bytes, int | None, bytes]]:
    return [(b"s%d.tar/%d.jpg" % (number, n), None if n else number, b"%d of %d" % (n, number))
            for number in numbers for n in range(size)]  # fmt: skip


def test_it_is_made_once(tmp_path: Path, read: list[str]) -> None:
    root = os.fsencode(write(tmp_path / "data"))
    for _ in range(2):
        assert listed(open_index(root, names(2, 0, 1))) == pictures(0, 1, 2)
    assert sorted(read) == ["s0.tar", "s1.tar", "s2.tar"]
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"s0.tar", "s1.tar", "s2.tar", INDEX_FILE}


def test_a_part_of_it_serves_a_part_of_the_archives(tmp_path: Path, read: list[str]) -> None:
    root = os.fsencode(write(tmp_path / "data", 5))
    open_index(root, names(0, 1, 2, 3, 4))
    read.clear()
    found = open_index(root, names(4, 0, 1))
    assert (listed(found), [archive.path for archive in found.archives]) == (pictures(0, 1, 4), names(0, 1, 4))
    for start in range(7):
        for end in range(start, 7):
            keys = [key for block in found.lines.blocks(["key"], start, end) for key in block["key"].to_pylist()]
            assert keys == [key.decode() for key, _, _ in pictures(0, 1, 4)[start:end]], (start, end)
    assert read == []


def test_only_what_has_changed_is_read_again(tmp_path: Path, read: list[str]) -> None:
    root = os.fsencode(write(tmp_path / "data"))
    open_index(root, names(0, 2))
    assert listed(open_index(root, names(0, 1, 2))) == pictures(0, 1, 2)
    assert read == ["s0.tar", "s2.tar", "s1.tar"]
    write_tar(tmp_path / "data" / "s1.tar", {"new.jpg": b"new"})
    (tmp_path / "data" / "s2.tar").unlink()
    read.clear()
    assert listed(open_index(root, names(0, 1))) == [*pictures(0), (b"s1.tar/new.jpg", None, b"new")]
    assert read == ["s1.tar"]
    os.utime(tmp_path / "data" / "s0.tar", ns=(1, 1))
    open_index(root, names(0))
    assert read == ["s1.tar", "s0.tar"], "a file of another time may be another file"


def test_folders_that_cannot_be_written_to(
    tmp_path: Path, cache: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = os.fsencode(write(tmp_path / "data"))
    plain = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "data" and plain(path, mode))
    for _ in range(2):
        assert listed(open_index(root, names(0))) == pictures(0)
    assert read == ["s0.tar"]
    assert not (tmp_path / "data" / INDEX_FILE).exists()
    assert [path.parent for path in cache.rglob("*.parquet")] == [cache / "bulkinfer" / "archives"]
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match=r"can be kept neither there nor in .*XDG_CACHE_HOME"):
        open_index(root, names(1))


def test_a_damaged_index_is_made_again(tmp_path: Path, read: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """Every byte of it: what is read is right, or a message."""
    root = os.fsencode(write(tmp_path / "data", 2))
    open_index(root, names(0, 1))
    path = tmp_path / "data" / INDEX_FILE
    whole = path.read_bytes()
    for at in (0, len(whole) // 3, len(whole) // 2, len(whole) - 200, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            assert listed(open_index(root, names(0, 1))) == pictures(0, 1)
        except Exception as error:
            assert "is damaged" in str(error), error  # noqa: PT017 -- either of the two may be
    path.write_bytes(b"no index")
    caplog.clear()
    assert listed(open_index(root, names(0, 1))) == pictures(0, 1)
    assert [record.message for record in caplog.records if "made again" in record.message] == [
        f"warning: {path} is damaged, or of another version of bulkinfer: it is made again"
    ]


def test_processes_that_come_at_once_make_one(tmp_path: Path, read: list[str]) -> None:
    root, found = os.fsencode(write(tmp_path / "data", 3)), list[int]()
    threads = [threading.Thread(target=lambda: found.append(len(open_index(root, names(0, 1, 2)).lines))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [6] * 4
    assert len(read) == 3


def test_a_archive_that_cannot_be_read_names_itself_and_leaves_nothing(tmp_path: Path) -> None:
    root = os.fsencode(write(tmp_path / "data"))
    (tmp_path / "data" / "s1.tar").write_bytes(b"no tar")
    with pytest.raises(UsageError, match=r"s1\.tar cannot be read as a tar file"):
        open_index(root, names(0, 1, 2))
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["s0.tar", "s1.tar", "s2.tar"]


def test_a_archive_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = os.fsencode(write(tmp_path / "data", 1))
    plain, path = index_file.kind, tmp_path / "data" / "s0.tar"
    monkeypatch.setattr(index_file, "kind", lambda name: (os.utime(path, ns=(1, 1)), plain(name))[1])
    with pytest.raises(UsageError, match=r"s0\.tar changed while it was read: run the command again"):
        open_index(root, names(0))


def test_a_label_that_no_row_can_hold(tmp_path: Path) -> None:
    write_tar(tmp_path / "s0.tar", {"a.jpg": b"x"}, {"a.jpg": 1 << 31})
    with pytest.raises(UsageError, match=r"s0\.tar: a\.jpg has label 2147483648: labels go from 0 to 2147483647"):
        open_index(os.fsencode(tmp_path), names(0))
    write_tfrecord(tmp_path / "x-00000-of-00001", {"a.jpg": b"x"}, {"a.jpg": -2})
    with pytest.raises(UsageError, match=r"x-00000-of-00001: a\.jpg has label -2"):
        open_index(os.fsencode(tmp_path), [b"x-00000-of-00001"])


def test_small_archives_share_row_groups(tmp_path: Path) -> None:
    root = os.fsencode(write(tmp_path / "data", 40, 1))
    open_index(root, names(*range(40)))
    assert pq.read_metadata(tmp_path / "data" / INDEX_FILE).num_row_groups == 1


def test_an_index_that_is_replaced_is_still_read(tmp_path: Path) -> None:
    """As by a command on another archive of the folder, while this one plans a job."""
    root = os.fsencode(write(tmp_path / "data"))
    before = set(os.listdir("/proc/self/fd"))
    first = open_index(root, names(0))
    assert listed(open_index(root, names(1, 2))) == pictures(1, 2)
    assert listed(first) == pictures(0)
    del first
    assert set(os.listdir("/proc/self/fd")) == before
