"""_lock.json: only one launcher at a time may write to a folder of results or logs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bulkinfer.errors import DamagedLockError, LockedError
from bulkinfer.files import lease
from bulkinfer.files.lease import Holder, Lease
from bulkinfer.files.own_folder import make_own_folder

log = logging.getLogger("bulkinfer")

LOCK_FILE = "_lock.json"


@contextmanager
def results_lock(output: Path, *, replaces_damaged: bool = False) -> Iterator[Lease]:
    """Lock a results folder, by a file in its own folder (see own_folder.py), which is made; `output` is not. See output_lock.

    The lock of an earlier version, which lies in `output`, is respected too.
    """
    folder = make_own_folder(output)
    with output_lock(folder, flag="--output", shown=output, replaces_damaged=replaces_damaged) as lease_there:
        if folder != output and os.path.lexists(output / LOCK_FILE):
            with output_lock(output, flag="--output", replaces_damaged=replaces_damaged):
                pass  # its holder has ended
        yield lease_there


@contextmanager
def output_lock(folder: Path, *, flag: str, shown: Path | None = None, replaces_damaged: bool = False) -> Iterator[Lease]:
    """Lock a folder for this process; the yielded lease shows whether the lock is still held.

    The lock of a process that has ended is taken over: at once if it ran on this host, otherwise if the lock is not renewed
    for LEASE_S seconds. `flag` is the option that would name another folder, `shown` the folder that messages name.
    `replaces_damaged`: a lock file that does not say who holds it is removed.
    Raises LockedError with host, pid and start of the holder, or with the file's name if it is damaged.
    """
    path, shown = folder / LOCK_FILE, shown or folder

    def watching(holder: Holder) -> None:
        log.info(f"{shown} is locked by {_named(holder)}: waiting up to {lease.LEASE_S:g} s to see whether it still runs")

    def taken_over(holder: Holder) -> None:
        log.warning(
            f"infer_launch: warning: {path} belonged to {_named(holder)}, and was not renewed for {lease.LEASE_S:g} s: taken "
            "over; if that launcher was only cut off from the file system, it stops when it sees this"
        )

    try:
        found = lease.take(path, on_watch=watching, on_takeover=taken_over)
    except DamagedLockError:
        if not replaces_damaged or path.is_dir():
            raise
        log.warning(f"infer_launch: warning: {path} was damaged, and is replaced as --overwrite asks")
        path.unlink(missing_ok=True)
        found = lease.take(path, on_watch=watching, on_takeover=taken_over)
    if not isinstance(found, Lease):
        raise LockedError(
            f"{shown} is in use by {_named(found)}: wait for it, or give another {flag}"
            + ("" if lease.is_here(found) else f"; if that host is gone for good, remove {path}")
        )
    found.keep()
    try:
        yield found
    finally:
        found.release()


def _named(holder: Holder) -> str:
    return f"a launcher on {holder['host']}, pid {holder['pid']}, started {holder['started']}"
