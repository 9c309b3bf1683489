"""What the launcher shows while it runs: lines, and on a terminal a bar with rate and remaining time below them."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import Any

from bulkinfer.errors import escaped

log = logging.getLogger("bulkinfer")


class Screen:
    """Shows lines as they are, and on a terminal a progress bar over the pictures of all workers below them.

    `total` is the number of pictures to do; None if unknown, as in synthetic runs, which show no bar. Without `shows_bar`,
    which only commands ask for, there is none on a terminal either: every line is logged.
    """

    def __init__(self, total: int | None, *, shows_bar: bool = False) -> None:
        self._total = total if shows_bar else None
        self._bar: Any = None
        self._seen: dict[str, int] = {}

    def __enter__(self) -> Screen:
        if self._total and sys.stdout.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
            self._bar = Progress(*columns, redirect_stderr=False)
            self._task = self._bar.add_task("", total=self._total, rate="")
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def line(self, text: str) -> None:
        """One line above the bar."""
        if self._bar:
            self._bar.console.print(escaped(text), markup=False, highlight=False, soft_wrap=True)
        else:
            log.info(text)

    def log(self, text: str, *, worker: int) -> None:
        """A line that is expected to be the same for all workers: it is shown for the first of them only."""
        same = text.partition(": ")[2]
        if same not in self._seen:
            self._seen[same] = worker
            self.line(text)

    def advance(self, pictures: int) -> None:
        """Add `pictures` that were published to the bar."""
        if self._bar:
            self._bar.advance(self._task, pictures)
            speed = self._bar.tasks[0].speed
            self._bar.update(self._task, rate=f"{speed:.1f} images/sec" if speed else "")
