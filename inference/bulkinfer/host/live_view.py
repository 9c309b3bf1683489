"""A view of a running command at the end of a terminal: a bar, and a few short lines that are drawn again in their place."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bulkinfer.errors import escaped
from bulkinfer.host.number_text import percent_text
from bulkinfer.host.status import Status, rows_of

_WIDEST = 80  # columns
_NARROWEST_BAR = 5
_GAP = "   "
_UP, _ERASE_LINE, _ERASE_BELOW = "\x1b[{}A", "\x1b[K", "\x1b[J"


def open_view() -> LiveView | None:
    """A view on stdout; None if that is no terminal, or one that cannot move its cursor, as TERM=dumb says."""
    if not sys.stdout.isatty():
        return None
    view = LiveView()
    return None if view.is_dumb else view


class LiveView:
    """Draws on stdout. The cursor rests at the start of the line below, so that whatever else prints begins a line.

    A drawing is one write that overwrites line by line, so nothing flickers; one that shows nothing new is left out.
    """

    def __init__(self) -> None:
        from rich.console import Console

        # it knows the colours and the encoding of the terminal, and NO_COLOR
        self._console = Console(file=sys.stdout, width=_WIDEST, force_terminal=True, highlight=False)
        self.is_dumb = self._console.is_dumb_terminal
        self._lock = threading.RLock()  # a signal handler of the thread that draws may print
        self._drawn: list[str] = []  # the lines on the terminal, without colours
        self._drawing: tuple[int, str] | None = None  # the columns of the terminal, and all that was drawn
        self._latest: tuple[Status, Sequence[str]] | None = None

    def show(self, status: Status, heading: Sequence[str] = ()) -> None:
        """Draw `status`, below the lines of `heading`."""
        with self._lock:
            self._latest = status, heading
            self._draw()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Erase the view for the block, in which a line is printed; then draw it again."""
        with self._lock:
            self._erase()
            try:
                yield
            finally:
                self._draw()

    def close(self) -> None:
        """Erase the view for good."""
        with self._lock:
            self._latest = None
            self._erase()

    def _draw(self) -> None:
        if self._latest is None:
            return
        columns, height = self._size()
        plain, drawing = self._render(*self._latest, min(_WIDEST, columns - 1), height - 1)  # a full line would wrap
        if self._drawing == (columns, drawing):
            return
        back = self._back(columns)
        self._drawn, self._drawing = plain, (columns, drawing)  # before the write, which a signal may end: close() erases it
        self._write(back + drawing.replace("\n", f"{_ERASE_LINE}\n") + _ERASE_BELOW)

    def _erase(self) -> None:
        if self._drawn:
            self._write(self._back(self._size()[0]) + _ERASE_BELOW)
        self._drawn, self._drawing = [], None

    def _back(self, columns: int) -> str:
        """What moves the cursor to the start of the view. A terminal that became narrower has wrapped its lines."""
        rows = sum(max(1, -(-len(line) // columns)) for line in self._drawn)
        return "\r" + (_UP.format(rows) if rows else "")

    def _render(self, status: Status, heading: Sequence[str], width: int, height: int) -> tuple[list[str], str]:
        """The lines without colours, and what draws them."""
        plain = [line for row in [*([line] for line in heading), *rows_of(status)] for line in _fitted(row, width)]
        has_bar = status.total is not None
        lines = [escaped(line) for line in plain][: max(0, height - has_bar)]
        text = "".join(f"{line}\n" for line in lines)
        if not has_bar:
            return lines, text
        return ["#" * width, *lines], f"{self._bar(status, width)}\n{text}"

    def _bar(self, status: Status, width: int) -> str:
        from rich.progress_bar import ProgressBar

        percent = f"{percent_text(status.percent / 100)} "
        if (bar_width := width - len(percent)) < _NARROWEST_BAR:
            return percent[:width]
        with self._console.capture() as captured:
            self._console.print(ProgressBar(status.total or 1, status.done, width=bar_width), end="", width=bar_width)
        return percent + captured.get().rstrip("\n")

    def _size(self) -> tuple[int, int]:
        try:
            found = os.get_terminal_size(sys.stdout.fileno())
        except (OSError, ValueError):  # a stand-in for a terminal
            return 80, 24
        return max(2, found.columns or 80), max(2, found.lines or 24)

    def _write(self, text: str) -> None:
        file: Any = self._console.file
        file.write(text)
        file.flush()


def _fitted(row: Sequence[str], width: int) -> list[str]:
    """The pieces of a row on as many lines of `width` as they need; a piece that is longer is cut."""
    lines: list[str] = []
    for piece in row:
        if lines and len(lines[-1]) + len(_GAP) + len(piece) <= width:
            lines[-1] += _GAP + piece
        else:
            lines.append(piece[:width])
    return lines
