"""SIGINT, SIGTERM and SIGHUP in a command: it ends in order, with one sentence and the exit code 128 + number of the signal.

Imported before everything that takes time, so it imports next to nothing itself.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False  # typing takes longer to import than this module and all that it needs
if TYPE_CHECKING:
    from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # a signal that is ignored at the start, as under nohup, stays so
_PATIENCE_S = 5.0  # for tidying up after the first signal; later ones end the process at once
_AGAIN_S = 0.1  # between two reminders of a signal that was swallowed
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"  # the file of the frames that every import that loads a module has
_SOON_S = 0.001  # until an alarm that was due meanwhile: a timer of 0 is none


class Stopped(KeyboardInterrupt):
    """A signal ended the work: raised in the main thread, so that blocks that clean up are left in order."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def stop_sentence(command: str, number: int) -> str:
    """What a command says last when a signal has ended it."""
    how = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
    return f"{command}: {how}"


class _Watch:
    """The handler of this process. Before the work begins there is nothing to tidy up: the process ends at once.

    A signal waits while something is imported. Where Stopped is raised a library may catch it and go on, and a destructor
    cannot raise at all. So an alarm sends the signal again, until the work is being left.
    """

    def __init__(self, command: str, *, says: bool = True) -> None:
        self.command, self.says = command, says
        self.is_working = self.is_ending = False
        self.number = 0  # of the signal that has to end the work; 0: none
        self._since = 0.0
        self._alarm: tuple[Any, float, float] | None = None  # another's: its handler, when it is due (0: never), its interval

    def __call__(self, number: int, frame: Any) -> None:
        if self.is_ending:
            return
        is_tidying = bool(self.number) and _is_unwinding()
        must_wait = _is_importing(frame)
        if is_tidying:
            is_over = time.monotonic() - self._since > _PATIENCE_S
        else:
            is_over = must_wait and bool(self.number)
        if is_over or not self.is_working:
            self.end(number)
        if not is_tidying:
            self.number, self._since = number, time.monotonic()
            self._set_alarm()
            if not must_wait:
                raise Stopped(number)

    def end(self, number: int) -> None:
        """End this process."""
        try:
            if self.says:
                os.write(2, f"{stop_sentence(self.command, number)}\n".encode("utf-8", "backslashreplace"))
        finally:  # the terminal may be gone
            os._exit(128 + number)

    def again(self, _number: int, frame: Any) -> None:
        """The handler of the alarm."""
        if not (number := self.number) or _is_importing(frame) or _is_unwinding():
            return
        if signal.getsignal(number) is not self:  # another handler gets the signal once
            self.forget()
        signal.raise_signal(number)

    def unraisable(self, unraisable: Any) -> None:
        """The hook for exceptions that Python cannot raise, as in a destructor. Stopped is not reported."""
        if not isinstance(unraisable.exc_value, Stopped):
            sys.__unraisablehook__(unraisable)

    def forget(self) -> None:
        """The signal does not come again. An alarm that somebody had set before it is set again, unless another came since."""
        self.number = 0
        if self._alarm is not None and signal.getsignal(signal.SIGALRM) == self.again:
            handler, due, interval = self._alarm
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)  # None: not one of Python, which cannot be set again
            if due:
                signal.setitimer(signal.ITIMER_REAL, max(due - time.monotonic(), _SOON_S), interval)
        self._alarm = None

    def _set_alarm(self) -> None:
        """Send the signal again and again. Not called before a signal came: until then other alarms work as before."""
        handler = signal.signal(signal.SIGALRM, self.again)
        left, interval = signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
        if self._alarm is None or handler != self.again:
            self._alarm = handler, time.monotonic() + left if left else 0.0, interval


def _is_unwinding() -> bool:
    """True if a block that cleans up after Stopped is running: it is then the exception that is handled, or in its context."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, Stopped):
        error = error.__context__
    return error is not None


def _is_importing(frame: Any) -> bool:
    """True if an import is under way. An exception in its middle leaves half a package, and some C++ aborts the process."""
    while frame is not None and frame.f_code.co_filename != _IMPORT_SYSTEM:
        frame = frame.f_back
    return frame is not None


_watch: _Watch | None = None


def watch_signals(command: str, *, says: bool = True) -> None:
    """From now on a stop signal ends this process at once, with one sentence that begins with `command` if it `says` that."""
    global _watch
    _watch = _Watch(command, says=says)
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _watch)


def is_own_process() -> bool:
    """True if this process runs one command and nothing else: it watches the signals (see watch_signals)."""
    return _watch is not None


def work_begins() -> None:
    """From now on a stop signal raises Stopped. Does nothing if this process does not watch the signals (see watch_signals)."""
    if _watch is not None:
        sys.unraisablehook = _watch.unraisable
        _watch.is_working = True


def work_ends() -> int:
    """From now on a stop signal ends this process at once again. Returns the number of the signal that came at work, or 0."""
    if _watch is None:
        return 0
    number, _watch.is_working = _watch.number, False
    _watch.forget()
    return number


def ignore_signals() -> int:
    """From now on a stop signal does nothing, for a process that writes what came of its work and ends by itself at once.

    Returns the number of the signal that came at work, or 0. Raises Stopped if one comes in the middle of the call: then call
    it again.
    """
    if _watch is None:
        return 0
    number, _watch.is_ending = _watch.number, True
    _watch.forget()
    return number


def stopping_signal(error: BaseException) -> int:
    """The signal that ended the work with `error`, also where a library has made another error of it; 0 if none did.

    A signal that a library has swallowed is not found: an error after it may be about something else (see report_failure).
    """
    if isinstance(error, KeyboardInterrupt):
        return error.number if isinstance(error, Stopped) else signal.SIGINT
    pending, seen = [error], set[int]()
    while pending:
        found = pending.pop()
        if isinstance(found, Stopped):
            return found.number
        if id(found) not in seen:
            seen.add(id(found))
            pending += [each for each in (found.__cause__, found.__context__) if each is not None]
    return 0
