"""What a command prints: the per-step line in its fixed shape, and everything else, always through `say`."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bulkinfer.errors import escaped


def step_line(total_s: float, wait_s: float, compute_s: float, images: int) -> str:
    """The line of one step: seconds since the previous line, of which waiting for data and computing, and images/s.

    Other programs parse this line: its form must not change.
    """
    total_s = max(total_s, 1e-9)
    return (
        f"Total {total_s:.3f} sec.   Preprocessing {wait_s:.3f} sec ({100 * wait_s / total_s:.1f}%).   "
        f"Compute {compute_s:.3f} sec ({100 * compute_s / total_s:.1f}%).   {images / total_s:.1f} images/sec."
    )


STDOUT = "-"  # the value of --to; a file of this name is ./-, so no path stands for stdout


@dataclass(frozen=True)
class _Printing:
    """How lines are printed now: what is done around each, whether all go to stderr, and the command that was typed."""

    around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    only_stderr: bool = False
    command: str = ""


_printing = _Printing()  # of the process: it has one stdout


@contextlib.contextmanager
def _changed(**values: Any) -> Iterator[None]:
    """Until the block ends lines are printed with these values of _Printing; then as before."""
    global _printing
    before, _printing = _printing, replace(_printing, **values)
    try:
        yield
    finally:
        _printing = before


class ReaderHasEnough(Exception):  # noqa: N818 (not an error)
    """What reads the data on stdout has ended, as `head` does when it has its lines."""


def data_on_stdout(is_wanted: bool) -> AbstractContextManager[None]:
    """Until the block ends stdout is for the data that a command writes there, if so `is_wanted`: lines go to stderr."""
    return _changed(only_stderr=is_wanted)


def printing_within(around: Callable[[], AbstractContextManager[None]]) -> AbstractContextManager[None]:
    """Until the block ends every line is printed inside of `around()`, which takes a view away and draws it again below."""
    return _changed(around=around)


def naming_command(command: str) -> AbstractContextManager[None]:
    """Until the block ends, warnings that are printed begin with `command`."""
    return _changed(command=command)


def say(line: str, *, is_error: bool = False) -> None:
    """Print one line on stdout, or on stderr, and flush it. The one way to print: names in it cannot steer the terminal.

    Raises OSError that names the stream if it cannot be written to: a full disk is not swallowed.
    """
    is_error = is_error or _printing.only_stderr
    try:
        with _printing.around():
            # in one write: two threads never share a line
            print(f"{escaped(line)}\n", end="", file=sys.stderr if is_error else sys.stdout, flush=True)
    except OSError as error:
        error.filename = "stderr" if is_error else "stdout"
        raise


def say_lines(text: str) -> None:
    """Print a text of several lines."""
    for line in text.splitlines():
        say(line)


def ask(question: str) -> bool:
    """Print a question, and return whether the answer on stdin is yes. Without an answer it is no."""
    say(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def say_last(line: str) -> None:
    """Print the last line of a process on stderr. If stderr cannot be written to, only the exit code is left to say it."""
    with contextlib.suppress(OSError):
        say(line, is_error=True)


def drop_stdout() -> None:
    """Throw away what stdout still holds, after a failed write: the interpreter would fail on it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class PlainHandler(logging.Handler):
    """Prints each record as plain lines: warnings and errors on stderr, everything else on stdout.

    Within `naming_command` a warning begins with the command that was typed.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record."""
        begin = f"{_printing.command}: " if _printing.command and record.levelno == logging.WARNING else ""
        say(begin + record.getMessage(), is_error=record.levelno >= logging.WARNING)


def print_log_lines() -> None:
    """Install the handler through which a command prints what the library logs; a second call changes nothing."""
    log = logging.getLogger("bulkinfer")
    if not any(isinstance(handler, PlainHandler) for handler in log.handlers):
        log.addHandler(PlainHandler())
    log.setLevel(logging.INFO)
    log.propagate = False  # absl gives the root logger a handler of its own


def make_printing_safe() -> None:
    """Escape characters that the terminal's encoding lacks, instead of raising; replace closed streams by /dev/null."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 -- for as long as the process lives
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 -- the same
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
