"""Locks between processes: held by an open file, so that a crash releases them; by a lease where files cannot be locked."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from inference.lease import Lease, take

_NO_FLOCK = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # what network file systems without locks answer
_AGAIN_S = 0.5  # how often we ask again for a lease


@contextlib.contextmanager
def exclusive(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path` alone; `on_wait` is called once if another process holds it, then we wait.

    The folder of `path` must exist. The file is removed at the end; after a crash it stays and is simply taken again.
    """
    descriptor = None
    try:
        descriptor = _take(path, on_wait)
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        path.unlink(missing_ok=True)
    if descriptor is None:
        with _leased(path, on_wait):
            yield
        return
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still locked: whoever waits notices that it holds a removed file
        os.close(descriptor)


@contextlib.contextmanager
def _leased(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """The same with the file `<path>.lease`, which other hosts respect too."""
    told = False
    while not isinstance(found := take(path.with_name(f"{path.name}.lease")), Lease):
        if not told:
            on_wait()
            told = True
        time.sleep(_AGAIN_S)
    found.keep()
    try:
        yield
        found.check()
    finally:
        found.release()


def _take(path: Path, on_wait: Callable[[], None]) -> int:
    told = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                on_wait()
                told = True
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            os.close(descriptor)
            raise
        if _is_same_file(descriptor, path):
            return descriptor
        os.close(descriptor)  # the holder before us removed it: what we locked is no longer what others will lock


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
