"""A terminal for tests: a pseudo-terminal to run commands in, and what its screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

_TOKEN = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]")


class Display:
    """The lines of a terminal of `columns`, as a terminal makes them of what is written to it. It is as high as need be."""

    def __init__(self, columns: int) -> None:
        self.columns, self.rows, self.row, self.column = columns, [""], 0, 0

    def write(self, text: str) -> None:
        """Take characters, line ends, and the sequences that move the cursor up or erase; colours show nothing."""
        for match in _TOKEN.finditer(text):
            if match[2]:
                self._control(match[2], match[1])
            elif match[0] == "\r":
                self.column = 0
            elif match[0] == "\n":
                self._down()
            else:
                self._put(match[0])

    def resize(self, columns: int) -> None:
        """Wrap every line anew, as most terminals do; the cursor is at the start of the last line."""
        assert not self.rows[-1]
        self.rows = [line[at : at + columns] for line in self.rows for at in range(0, max(1, len(line)), columns)]
        self.columns, self.row, self.column = columns, len(self.rows) - 1, 0

    def text(self) -> str:
        """What is seen."""
        return "\n".join(line.rstrip() for line in self.rows).strip("\n")

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")

    def _put(self, character: str) -> None:
        if self.column == self.columns:
            self._down()
            self.column = 0
        line = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = line[: self.column] + character + line[self.column + 1 :]
        self.column += 1

    def _control(self, kind: str, given: str) -> None:
        if kind == "A":
            self.row = max(0, self.row - int(given or 1))
        elif kind in "JK":
            assert given in ("", "0"), given
            self.rows[self.row] = self.rows[self.row][: self.column]
            if kind == "J":
                del self.rows[self.row + 1 :]
        else:
            assert kind == "m", f"a sequence that this display does not know: {given}{kind}"


def run_in_terminal(
    words: list[str],
    cwd: Path,
    *,
    columns: int,
    env: dict[str, str] | None = None,
    on_output: Callable[[subprocess.Popen[bytes], str], None] = lambda _process, _text: None,
) -> tuple[int, str]:
    """Run a command with a pseudo-terminal as its stdin, stdout and stderr; returns its exit code and all that it wrote.

    `on_output` is called with the process and all output so far whenever there is more.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", **(env or {})}
    process = subprocess.Popen(words, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    written = b""
    try:
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # Linux: the last process has closed its end
                break
            written += chunk
            on_output(process, written.decode("utf-8", "replace"))
            if not chunk:
                break
        return process.wait(timeout=300), written.decode("utf-8", "replace")
    finally:
        process.kill()
        process.wait()
        os.close(ours)
