"""What a command shows while it runs: lines, and how far it has come, on a terminal as a view below them, else now and then."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType

from bulkinfer.host.console import printing_within, say
from bulkinfer.host.live_view import LiveView, open_view
from bulkinfer.host.status import Status, line_of

log = logging.getLogger("bulkinfer")

LINE_S = 30.0  # between two lines of progress where there is no terminal
_TICK_S, _KEEP_S = 0.5, 2.0


class Screen:
    """Shows the status of a command until the block ends, and logs lines.

    A thread asks for `status` twice a second, so that it does not depend on steps that end, and gives it to `keep` every 2 s.
    With `shows_progress`, which only commands ask for, a terminal gets a live view; otherwise stderr gets a line every
    `line_s` seconds, and stdout nothing: programs parse the lines there.
    """

    def __init__(
        self,
        status: Callable[[], Status],
        *,
        shows_progress: bool = False,
        keep: Callable[[Status], None] = lambda _: None,
        line_s: float = LINE_S,
    ) -> None:
        self._status, self._shows_progress, self._keep, self._line_s = status, shows_progress, keep, line_s
        self._view: LiveView | None = None
        self._seen = set[str]()
        self._line_due = self._keep_due = 0.0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Screen:
        try:
            self._begin()
        except BaseException:  # a signal, for example: the view must not stay
            self.__exit__(None, None, None)
            raise
        return self

    def _begin(self) -> None:
        if self._shows_progress and (view := open_view()) is not None:
            self._view = view
            self._open.callback(view.close)
            self._open.enter_context(printing_within(view.away))
        now_s = time.monotonic()
        self._line_due = now_s + self._line_s
        self.tick(now_s)
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join()
        self._open.close()

    def _run(self) -> None:
        while not self._end.wait(_TICK_S):
            self.tick(time.monotonic())

    def tick(self, now_s: float) -> None:
        """Do what is due at `now_s`, by time.monotonic(). What cannot be written is left out: the work goes on without it."""
        status = self._status()
        if now_s >= self._keep_due:
            self._keep_due = now_s + _KEEP_S
            self._keep(status)
        with contextlib.suppress(OSError):
            if self._view is not None:
                self._view.show(status)
            elif self._shows_progress and now_s >= self._line_due:
                self._line_due = now_s + self._line_s
                say(line_of(status), is_error=True)

    def line(self, text: str) -> None:
        """Log one line; it stands above the view."""
        log.info(text)

    def log(self, text: str) -> None:
        """A line that is expected to be the same for all workers: it is shown once."""
        same = text.partition(": ")[2]
        if same not in self._seen:
            self._seen.add(same)
            self.line(text)
