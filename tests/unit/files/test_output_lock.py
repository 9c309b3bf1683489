"""output_lock.py and lease.py: one launcher at a time on a results folder, whatever happened to the previous one."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bulkinfer.errors import DamagedLockError, LockedError, RunError
from bulkinfer.files import lease as lease_module
from bulkinfer.files.output_lock import LOCK_FILE, launcher_in, output_lock, results_lock
from bulkinfer.host import process_identity as processes
from bulkinfer.host.process_identity import process_start_ticks, this_table

from tests.forms import long

DEAD_PID = 4194305  # beyond the largest process number

# Takes the lock if it can, says so, and holds it until its stdin closes; tells at each line whether it still has it. Only the
# lock of write_lock is dead after a second: this process may be slow to renew its own.
CONTENDER = """
import socket, sys, time, pathlib
from bulkinfer.files import lease
from bulkinfer.files import output_lock as module
from bulkinfer.errors import LockedError
from bulkinfer.files.output_lock import output_lock
if len(sys.argv) > 2:
    socket.gethostname = lambda: sys.argv[2]
lease.BEAT_S, lease._CONTENTION_S = 0.2, 60.0
plain = lease._is_dead
def is_dead(path, holder, on_watch):
    lease.LEASE_S = 1.0 if holder["token"] == "dead" else 20.0
    return plain(path, holder, on_watch)
lease._is_dead = is_dead
print("ready", flush=True)
sys.stdin.readline()
try:
    with output_lock(pathlib.Path(sys.argv[1]), flag='--output') as held:
        print("won", flush=True)
        for _ in sys.stdin:
            print("lost it" if held.refusal else "held it", flush=True)
except LockedError as error:
    print("lost", error, flush=True)
