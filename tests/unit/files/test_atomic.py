"""atomic.py: files are complete or absent, files of dead processes are removed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bulkinfer.files import atomic as paths
from bulkinfer.files.atomic import (
    canonical_json,
    file_sha256,
    publishing,
    remove_abandoned,
    remove_stale_temporaries,
    safe_name,
    temporary_owner,
    temporary_path,
    write_owner_file,
)
from bulkinfer.files.json_file import write_json
from bulkinfer.host import process_identity as processes
from bulkinfer.host.process_identity import Table, process_start_ticks, this_table

from tests.temporaries import temporary_name


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A living process that is not this one."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


def test_publishing_is_seen_whole_or_not_at_all(tmp_path: Path) -> None:
    final = tmp_path / "file"
    final.write_text("old")
    with publishing(final) as temporary:
        temporary.write_text("new, half")
        assert final.read_text() == "old"
        assert temporary.parent == final.parent, "a rename within one file system"
        temporary.write_text("new")
    assert final.read_text() == "new"
    assert list(tmp_path.iterdir()) == [final]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    final = tmp_path / "file"
    final.write_text("old")

    def publish(target: Path, *, written: bool) -> None:
        with publishing(target) as temporary:
            if written:
                temporary.write_text("half")
            raise error

    for target, written in ((final, True), (tmp_path / "never", False)):
        with pytest.raises(error):
            publish(target, written=written)
    assert final.read_text() == "old"
    assert list(tmp_path.iterdir()) == [final]


def test_the_bytes_are_on_disk_before_the_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noting_fsync(descriptor: int) -> None:
        done.append("fsync " + ("directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file"))
        fsync(descriptor)

    def noting_rename(source: Path, target: Path) -> None:
        done.append("rename")
        rename(source, target)

    monkeypatch.setattr(paths.os, "fsync", noting_fsync)
    monkeypatch.setattr(paths.os, "rename", noting_rename)
    write_json(tmp_path / "file", {})
    assert done == ["fsync file", "rename", "fsync directory"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(paths.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(tmp_path / "file", {"a": 1})
    assert list(tmp_path.iterdir()) == []


ELSEWHERE = [  # tables of processes that may be others' although much is the same
    this_table()._replace(host="another host"),
    this_table()._replace(boot_id="of a host of the same name, or of before its restart"),
    this_table()._replace(pids="pid:[1]"),
    this_table()._replace(pids=None),
]


def test_stale_temporaries_go_and_living_ones_stay(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    mine = temporary_path(tmp_path / "file")
    assert temporary_path(tmp_path / "file") != mine
    ticks = process_start_ticks(child.pid) or 0
    living = tmp_path / temporary_name("0000", child.pid, ticks)
    reused = tmp_path / temporary_name("0000", child.pid, ticks - 1)
    dead, link, folder = (tmp_path / temporary_name(random) for random in ("0000", "11aa", "2222"))
    names = ["part-00000-0000000000-0000000001.parquet", "_job.json", "x_tmp-1-2-3", "_tmp-whatever", "_tmp-1-2", "_tmp-",
             "_tmp-4194305-99-0000", *(temporary_name(random) for random in ("photo.jpg", "0000.bak"))]  # fmt: skip
    elsewhere = [tmp_path / temporary_name("0000", table=table) for table in ELSEWHERE]
    others = [*(tmp_path / name for name in names), *elsewhere]
    folder.mkdir()
    link.symlink_to(folder)
    for path in (mine, living, reused, dead, *others):
        path.touch()
    assert set(remove_stale_temporaries(tmp_path)) == {reused.name, dead.name, link.name}
    assert set(tmp_path.iterdir()) == {mine, living, folder, *others}
    assert remove_stale_temporaries(tmp_path) == []


def test_where_the_system_does_not_tell_its_table_nothing_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_BOOT_ID", tmp_path / "none")
    (tmp_path / temporary_name("0000")).touch()
    assert remove_stale_temporaries(tmp_path) == []


def test_a_temporary_tells_its_owner(tmp_path: Path) -> None:
    mine = temporary_owner(temporary_path(tmp_path / "file").name)
    assert mine == (this_table().digest, os.getpid(), process_start_ticks(os.getpid()))
    table = this_table().digest
    for name in (
        "file",
        "_tmp-1-2",
        "_tmp-1-2-00aa",
        f"_tmp-{table}-1-2",
        f"_tmp-{table}-1-2-xyz",
        f"_tmp-{table}-1-None-00aa",
        f"x_tmp-{table}-1-2-00aa",
        f"_tmp-{table}-1-2-00aa.txt",
        f"_tmp-{table[1:]}-1-2-00aa",
        f"_tmp-{table}-\u0661-2-00aa",
    ):
        assert temporary_owner(name) is None, name


def test_temporaries_of_a_killed_writer_are_stale(tmp_path: Path) -> None:
    code = "import os, sys, pathlib\nfrom bulkinfer.files.atomic import publishing\n"
    code += "with publishing(pathlib.Path(sys.argv[1])) as t:\n    t.write_text('half')\n    os.kill(os.getpid(), 9)\n"
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], check=False)
    assert ended.returncode == -9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("_tmp-")
    assert remove_stale_temporaries(tmp_path) == [left.name]


def left_behind(folder: Path, owner: str, *, table: Table | None = None, files: tuple[str, ...] = ("x",)) -> Path:
    """A folder with files, and the file of a process of that table; `owner` is its name, if it is not this one."""
    folder.mkdir()
    for name in files:
        (folder / name).touch()
    told = write_owner_file(folder)
    if owner:
        told = told.rename(folder / owner)
    if table is not None:
        told.write_text(canonical_json(table))
    return folder


def test_folders_of_killed_processes_go(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    """Only those that certainly have no owner any more."""
    gone = temporary_name("00aa")
    dead = left_behind(tmp_path / "a-dead", gone)
    staying = [
        left_behind(tmp_path / "a-mine", ""),
        left_behind(tmp_path / "a-living", temporary_name("00aa", child.pid, process_start_ticks(child.pid) or 0)),
        left_behind(tmp_path / "a-done", gone, files=("done.json",)),
        left_behind(tmp_path / "other", gone),
    ]
    for number, table in enumerate(ELSEWHERE):
        staying.append(left_behind(tmp_path / f"a-{number}", temporary_name("00aa", table=table), table=table))
        staying.append(left_behind(tmp_path / f"a-{number}-by-content", gone, table=table))
    (tmp_path / "a-unmarked").mkdir()
    (tmp_path / "a-unmarked" / gone).touch()  # a file half written, by whomever
    (tmp_path / "a-file").touch()
    target = left_behind(tmp_path / "target", gone)
    (tmp_path / "a-link").symlink_to(target)
    assert remove_abandoned(tmp_path, "a-*", keep_with="done.json") == [dead.name]
    assert not dead.exists()
    assert all(folder.is_dir() for folder in (*staying, target, tmp_path / "a-unmarked"))
    assert remove_abandoned(tmp_path / "nowhere", "a-*") == []


def test_folders_of_other_users_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind(tmp_path / "a", temporary_name("00aa"))
    uid = os.geteuid()
    monkeypatch.setattr(paths.os, "geteuid", lambda: uid + 1)
    assert remove_abandoned(tmp_path, "a") == []


def test_hash_of_a_file(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "file").write_bytes(data)
    assert file_sha256(tmp_path / "file") == file_sha256(str(tmp_path / "file")) == hashlib.sha256(data).hexdigest()


def test_canonical_json_has_one_spelling() -> None:
    assert (
        canonical_json({"b": [1, (2,)], "a": "é"}) == canonical_json({"a": "é", "b": [1, [2]]}) == '{"a":"\\u00e9","b":[1,[2]]}'
    )


def test_safe_name() -> None:
    assert safe_name("resnext101_32x4d") == "resnext101_32x4d"
    assert safe_name("my net/é:v1.2-b") == "my_net___v1.2-b"
