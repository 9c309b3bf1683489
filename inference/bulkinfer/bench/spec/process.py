"""Runs a command of an entry: without a shell, in a group of its own, for a limited time, with limited output.

However it ends, nothing of its group is left. That holds too if this process is killed: the kernel kills the command, and a
shell that waits for the end of this process kills the rest of the group.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from bulkinfer.errors import BulkinferError, os_error_sentence
from bulkinfer.files.guarded import open_regular, read_bytes
from bulkinfer.host.number_text import duration_text, size_text
from bulkinfer.host.process_setup import die_with_parent

MOST_OUTPUT_BYTES = 32 << 20  # of stdout, and of stderr
_GRACE_S = 5.0  # from SIGTERM to SIGKILL
_GRACE_AFTER_SIGNAL_S = 2.0  # the same where a signal has ended this process as well
_PIECE_BYTES = 1 << 16
_LAST_BYTES = 4096  # of stderr, in which its last line is looked for
# The first line is the id of a group. The second reading fails when the other end of the pipe is closed, with this process.
_GUARD = 'read -r group && { read -r _ || kill -s KILL -- "-$group"; }'


@dataclass(frozen=True)
class Ended:
    """A command that has ended. `failure` says why it failed; empty if it ended with 0."""

    exit_code: int
    seconds: float
    failure: str


def run_limited(
    words: Sequence[str], *, cwd: Path, environment: Mapping[str, str], stdout: Path, stderr: Path, timeout_s: float = 0.0
) -> Ended:
    """Run a command, with its output in two files. A `timeout_s` of 0 is none. A signal to this process ends it as well."""
    with stdout.open("wb") as out, stderr.open("wb") as err, contextlib.ExitStack() as opened:
        begin = time.monotonic()
        try:
            guard = opened.enter_context(_guard())
            begin = time.monotonic()
            process = subprocess.Popen(
                words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True, preexec_fn=partial(_tie, os.getpid(), guard),
            )  # fmt: skip
        except OSError as error:
            return Ended(127, time.monotonic() - begin, f"it cannot be started ({_why_not(error, words[0], cwd, environment)})")
        try:
            failure = _Pipes(process, out, err).copy(timeout_s)
            _end(process, _GRACE_S if failure else 0.0)
        except BaseException:
            _end(process, _GRACE_AFTER_SIGNAL_S)
            raise
        finally:
            for pipe in (process.stdout, process.stderr):
                assert pipe is not None
                pipe.close()
    return Ended(process.returncode, time.monotonic() - begin, failure or _of_exit_code(process.returncode, stderr))


@contextlib.contextmanager
def _guard() -> Iterator[int]:
    """A shell that kills a group if this process dies within the block; yields the end of its pipe that takes the id."""
    words = ["/bin/sh", "-c", _GUARD]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True) as shell:
        assert shell.stdin is not None
        try:
            yield shell.stdin.fileno()
        finally:
            shell.kill()


def _tie(parent: int, guard: int) -> None:
    """Let this process, which is about to become the command, and its group die with its parent."""
    die_with_parent(parent)
    os.write(guard, b"%d\n" % os.getpid())


def _why_not(error: OSError, name: str, cwd: Path, environment: Mapping[str, str]) -> str:
    """Why a program cannot be started. Of a script without its interpreter the system says that the script is not there."""
    found = cwd / name if "/" in name else Path(shutil.which(name, path=environment.get("PATH")) or "")
    if isinstance(error, FileNotFoundError) and cwd.is_dir() and found.is_file():
        with contextlib.suppress(OSError, BulkinferError), open_regular(found) as file:
            if file.read(2) == b"#!":
                return f"the interpreter that its first line names does not exist: {name}"
    return os_error_sentence(error)


class _Pipes:
    """What a command prints, and its end, until the first of: its end, the deadline, too much output."""

    def __init__(self, process: subprocess.Popen[bytes], out: BinaryIO, err: BinaryIO) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._pidfd = os.pidfd_open(process.pid)
        self._selector = selectors.DefaultSelector()
        self._left = {"stdout": MOST_OUTPUT_BYTES, "stderr": MOST_OUTPUT_BYTES}
        self._selector.register(self._pidfd, selectors.EVENT_READ)
        for pipe, file, name in ((process.stdout, out, "stdout"), (process.stderr, err, "stderr")):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, (file, name))

    def copy(self, timeout_s: float) -> str:
        """Returns why the command must be ended; empty if it has ended. A `timeout_s` of 0 is none."""
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                left = deadline - time.monotonic() if timeout_s else None
                if left is not None and left <= 0:
                    return f"it took longer than its time-out of {duration_text(timeout_s)}"
                events = self._selector.select(left)
                has_ended = any(key.data is None for key, _ in events)
                for key in list(self._selector.get_map().values()) if has_ended else [key for key, _ in events]:
                    if key.data is not None and not self._take(key, everything=has_ended):
                        return f"it printed more than {size_text(MOST_OUTPUT_BYTES)} on {key.data[1]}: let it print less"
                if has_ended:
                    return ""
        finally:
            self._selector.close()
            os.close(self._pidfd)

    def _take(self, key: selectors.SelectorKey, *, everything: bool) -> bool:
        """Copy what a pipe holds now; returns False if that is too much."""
        file, name = key.data
        while True:
            try:
                piece = os.read(key.fd, _PIECE_BYTES)
            except BlockingIOError:
                return True
            if not piece:
                self._selector.unregister(key.fileobj)
                return True
            file.write(piece[: self._left[name]])
            self._left[name] -= len(piece)
            if self._left[name] < 0:
                return False
            if not everything:
                return True


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End the whole group, and wait for the command. Does so too if the command itself has ended: others may be left."""
    if grace_s:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # nothing is left of it
        os.killpg(pid, number)


def _of_exit_code(code: int, stderr: Path) -> str:
    if not code:
        return ""
    how = f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
    lines = read_bytes(stderr, MOST_OUTPUT_BYTES)[-_LAST_BYTES:].decode("utf-8", "replace").strip().splitlines()
    return f"{how}: {lines[-1].strip()[:300]}" if lines else how
