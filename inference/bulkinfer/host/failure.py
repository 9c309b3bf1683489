"""What a user reads of an error that ends a process: one sentence, with the exit code."""

from __future__ import annotations

import errno
from traceback import walk_tb
from types import ModuleType

from bulkinfer.errors import BulkinferError, os_error_sentence
from bulkinfer.host.limits import exhausted  # not later: then there may be no memory to import it
from bulkinfer.host.stop_signals import stop_sentence, stopping_signal


def sentence_and_code(command: str, error: BaseException, after_signal: int = 0) -> tuple[str, int]:
    """The last sentence of a command that ends with `error`, and its exit code; '' for a bug of bulkinfer.

    `after_signal` is the number of a signal that came before.
    """
    if number := stopping_signal(error):
        return stop_sentence(command, number), 128 + number
    if isinstance(error, BulkinferError):
        return f"{command}: {error}", error.exit_code
    if isinstance(error, BrokenPipeError):  # the reader of stdout has ended, as in `... | head`
        return f"{command}: stopped, since nobody reads its output any more", 1
    what = ""
    if isinstance(error, OSError) and error.errno is not None:
        what = os_error_sentence(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            what += ": free some space, and type the command again"
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
