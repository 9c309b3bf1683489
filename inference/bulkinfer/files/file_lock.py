"""Locks to wait for, between processes and hosts: leases of which a dead process's is taken over."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bulkinfer.files.lease import Holder, Lease, is_busy, take

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5  # a look at the lock of a running process costs two small reads


@contextlib.contextmanager
def exclusive(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path` alone; `on_wait` is called once if another process holds it, then we wait.

    The folder of `path` must exist. The file is removed at the end; after a crash it stays and is taken over. Raises RunError
    at the end if the lock was lost meanwhile, LockedError if its file is damaged.
    """
    lease = _take(path, on_wait)
    lease.keep()
    try:
        yield
        lease.check()
    finally:
        lease.release()


def _take(path: Path, on_wait: Callable[[], None]) -> Lease:
    told = False

    def waiting(_: Holder) -> None:
        nonlocal told
        if not told:
            on_wait()
        told = True

    pause_s = _FIRST_PAUSE_S
    while not isinstance(found := take(path, on_watch=waiting), Lease):
        waiting(found)
        while is_busy(path, found):
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return found
