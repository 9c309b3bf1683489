"""The lock between processes: one holder, waiting said once, released by a crash, nothing left behind."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from inference import file_lock
from inference.file_lock import exclusive

HOLDER = """
import sys, time
from pathlib import Path
from inference.file_lock import exclusive
with exclusive(Path(sys.argv[1]), lambda: print("waiting", flush=True)):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(path: Path, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path), str(seconds)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_waits_for_the_holder_and_says_so_once(tmp_path: Path) -> None:
    path, said = tmp_path / "lock", []
    with holder(path, 0.5):
        start = time.monotonic()
        with exclusive(path, lambda: said.append("waiting")):
            assert time.monotonic() - start > 0.2
        assert said == ["waiting"]
    assert list(tmp_path.iterdir()) == []


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path, 60) as process:
        process.kill()
        process.wait()
        with exclusive(path, lambda: None):
            pass
    assert list(tmp_path.iterdir()) == []


def test_three_in_a_row_never_overlap(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    count = (
        "import sys, time\nfrom pathlib import Path\nfrom inference.file_lock import exclusive\n"
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


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_flock_a_lease_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, "no locks here")

    monkeypatch.setattr(file_lock.fcntl, "flock", refuse)
    monkeypatch.setattr(file_lock, "_AGAIN_S", 0.05)
    path, said, order = tmp_path / "lock", list[str](), list[str]()

    def second() -> None:
        with exclusive(path, lambda: said.append("waiting")):
            order.append("second")

    with exclusive(path, lambda: None):
        waiter = threading.Thread(target=second)
        waiter.start()
        time.sleep(0.3)
        order.append("first")
    waiter.join()
    assert (order, said) == (["first", "second"], ["waiting"])
    assert list(tmp_path.iterdir()) == []


def test_other_failures_of_flock_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(file_lock.fcntl, "flock", refuse)
    with pytest.raises(OSError, match="Input/output"), exclusive(tmp_path / "lock", lambda: None):
        pass
