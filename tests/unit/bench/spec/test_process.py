"""process.py: time and output of a command are limited, and nothing of it is left."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from bulkinfer.bench.spec import process
from bulkinfer.bench.spec.process import Ended, run_limited


def run(tmp_path: Path, code: str, timeout_s: float = 0.0) -> Ended:
    words = [sys.executable, "-c", code]
    files = {"stdout": tmp_path / "out", "stderr": tmp_path / "err"}
    return run_limited(words, cwd=tmp_path, environment=os.environ, timeout_s=timeout_s, **files)


def test_what_it_prints_is_kept(tmp_path: Path) -> None:
    ended = run(tmp_path, "import os; print('a' * 200_000); os.write(2, b'b')")
    assert (ended.exit_code, ended.failure) == (0, "")
    assert len((tmp_path / "out").read_text()) == 200_001
    assert (tmp_path / "err").read_text() == "b"


def test_a_failure_has_the_last_line_of_stderr(tmp_path: Path) -> None:
    ended = run(tmp_path, "import sys; sys.exit('first\\nlast words')")
    assert (ended.exit_code, ended.failure) == (1, "it ended with exit code 1: last words")
    assert run(tmp_path, "import os; os.kill(os.getpid(), 15)").failure == "it was ended by SIGTERM"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    files = {"stdout": tmp_path / "out", "stderr": tmp_path / "err"}
    ended = run_limited(["./absent"], cwd=tmp_path, environment=os.environ, **files)
    assert ended.failure == "it cannot be started (No such file or directory: ./absent)"


def test_the_time_out_ends_the_whole_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is over once the command has begun, which may take its time."""
    ticks = count(1000.0, 1000.0)  # a deadline that is set later is over at the next look as well
    clock = SimpleNamespace(monotonic=lambda: next(ticks) if (tmp_path / "pids").exists() else 0.0)
    monkeypatch.setattr(process, "time", clock)
    files = {"stdout": tmp_path / "out", "stderr": tmp_path / "err"}
    words = ["sh", "-c", "sleep 600 & echo $! > pids.new; mv pids.new pids; wait"]
    ended = run_limited(words, cwd=tmp_path, environment=os.environ, timeout_s=2, **files)
    assert ended.failure == "it took longer than its time-out of 2 s"
    assert is_gone(int((tmp_path / "pids").read_text()))


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    code = "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True)"
    ended = run(tmp_path, code)  # returns, though the sleep holds the pipe
    assert ended.failure == ""
    assert is_gone(int((tmp_path / "out").read_text()))


def test_output_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST_OUTPUT_BYTES", 100_000)
    ended = run(tmp_path, "while True: print('x' * 1000)")
    assert ended.failure == "it printed more than 100 kB on stdout: let it print less"
    assert (tmp_path / "out").stat().st_size == 100_000


@pytest.mark.parametrize("timeout_s", [0.0, 1.5], ids=["while it runs", "while it is being ended"])
def test_nothing_is_left_when_this_process_is_killed(timeout_s: float, tmp_path: Path) -> None:
    code = f"""
import itertools, os, pathlib, types
from bulkinfer.bench.spec import process
process._GRACE_S = 600
ticks = itertools.count(1000.0, 1000.0)
process.time = types.SimpleNamespace(monotonic=lambda: next(ticks) if pathlib.Path("pids.new").exists() else 0.0)
words = ["sh", "-c", "trap 'mv pids.new pids' TERM; sleep 600 & echo $$ $! > pids.new; {{}} while :; do wait; done"]
words[2] = words[2].replace("{{}}", "" if {timeout_s} else "mv pids.new pids;")
files = {{"stdout": pathlib.Path("out"), "stderr": pathlib.Path("err")}}
process.run_limited(words, cwd=pathlib.Path(), environment=os.environ, timeout_s={timeout_s}, **files)
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path) as bench:
        deadline = time.monotonic() + 60
        while not (tmp_path / "pids").exists():
            if time.monotonic() > deadline:
                bench.kill()  # the end of the block waits for it
                pytest.fail("the command has not begun")
            time.sleep(0.01)
        bench.kill()
    command, grandchild = map(int, (tmp_path / "pids").read_text().split())
    assert is_gone(command)
    assert is_gone(grandchild)


def test_a_script_whose_interpreter_is_not_there(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "script").write_text("#!/no/such/interpreter\n")
    (programs / "script").chmod(0o755)
    (tmp_path / "words").write_text("of a text")
    files = {"stdout": tmp_path / "out", "stderr": tmp_path / "err"}

    def failure(name: str, cwd: Path = tmp_path) -> str:
        return run_limited([name], cwd=cwd, environment={"PATH": str(programs)}, **files).failure

    for name in ("bin/script", "script"):
        assert failure(name) == f"it cannot be started (the interpreter that its first line names does not exist: {name})"
    assert failure("words") == "it cannot be started (No such file or directory: words)"
    assert failure("/bin/sh", tmp_path / "gone").startswith("it cannot be started (No such file or directory: ")


def is_gone(pid: int) -> bool:
    """Whether a process ends: it was killed, which takes a moment."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 120)[0])
    finally:
        os.close(descriptor)