"""


def contender(output: Path, *host: str) -> subprocess.Popen[str]:
    """On this host, or on one of another name."""
    process = subprocess.Popen(
        [sys.executable, "-c", CONTENDER, str(output), *host], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert say_and_hear(process) == "ready"
    return process


def say_and_hear(process: subprocess.Popen[str], line: str = "") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline().strip()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for what another process or thread does, for a minute."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def states_of_threads(pid: int) -> set[str]:
    """The letters for what the threads of a process do: T is that they are stopped."""
    return {path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")}


def write_lock(output: Path, **changes: Any) -> None:
    holder = {"format": 1, **this_table()._asdict(), "pid": DEAD_PID, "start_ticks": 7, "started": "2026-01-02T03:04:05Z"}
    holder["token"] = "dead"
    (output / LOCK_FILE).write_text(json.dumps(holder | changes))


def test_the_lock_names_its_holder_and_is_gone_afterwards(tmp_path: Path) -> None:
    with output_lock(tmp_path, flag="--output"):
        holder = json.loads((tmp_path / LOCK_FILE).read_text())
        assert list(tmp_path.iterdir()) == [tmp_path / LOCK_FILE]
    assert (holder["format"], holder["host"], holder["pid"]) == (1, socket.gethostname(), os.getpid())
    assert holder["start_ticks"] == process_start_ticks(os.getpid())
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_released_as_its_watch_begins_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lock(tmp_path, host="elsewhere")
    path = tmp_path / LOCK_FILE
    monkeypatch.setattr(lease_module, "LEASE_S", 3600.0)
    found = lease_module.take(path, on_watch=lambda _: path.unlink())
    assert isinstance(found, lease_module.Lease)
    found.release()


def test_the_lock_goes_after_an_exception_too(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), output_lock(tmp_path, flag="--output"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["_remove_heirs", "is_held", "threading.Thread.start"])
def test_a_signal_while_the_lock_is_taken_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def interrupted(*_arguments: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(f"bulkinfer.files.lease.{where}", interrupted)
    with pytest.raises(KeyboardInterrupt), output_lock(tmp_path, flag="--output"):
        raise AssertionError("it was not interrupted")
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
        assert json.loads((tmp_path / LOCK_FILE).read_text())["start_ticks"] == process_start_ticks(os.getpid())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease of a second, renewed every 0.2 s."""
    monkeypatch.setattr(lease_module, "LEASE_S", 1.0)
    monkeypatch.setattr(lease_module, "BEAT_S", 0.2)


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock is looked at often, and whoever renews it may be late by a minute."""
    monkeypatch.setattr(lease_module, "LEASE_S", 60.0)
    often = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: time.sleep(min(seconds, 0.05)))
    monkeypatch.setattr(lease_module, "time", often)


@pytest.mark.usefixtures("quick")
def test_a_lock_of_another_host_that_nobody_renews_is_taken_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_lock(tmp_path, host="elsewhere")
    os.utime(tmp_path / LOCK_FILE, (2e9, 2e9))  # that host's clock is ahead by years: nobody compares
    with output_lock(tmp_path, flag="--output"):
        assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()
    told = capfd.readouterr()
    assert "is locked by a launcher on elsewhere, pid 4194305, started 2026-01-02T03:04:05Z: waiting up to 1 s" in told.out
    assert "was not renewed for 1 s: taken over" in told.err
    assert list(tmp_path.iterdir()) == []


OTHERS = {
    "another host": {"host": "elsewhere"},
    "a host of the same name, or before its restart": {"boot_id": "00000000-0000-0000-0000-000000000000"},
    "another container of this host": {"pids": "pid:[1]"},
    "a system that does not tell its boot": {"boot_id": None},
    "a system that does not tell its namespace": {"pids": None},
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("changes", [{}, *OTHERS.values()], ids=["this very table of processes", *OTHERS])
def test_a_number_of_another_table_of_processes_says_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], changes: dict[str, str | None]
) -> None:
    """A process that is not seen here may run there: only a lock that nobody renews is taken over."""
    write_lock(tmp_path, **changes)
    with output_lock(tmp_path, flag="--output"):
        assert ("waiting up to 1 s to see whether it still runs" in capfd.readouterr().out) is bool(changes)


@pytest.mark.usefixtures("watchful")
@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_a_holder_of_another_table_that_renews_its_lock_is_not_dead(tmp_path: Path, changes: dict[str, str | None]) -> None:
    write_lock(tmp_path, **changes)
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(0.2):
            os.utime(tmp_path / LOCK_FILE)

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        with pytest.raises(LockedError, match=r"is in use by a launcher on .*; if that host is gone for good, remove "):
            output_lock(tmp_path, flag="--output").__enter__()
    finally:
        stop.set()
        renewing.join()


@pytest.mark.usefixtures("watchful")
def test_a_lock_of_another_host_that_is_renewed_is_refused(tmp_path: Path) -> None:
    process = contender(tmp_path, "elsewhere")
    assert say_and_hear(process, "\n") == "won"
    with pytest.raises(LockedError, match=f"on elsewhere, pid {process.pid}, started ") as caught:
        output_lock(tmp_path, flag="--output").__enter__()
    assert str(caught.value).endswith(f"; if that host is gone for good, remove {tmp_path / LOCK_FILE}")
    process.communicate()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_a_holder_that_was_stopped_finds_that_it_has_lost(tmp_path: Path) -> None:
    process = contender(tmp_path, "elsewhere")
    assert say_and_hear(process, "\n") == "won"
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: states_of_threads(process.pid) == {"T"})
    with output_lock(tmp_path, flag="--output") as lease:
        content = (tmp_path / LOCK_FILE).read_bytes()
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: say_and_hear(process, "\n") == "lost it")
        assert lease.refusal is None
        process.communicate()
        assert (tmp_path / LOCK_FILE).read_bytes() == content, "it does not remove what is another's"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("change", ["gone", "replaced", "damaged"])
def test_a_lock_that_is_no_longer_ours_is_told(tmp_path: Path, change: str) -> None:
    with output_lock(tmp_path, flag="--output") as lease:
        lease.check()
        if change == "gone":
            (tmp_path / LOCK_FILE).unlink()
        elif change == "damaged":
            (tmp_path / LOCK_FILE).write_bytes(b"{")
        else:
            write_lock(tmp_path, host="elsewhere", token="t")
        wait_until(lambda: lease.refusal is not None)
        told = f"{tmp_path / LOCK_FILE} was lost: its holder has ended, or did not renew it for {lease_module.LEASE_S:g} s; "
        assert str(lease.refusal).startswith(told)
        with pytest.raises(RunError, match="was lost"):
            lease.check()
    assert (tmp_path / LOCK_FILE).exists() == (change != "gone")


def test_an_heir_that_died_is_inherited_too_and_leaves_nothing(tmp_path: Path) -> None:
    """Claims on our lock's predecessor and on one of long ago, both of dead processes."""
    write_lock(tmp_path, token="aa")
    (tmp_path / LOCK_FILE).rename(tmp_path / "lock")
    for name in ("aa", "99"):
        write_lock(tmp_path, token=f"of-{name}")
        (tmp_path / LOCK_FILE).rename(tmp_path / f"{LOCK_FILE}.heir-{name}")
    (tmp_path / "lock").rename(tmp_path / LOCK_FILE)
    with output_lock(tmp_path, flag="--output"):
        assert list(tmp_path.iterdir()) == [tmp_path / LOCK_FILE]
        assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()


