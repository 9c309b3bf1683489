"""What a command prints: the per-step line in its fixed shape, and the lines that the library logs."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path


def step_line(total_s: float, wait_s: float, compute_s: float, images: int) -> str:
    """The line of one step: seconds since the previous line, of which waiting for data and computing, and images/s.

    Other programs parse this line: its form must not change.
    """
    total_s = max(total_s, 1e-9)
    return (
        f"Total {total_s:.3f} sec.   Preprocessing {wait_s:.3f} sec ({100 * wait_s / total_s:.1f}%).   "
        f"Compute {compute_s:.3f} sec ({100 * compute_s / total_s:.1f}%).   {images / total_s:.1f} images/sec."
    )


class PlainHandler(logging.Handler):
    """Prints each record as a plain line: warnings and errors on stderr, everything else on stdout.

    A stream that cannot be written to raises OSError: a full disk is not swallowed.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line and flush it."""
        print(record.getMessage(), file=sys.stderr if record.levelno >= logging.WARNING else sys.stdout, flush=True)


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
