"""file_lock.py: one holder, waiting reported once, released by a crash, nothing left behind."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import RunError
from bulkinfer.files import lease
from bulkinfer.files.file_lock import exclusive

# Holds the lock until a line comes, and half a second more.
HOLDER = """
import sys, time
from pathlib import Path
from bulkinfer.files.file_lock import exclusive
with exclusive(Path(sys.argv[1]), lambda: print("waiting", flush=True)):
    print("held", flush=True)
    sys.stdin.readline()
    time.sleep(0.5)
    Path(sys.argv[1] + ".held").touch()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_waits_for_the_holder_and_says_so_once(tmp_path: Path) -> None:
    path, said = tmp_path / "lock", []
    with holder(path) as process:

        def waits() -> None:
            said.append("waiting")
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

        with exclusive(path, waits):
            assert (tmp_path / "lock.held").exists(), "the other one has come to the end of its block"
        assert said == ["waiting"]
    assert list(tmp_path.iterdir()) == [tmp_path / "lock.held"]


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as process:
        process.kill()
        process.wait()
        with exclusive(path, lambda: None):
            pass
    assert list(tmp_path.iterdir()) == []


def test_three_in_a_row_never_overlap(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    count = (
        "import sys, time\nfrom pathlib import Path\nfrom bulkinfer.files.file_lock import exclusive\n"
        "for _ in range(40):\n"
        "    with exclusive(Path(sys.argv[1]), lambda: None):\n"
        "        number = int(Path(sys.argv[2]).read_text())\n"
        "        time.sleep(0.001)\n"
        "        Path(sys.argv[2]).write_text(str(number + 1))\n"
    )
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", count, str(path), str(counter)]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert counter.read_text() == "120"


def test_a_waiter_looks_and_writes_nothing(tmp_path: Path) -> None:
    """get_model waits for minutes for another get_model."""
    path, looks = tmp_path / "lock", list[list[str]]()
    waiter = threading.Thread(target=lambda: exclusive(path, lambda: looks.append([])).__enter__(), daemon=True)
    with exclusive(path, lambda: None):
        waiter.start()
        while not looks:
            time.sleep(0.01)
        changed = tmp_path.stat().st_mtime_ns
        time.sleep(1.0)
        assert tmp_path.stat().st_mtime_ns == changed
    waiter.join(60)
    assert not waiter.is_alive()


def test_locks_that_the_kernel_has_none_left_for_change_nothing(tmp_path: Path) -> None:
    """Of three processes one gets ENOLCK, a passing answer: never are two of them inside at once."""
    inside = """
import errno, fcntl, os, sys, time
from pathlib import Path
from bulkinfer.files.file_lock import exclusive
def refuse(*_):
    raise OSError(errno.ENOLCK, "No locks available")
if sys.argv[2] == "refused":
    fcntl.flock = refuse
folder = Path(sys.argv[1])
for _ in range(15):
    with exclusive(folder / "lock", lambda: None):
        os.mkdir(folder / "inside")
        time.sleep(0.01)
        os.rmdir(folder / "inside")
    time.sleep(0.005)
"""
    kinds = ("plain", "refused", "plain")
    processes = [subprocess.Popen([sys.executable, "-c", inside, str(tmp_path), kind]) for kind in kinds]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_lost_is_told_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(RunError, match="was lost"), exclusive(path, lambda: None):
        path.unlink()
    assert list(tmp_path.iterdir()) == []


def test_failures_of_the_system_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(lease.os, "link", refuse)
    with pytest.raises(OSError, match="Input/output"), exclusive(tmp_path / "lock", lambda: None):
        pass
