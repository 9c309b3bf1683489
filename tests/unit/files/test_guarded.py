"""guarded.py: regular files only, opened without waiting, and no larger than a bound."""

from __future__ import annotations

import os
import socket
import tracemalloc
from pathlib import Path

import pytest
from bulkinfer.errors import DamagedError, UsageError
from bulkinfer.files.guarded import open_regular, read_bytes, read_text


def test_a_file_and_a_link_to_it_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\r\nb\rc\n")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"a\r\nb\rc\n"
    assert read_bytes(tmp_path / "file", 7) == b"a\r\nb\rc\n"
    assert read_text(tmp_path / "link", 7) == "a\nb\nc\n"


def test_other_kinds_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, kind in {
            "pipe": "a named pipe", "folder": "a folder", "zero": "a device", "socket": "a socket or a device"
        }.items():  # fmt: skip
            with pytest.raises(DamagedError, match=f"{name} is {kind}, not a file$"):
                open_regular(tmp_path / name)
            with pytest.raises(UsageError, match=f"{name} is {kind}, not a file$"):
                read_bytes(tmp_path / name, 10, error=UsageError)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "nothing")


def test_a_file_beyond_the_bound_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DamagedError, match=r"sparse has 1,099,511,627,776 bytes or more; such a file has at most 1,000$"):
        read_bytes(tmp_path / "sparse", 1000)
    with pytest.raises(UsageError, match=r"has 11 bytes or more; such a file has at most 10$"):
        read_bytes("/proc/self/stat", 10, error=UsageError)  # its size is said to be 0


def test_memory_for_a_file_is_taken_once(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(32 << 20))
    tracemalloc.start()
    try:
        assert len(read_bytes(tmp_path / "large", 1 << 40)) == 32 << 20
        assert tracemalloc.get_traced_memory()[1] < 36 << 20
    finally:
        tracemalloc.stop()


def test_a_file_without_a_size_and_one_that_grew_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_bytes("/proc/self/cmdline", 1 << 20) == Path("/proc/self/cmdline").read_bytes()
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_bytes(tmp_path / "file", 10) == b"0123456789"
    status = list(os.stat(tmp_path / "file"))
    status[6] = 4  # what it had before
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result(status))
    assert read_bytes(tmp_path / "file", 10) == b"0123456789"
    with pytest.raises(DamagedError, match="has 9 bytes or more; such a file has at most 8"):
        read_bytes(tmp_path / "file", 8)
