"""The end of a command: every failure that a user can cause is one sentence on stderr, with its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from bulkinfer.host.console import ReaderHasEnough, drop_stdout, make_printing_safe, say_last
from bulkinfer.host.failure import sentence_and_code  # not later: then there may be no memory to import it
from bulkinfer.host.stop_signals import work_begins, work_ends


def exit_code_of(command: str, act: Callable[[], int]) -> int:
    """Run `act`, which returns the exit code, and return that code, or that of its failure after one sentence on stderr.

    The code is 0 too if what reads its data on stdout has enough. Until it ends a stop signal unwinds the work, if this process
    watches the signals. Bugs of bulkinfer are raised.
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
    except ReaderHasEnough:
        code = 0
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
    sentence, code = sentence_and_code(command, error, after_signal)
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
