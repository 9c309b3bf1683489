"""Locks between processes of one host: held by an open file, so that a crash releases them."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path` alone; `on_wait` is called once if another process holds it, then we wait.

    The folder of `path` must exist. The file is removed at the end; after a crash it stays and is simply taken again.
    """
    descriptor = _take(path, on_wait)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still locked: whoever waits notices that it holds a removed file
        os.close(descriptor)


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
