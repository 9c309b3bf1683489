"""_lock.json: only one launcher at a time may write to an output directory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bulkinfer.errors import LockedError
from bulkinfer.files import lease
from bulkinfer.files.lease import Holder, Lease

log = logging.getLogger("bulkinfer")

LOCK_FILE = "_lock.json"


@contextmanager
def output_lock(output: Path, *, flag: str) -> Iterator[Lease]:
    """Lock the directory for this process; the yielded lease shows whether the lock is still held.

    The lock of a process that has ended is taken over: at once if it ran on this host, otherwise if the lock is not renewed
    for LEASE_S seconds. `flag` is the option that would name another directory.
    Raises LockedError with host, pid and start of the holder, or with the file's name if it is damaged.
    """
    path = output / LOCK_FILE

    def watching(holder: Holder) -> None:
        log.info(f"{output} is locked by {_named(holder)}: waiting up to {lease.LEASE_S:g} s to see whether it still runs")

    def taken_over(holder: Holder) -> None:
        log.warning(
            f"infer_launch: warning: {path} belonged to {_named(holder)}, and was not renewed for {lease.LEASE_S:g} s: taken "
            "over; if that launcher was only cut off from the file system, it stops when it sees this"
        )

    found = lease.take(path, on_watch=watching, on_takeover=taken_over)
    if not isinstance(found, Lease):
        raise LockedError(
            f"{output} is in use by {_named(found)}: wait for it, or give another {flag}"
            + ("" if lease.is_here(found) else f"; if that host is gone for good, remove {path}")
        )
    found.keep()
    try:
        yield found
    finally:
        found.release()


def _named(holder: Holder) -> str:
    return f"a launcher on {holder['host']}, pid {holder['pid']}, started {holder['started']}"