def test_an_heir_that_comes_late_replaces_nothing(tmp_path: Path) -> None:
    """It saw the dead lock, and another has replaced that since."""
    write_lock(tmp_path, token="aa")
    dead = lease_module.read_holder(tmp_path / LOCK_FILE)
    assert dead is not None
    with output_lock(tmp_path, flag="--output") as lease:
        assert not lease_module._takes_over(tmp_path / LOCK_FILE, dead, b"{}")
        lease.check()
    assert list(tmp_path.iterdir()) == []


def mine(**changes: Any) -> dict[str, Any]:
    """What the lock of this process says."""
    return {"pid": os.getpid(), "start_ticks": process_start_ticks(os.getpid())} | changes


@pytest.mark.usefixtures("quick")
def test_where_this_system_does_not_tell_its_boot_locks_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "_BOOT_ID", tmp_path / "none")
    write_lock(tmp_path)
    with output_lock(tmp_path, flag="--output"):
        assert "waiting up to 1 s to see whether it still runs" in capfd.readouterr().out


def test_a_release_that_fails_does_not_hide_why_the_launch_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def stale(*_: Any) -> None:
        raise OSError(errno.ESTALE, "Stale file handle", str(tmp_path / LOCK_FILE))

    with pytest.raises(RunError, match=r"^the reason$"), output_lock(tmp_path, flag="--output"):  # noqa: PT012
        monkeypatch.setattr(lease_module, "is_held", stale)
        raise RunError("the reason")
    assert f"{LOCK_FILE} cannot be removed (Stale file handle: " in capfd.readouterr().err


def test_a_holder_without_a_start_time_is_not_taken_for_dead(tmp_path: Path) -> None:
    write_lock(tmp_path, start_ticks=None)
    with pytest.raises(LockedError, match=f"pid {DEAD_PID}"):
        output_lock(tmp_path, flag="--output").__enter__()


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lease_module.os, "link", refuse)
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

    monkeypatch.setattr(lease_module.os, "link", refuse)
    monkeypatch.setattr(lease_module.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        output_lock(tmp_path, flag="--output").__enter__()
    assert list(tmp_path.iterdir()) == []


def test_other_failures_of_the_system_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(lease_module.os, "link", refuse)
    with pytest.raises(OSError, match="Read-only"):
        output_lock(tmp_path, flag="--output").__enter__()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_just_being_written_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "_WRITING_S", 60.0)
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
        b'{"host": "a", "boot_id": null, "pids": null, "pid": "1", "start_ticks": 2, "started": "", "token": ""}',
        b'{"host": "a", "pid": 1, "start_ticks": 2, "started": ""}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(lease_module, "_WRITING_S", 0.1)
    (tmp_path / LOCK_FILE).write_bytes(content)
    with pytest.raises(LockedError, match=rf"{LOCK_FILE} is damaged: if no bulkinfer process works there, remove it: rm -r "):
        output_lock(tmp_path, flag="--output").__enter__()
    assert (tmp_path / LOCK_FILE).read_bytes() == content


