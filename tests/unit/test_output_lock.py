"""output_lock.py: one launcher at a time on an output directory, whatever happened to the one before."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from inference import output_lock as output_lock_module
from inference.errors import LockedError
from inference.output_lock import LOCK_FILE, output_lock
from inference.paths import process_start_ticks

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
DEAD_PID = 4194305  # beyond the largest process number

# Takes the lock if it can, says so, and holds it until its stdin closes.
CONTENDER = """
import sys, time, pathlib
from inference.errors import LockedError
from inference.output_lock import output_lock
print("ready", flush=True)
sys.stdin.readline()
try:
    with output_lock(pathlib.Path(sys.argv[1]), flag='--output'):
        print("won", flush=True)
        sys.stdin.read()
except LockedError as error:
    print("lost", error, flush=True)
"""


def contender(output: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", CONTENDER, str(output)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert say_and_hear(process) == "ready"
    return process


def say_and_hear(process: subprocess.Popen[str], line: str = "") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline().strip()


def write_lock(output: Path, **changes: Any) -> None:
    holder = {"format": 1, "host": socket.gethostname(), "pid": DEAD_PID, "start_ticks": 7, "started": "2026-01-02T03:04:05Z"}
    holder["boot_id"] = BOOT_ID.read_text().strip()
    (output / LOCK_FILE).write_text(json.dumps(holder | changes))


def test_the_lock_names_its_holder_and_is_gone_afterwards(tmp_path: Path) -> None:
    with output_lock(tmp_path, flag="--output"):
        holder = json.loads((tmp_path / LOCK_FILE).read_text())
        assert list(tmp_path.iterdir()) == [tmp_path / LOCK_FILE]
    assert (holder["format"], holder["host"], holder["pid"]) == (1, socket.gethostname(), os.getpid())
    assert holder["start_ticks"] == process_start_ticks(os.getpid())
    assert list(tmp_path.iterdir()) == []


def test_the_lock_goes_after_an_exception_too(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), output_lock(tmp_path, flag="--output"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_second_holder_is_refused(tmp_path: Path) -> None:
    process = contender(tmp_path)
    assert say_and_hear(process, "\n") == "won"
    started = json.loads((tmp_path / LOCK_FILE).read_text())["started"]
    told = f"{tmp_path} is in use by a launcher on {socket.gethostname()}, pid {process.pid}, started {started}: wait for it"
    with pytest.raises(LockedError) as caught, output_lock(tmp_path, flag="--output"):
        pytest.fail("two holders")
    assert str(caught.value).startswith(told)
    assert "if that host is gone" not in str(caught.value)
    process.communicate()
    with output_lock(tmp_path, flag="--output"):
        pass


def test_the_lock_of_a_killed_holder_is_taken_over(tmp_path: Path) -> None:
    process = contender(tmp_path)
    assert say_and_hear(process, "\n") == "won"
    process.kill()
    process.communicate()
    assert (tmp_path / LOCK_FILE).exists()
    with output_lock(tmp_path, flag="--output"):
        assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()
        assert list(tmp_path.iterdir()) == [tmp_path / LOCK_FILE]


def test_a_process_that_has_the_number_of_a_dead_one_is_another_process(tmp_path: Path) -> None:
    write_lock(tmp_path, pid=os.getpid(), start_ticks=(process_start_ticks(os.getpid()) or 0) - 1)
    with output_lock(tmp_path, flag="--output"):
        pass


def test_the_lock_of_another_host_is_not_ours_to_judge(tmp_path: Path) -> None:
    write_lock(tmp_path, host="elsewhere")
    with pytest.raises(LockedError, match="on elsewhere, pid 4194305, started 2026-01-02T03:04:05Z: ") as caught:
        output_lock(tmp_path, flag="--output").__enter__()
    assert str(caught.value).endswith(f"; if that host is gone for good, remove {tmp_path / LOCK_FILE}")
    assert list(tmp_path.iterdir()) == [tmp_path / LOCK_FILE]


def mine(**changes: Any) -> dict[str, Any]:
    """What the lock of this process says."""
    return {"pid": os.getpid(), "start_ticks": process_start_ticks(os.getpid())} | changes


def test_a_process_of_before_the_last_boot_is_gone_whatever_has_its_number_now(tmp_path: Path) -> None:
    write_lock(tmp_path, **mine(boot_id="00000000-0000-0000-0000-000000000000"))
    with output_lock(tmp_path, flag="--output"):
        assert json.loads((tmp_path / LOCK_FILE).read_text())["boot_id"] == BOOT_ID.read_text().strip()
    write_lock(tmp_path, **mine(boot_id="00000000-0000-0000-0000-000000000000", host="elsewhere"))
    with pytest.raises(LockedError, match="on elsewhere"):
        output_lock(tmp_path, flag="--output").__enter__()


@pytest.mark.parametrize("known", [True, False])
def test_without_a_boot_id_the_process_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """One side does not tell its boot: the holder is this process, which runs."""
    monkeypatch.setattr(output_lock_module, "_BOOT_ID", BOOT_ID if known else tmp_path / "none")
    write_lock(tmp_path, **mine(boot_id=None if known else "0"))
    with pytest.raises(LockedError, match="is in use by a launcher"):
        output_lock(tmp_path, flag="--output").__enter__()


def test_a_holder_without_a_start_time_is_not_taken_for_dead(tmp_path: Path) -> None:
    write_lock(tmp_path, start_ticks=None)
    with pytest.raises(LockedError, match=f"pid {DEAD_PID}"):
        output_lock(tmp_path, flag="--output").__enter__()


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(output_lock_module.os, "link", refuse)
    with output_lock(tmp_path, flag="--output"):
        assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()
        assert list(tmp_path.iterdir()) == [tmp_path / LOCK_FILE]
        with pytest.raises(LockedError, match="is in use by a launcher"):
            output_lock(tmp_path, flag="--output").__enter__()
        assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []
    write_lock(tmp_path)
    with output_lock(tmp_path, flag="--output"):
        assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()


def test_a_full_disk_leaves_no_lock_without_links_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(output_lock_module.os, "link", refuse)
    monkeypatch.setattr(output_lock_module.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        output_lock(tmp_path, flag="--output").__enter__()
    assert list(tmp_path.iterdir()) == []


def test_other_failures_of_the_system_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(output_lock_module.os, "link", refuse)
    with pytest.raises(OSError, match="Read-only"):
        output_lock(tmp_path, flag="--output").__enter__()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_just_being_written_is_not_damaged(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).touch()
    writer = threading.Timer(0.3, write_lock, (tmp_path,), mine())
    writer.start()
    with pytest.raises(LockedError, match=f"is in use by a launcher on .*, pid {os.getpid()}"):
        output_lock(tmp_path, flag="--output").__enter__()
    writer.join()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"host": "a"}',
        b"\xff",
        b'{"host": "a", "pid": "1", "start_ticks": 2, "started": ""}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(output_lock_module, "_WRITING_S", 0.1)
    (tmp_path / LOCK_FILE).write_bytes(content)
    with pytest.raises(LockedError, match=rf"{LOCK_FILE} is damaged: if no launcher runs on .*, remove it"):
        output_lock(tmp_path, flag="--output").__enter__()
    assert (tmp_path / LOCK_FILE).read_bytes() == content


def test_several_heirs_of_a_stale_lock_have_one_winner(tmp_path: Path) -> None:
    heirs = [contender(tmp_path) for _ in range(3)]
    try:
        for _ in range(10):
            write_lock(tmp_path)
            for heir in heirs:
                assert heir.stdin is not None
                heir.stdin.write("\n")
            for heir in heirs:
                assert heir.stdin is not None
                heir.stdin.flush()
            heard = [say_and_hear(heir).split()[0] for heir in heirs]
            assert sorted(heard) == ["lost", "lost", "won"]
            assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == heirs[heard.index("won")].pid
            for heir in heirs:
                heir.communicate()
            assert list(tmp_path.iterdir()) == []
            heirs = [contender(tmp_path) for _ in range(3)]
    finally:
        for heir in heirs:
            heir.communicate()


def test_a_lock_that_others_take_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead holder's lock that comes back as often as it is removed: given up with a sentence, nothing left behind."""
    remove = output_lock_module._remove_if_stale

    def remove_and_put_back(path: Path, flag: str) -> None:
        remove(path, flag)
        write_lock(tmp_path)

    write_lock(tmp_path)
    monkeypatch.setattr(output_lock_module, "_remove_if_stale", remove_and_put_back)
    with pytest.raises(LockedError, match="is being fought over by several launchers"):
        output_lock(tmp_path, flag="--output").__enter__()
    assert list(tmp_path.iterdir()) == [tmp_path / LOCK_FILE]


def test_a_lock_that_is_released_while_we_look_is_free(tmp_path: Path) -> None:
    output_lock_module._remove_if_stale(tmp_path / LOCK_FILE, "--output")
    assert list(tmp_path.iterdir()) == []
