"""Locks that a process waits for, between processes and hosts. The lock of a dead process is taken over."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bulkinfer.files.lease import Holder, Lease, is_busy, take

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5  # checking the lock of a running process costs two small reads


@contextlib.contextmanager
def exclusive(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path`; waits while another process holds it, after calling `on_wait` once.

    The folder of `path` must exist. The file is removed at the end. After a crash it stays, and the next process takes it over.
    Raises RunError at the end if the lock was lost in the meantime, LockedError if the file is damaged.
    """
    lease = _take(path, on_wait)
    lease.keep()
    try:
        yield
        lease.check()
    finally:
        lease.release()


def _take(path: Path, on_wait: Callable[[], None]) -> Lease:
    is_reported = False

    def report_once(_: Holder) -> None:
        nonlocal is_reported
        if not is_reported:
            on_wait()
        is_reported = True

    pause_s = _FIRST_PAUSE_S
    while not isinstance(found := take(path, on_watch=report_once), Lease):
        report_once(found)
        while is_busy(path, found):
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return found
