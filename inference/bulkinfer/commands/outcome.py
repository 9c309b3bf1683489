"""The end of a command: every failure that a user can cause is one sentence on stderr, with its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from traceback import walk_tb
from types import ModuleType
from typing import NoReturn

from bulkinfer.errors import BulkinferError, os_error_sentence
from bulkinfer.host.console import drop_stdout, make_printing_safe, say_last
from bulkinfer.host.limits import exhausted  # not later: then there may be no memory to import it
from bulkinfer.host.stop_signals import stop_sentence, stopping_signal, work_begins, work_ends


def exit_code_of(command: str, act: Callable[[], int]) -> int:
    """Run `act`, which returns the exit code, and return that code, or that of its failure after one sentence on stderr.

    Until it ends a stop signal unwinds the work, if this process watches the signals. Bugs of bulkinfer are raised.
    """
    make_printing_safe()
    number = 0
    try:
        try:
            work_begins()
            code = act()
            sys.stdout.flush()
        finally:  # inside of the other try: a signal that is pending at this moment is raised by the call
            number = work_ends()
    except BaseException as error:
        code = report_failure(command, error, after_signal=work_ends() or number)
    return code


def report_failure(command: str, error: BaseException, *, after_signal: int = 0) -> int:
    """Print the one sentence of a failure; returns the exit code. Raises the error if it is a bug of bulkinfer.

    `after_signal` is the number of a signal that came before. A package whose import it has ended may fail in its own way when
    it is imported again: that failure is reported as the signal.
    """
    if isinstance(error, OSError) and (error.filename == "stdout" or isinstance(error, BrokenPipeError)):
        drop_stdout()
    sentence, code = _failure(command, error, after_signal)
    if not sentence:
        raise error
    say_last(sentence)
    return code


def leave(code: int) -> NoReturn:
    """End this process with `code`, without shutting the interpreter down; what it printed is flushed already.

    A thread of Arrow may still hold a Python object at that time. If it takes the interpreter's lock during the shutdown, the
    process aborts: commands that had done all their work ended with exit code 134.
    """
    os._exit(code)


def _failure(command: str, error: BaseException, after_signal: int) -> tuple[str, int]:
    """The last sentence of a command and its exit code; '' for a bug of bulkinfer."""
    if number := stopping_signal(error):
        return stop_sentence(command, number), 128 + number
    if isinstance(error, BulkinferError):
        return f"{command}: {error}", error.exit_code
    if isinstance(error, BrokenPipeError):  # the reader of stdout has ended, as in `... | head`
        return f"{command}: stopped, since nobody reads its output any more", 1
    what = ""
    if isinstance(error, OSError) and error.errno is not None:
        what = ": ".join([os_error_sentence(error), *getattr(error, "__notes__", ())])
    elif after_signal and _is_of_an_import(error):
        return stop_sentence(command, after_signal), 128 + after_signal
    elif isinstance(error, MemoryError | ImportError | SystemError | RuntimeError):
        what = exhausted(f"{type(error).__name__}: {error}")
    if not what and isinstance(error, ImportError):
        from bulkinfer.host.install_hint import unusable_package

        what = unusable_package(command, error)
    return f"{command}: {what}" if what else "", 1


def _is_of_an_import(error: BaseException) -> bool:
    """True if an import failed with `error`, or a module lacks a name, as one does whose import was ended."""
    if isinstance(error, ImportError) or isinstance(getattr(error, "obj", None), ModuleType):
        return True
    return any(frame.f_code.co_name == "<module>" for frame, _ in walk_tb(error.__traceback__))
