"""Counts what the picture decoder would print, by kind, for one summary line each in the log.

Pillow reports through `warnings` and through its logger, in any loader thread. warnings.catch_warnings changes state of the
whole process, so it is not safe in threads: one hook is installed once instead.
"""

from __future__ import annotations

import ctypes
import logging
import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

import PIL

_MAX_KINDS = 50  # messages quote files, so their number has no bound
_OTHER = "other decoder warnings"

_lock = threading.Lock()
_counts: Counter[str] = Counter()
_of_thread = threading.local()


def install_hooks() -> None:
    """Count Pillow's warnings and log messages from now on, and no other module's. A second call changes nothing."""
    warnings.filterwarnings("always", module=r"PIL\.")
    if not isinstance(warnings.showwarning, _CountingHook):
        warnings.showwarning = _CountingHook(warnings.showwarning)
    logger = logging.getLogger("PIL")
    if not any(isinstance(handler, _CountingHandler) for handler in logger.handlers):
        logger.addHandler(_CountingHandler(logging.WARNING))
        logger.propagate = False
    _hook_libtiff()


def count_notice(text: str) -> None:
    """Count one message; those that differ only in numbers are one kind. Thread-safe."""
    add_counts({re.sub(r"\d+", "N", " ".join(text.split()))[:120]: 1})


def add_counts(counts: Mapping[str, int]) -> None:
    """Add the counts of a loader process, by kind, which take_counts() gave there."""
    with _lock:
        for kind, count in counts.items():
            _counts[kind if kind in _counts or len(_counts) < _MAX_KINDS else _OTHER] += count


def take_counts() -> dict[str, int]:
    """The counts so far, by kind; they no longer count in this process."""
    if not _counts:
        return {}
    with _lock:
        counts = dict(_counts)
        _counts.clear()
    return counts


def warning_counts() -> dict[str, int]:
    """How often each kind of message came up in this process so far, most frequent first."""
    with _lock:
        return dict(_counts.most_common())


def take_fault() -> str:
    """What libtiff last found wrong with pixel data in this thread, and passed all the same; "" if nothing. Forgets it."""
    fault: str = getattr(_of_thread, "fault", "")
    _of_thread.fault = ""
    return fault


def _hook_libtiff() -> None:
    """Stop libtiff from printing to file descriptor 2, which Pillow allows, and note where it passes made-up pixels.

    Its handlers can be set only by a call into the library that Pillow has loaded; if that is not found, nothing is changed.
    """
    maps = Path("/proc/self/maps")
    lines = maps.read_text("utf-8", "surrogateescape").splitlines() if maps.exists() else []
    for path in {line.split(maxsplit=5)[5] for line in lines if "/libtiff" in line}:
        library = ctypes.CDLL(path)
        for setter, handler in ((library.TIFFSetErrorHandler, None), (library.TIFFSetErrorHandlerExt, _note_fault)):
            setter.argtypes, setter.restype = [ctypes.c_void_p], ctypes.c_void_p
            setter(handler)


def _note(_file: int | None, module: bytes | None, _text: int | None, _values: int | None) -> None:
    """Called by libtiff, in the thread that decodes. Only its reader of faxes goes on after an error, in the next line."""
    if module is not None and module.startswith(b"Fax"):
        _of_thread.fault = "lines of a fax that cannot be read"


_note_fault = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)(_note)


class _CountingHook:
    """Replaces warnings.showwarning: counts Pillow's warnings, and passes on all others."""

    def __init__(self, previous: Callable[..., None]) -> None:
        self._previous = previous
        self._folder = str(Path(PIL.__file__).parent)

    def __call__(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if filename.startswith(self._folder):
            count_notice(f"{category.__name__}: {message}")
        else:
            self._previous(message, category, filename, lineno, file, line)


class _CountingHandler(logging.Handler):
    """Counts what Pillow logs at WARNING and above; without a handler, logging would write it to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        count_notice(record.getMessage())
