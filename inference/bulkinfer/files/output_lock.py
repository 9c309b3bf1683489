"""_lock.json: one launcher at a time on an output directory."""

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
    """Hold the directory for this process; the lease tells whether it is still held.

    A lock of a process that is gone is taken over: at once where it was one of this host, else when it was not renewed while
    we watched it. `flag` is the option that would name another directory.
    Raises LockedError naming host, pid and start of the holder, or the file if it is damaged.
    """
    path = output / LOCK_FILE

    def watching(holder: Holder) -> None:
        log.info(f"{output} is locked by {_named(holder)}: watching for up to {lease.LEASE_S:g} s whether it still runs")

    def inherited(holder: Holder) -> None:
        log.warning(
            f"infer_launch: warning: {path} of {_named(holder)}, was not renewed for {lease.LEASE_S:g} s: taken over; if that "
            "launcher was only cut off, it stops when it finds out"
        )

    found = lease.take(path, on_watch=watching, on_heir=inherited)
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