@long
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
    """A dead holder's lock whose heir is always another: given up with a sentence, nothing left behind."""
    write_lock(tmp_path)
    monkeypatch.setattr(lease_module, "_CONTENTION_S", 0.2)
    monkeypatch.setattr(lease_module, "_takes_over", lambda *_: False)
    with pytest.raises(LockedError, match="is wanted by several processes at once"):
        output_lock(tmp_path, flag="--output").__enter__()
    assert list(tmp_path.iterdir()) == [tmp_path / LOCK_FILE]


def test_several_heirs_over_a_lock_of_another_host_have_one_winner(tmp_path: Path) -> None:
    write_lock(tmp_path, host="elsewhere")
    heirs = [contender(tmp_path, f"host-{number}") for number in range(3)]
    try:
        for heir in heirs:
            assert heir.stdin is not None
            heir.stdin.write("\n")
            heir.stdin.flush()
        heard = [say_and_hear(heir).split()[0] for heir in heirs]
        assert sorted(heard) == ["lost", "lost", "won"]
        assert json.loads((tmp_path / LOCK_FILE).read_text())["host"] == f"host-{heard.index('won')}"
    finally:
        for heir in heirs:
            heir.communicate()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_lock_is_not_removed_if_another_launcher_has_replaced_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both saw the damaged lock, and the other was faster."""
    monkeypatch.setattr(lease_module, "_WRITING_S", 0.1)
    path, plain = tmp_path / LOCK_FILE, lease_module.take
    path.write_bytes(b"garbage")
    others = list[lease_module.Lease]()

    def overtaken(wanted: Path, **options: Any) -> Any:
        try:
            return plain(wanted, **options)
        except DamagedLockError:
            wanted.unlink()
            other = plain(wanted)
            assert isinstance(other, lease_module.Lease)
            others.append(other)
            raise

    monkeypatch.setattr(lease_module, "take", overtaken)
    with pytest.raises(LockedError, match="is in use by"), output_lock(tmp_path, flag="--output", replaces_damaged=True):
        pass
    (other,) = others
    other.check()
    assert [entry.name for entry in tmp_path.iterdir()] == [LOCK_FILE]


def test_where_no_other_folder_helps_none_is_advised(tmp_path: Path) -> None:
    process = contender(tmp_path)
    assert say_and_hear(process, "\n") == "won"
    with pytest.raises(LockedError, match=r": wait for it$"), output_lock(tmp_path, flag=""):
        pytest.fail("two holders")
    process.communicate()


def test_the_launcher_of_a_folder_is_named_while_it_lives(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    assert launcher_in(output) == ""
    with results_lock(output) as held:
        told = launcher_in(output)
        assert f"pid {os.getpid()}, started " in told
        found = json.loads(held.path.read_text())
        elsewhere = {**found, "host": "elsewhere", "boot_id": "another", "pids": "another"}
        held.path.write_text(json.dumps(elsewhere))
        assert launcher_in(output).startswith("a launcher on elsewhere, ")
        os.utime(held.path, (0, 0))  # not renewed for long
        assert launcher_in(output) == ""
        held.path.write_text(json.dumps({**found, "start_ticks": 1}))  # its number belongs to another process now
        assert launcher_in(output) == ""
        held.path.write_text(json.dumps(found))
    assert launcher_in(output) == ""
