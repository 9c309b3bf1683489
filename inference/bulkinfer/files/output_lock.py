"""_lock.json: only one launcher at a time may write to a folder of results or logs."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bulkinfer.errors import DamagedLockError, LockedError
from bulkinfer.files import lease
from bulkinfer.files.lease import Holder, Lease
from bulkinfer.files.own_folder import LOCK_FILE as LOCK_FILE
from bulkinfer.files.own_folder import make_own_folder, other_places, own_folder
from bulkinfer.host.process_identity import is_running

log = logging.getLogger("bulkinfer")

LAUNCHER = "a launcher"
_REMOVAL_S = 10.0  # how long to wait for another launcher that removes a damaged lock


@contextmanager
def results_lock(output: Path, *, flag: str = "--output", replaces_damaged: bool = False) -> Iterator[Lease]:
    """Lock a results folder, by a file in its own folder (see own_folder.py), which is made; `output` is not. See output_lock.

    The lock of an earlier version, which lies in `output`, and one in the other place for own files are respected too. An own
    folder that was made here and is not used is removed.
    """
    was_there = own_folder(output).is_dir()
    folder = make_own_folder(output)
    try:
        with output_lock(folder, flag=flag, shown=output, replaces_damaged=replaces_damaged) as lease_there:
            for other in other_places(output):
                if os.path.lexists(other / LOCK_FILE):
                    with output_lock(other, flag=flag, shown=output, replaces_damaged=replaces_damaged):
                        pass  # its holder has ended
            yield lease_there
    finally:
        if not was_there and folder != output and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


@contextmanager
def output_lock(
    folder: Path, *, flag: str, shown: Path | None = None, replaces_damaged: bool = False, whose: str = LAUNCHER
) -> Iterator[Lease]:
    """Lock a folder for this process; the yielded lease shows whether the lock is still held.

    The lock of a process that has ended is taken over: at once if it ran on this host, otherwise if the lock is not renewed
    for LEASE_S seconds. `flag` is the option that would name another folder (empty: there is none), `shown` the folder that
    messages name, `whose` what its holder is called there.
    `replaces_damaged`: a lock file that does not say who holds it is removed.
    Raises LockedError with host, pid and start of the holder, or with the file's name if it is damaged.
    """
    path, shown = folder / LOCK_FILE, shown or folder

    def watching(holder: Holder) -> None:
        log.info(
            f"{shown} is locked by {holder_in_words(holder, whose)}: waiting up to {lease.LEASE_S:g} s to see whether it still "
            "runs"
        )

    def taken_over(holder: Holder) -> None:
        log.warning(
            f"warning: {path} belonged to {holder_in_words(holder, whose)}, and was not renewed for {lease.LEASE_S:g} s: taken "
            "over; if that one was only cut off from the file system, it stops when it sees this"
        )

    try:
        found = lease.take(path, on_watch=watching, on_takeover=taken_over)
    except DamagedLockError:
        if not replaces_damaged or path.is_dir():
            raise
        log.warning(f"warning: {path} was damaged, and is replaced as --overwrite asks")
        _remove_damaged(path)
        found = lease.take(path, on_watch=watching, on_takeover=taken_over)
    if not isinstance(found, Lease):
        raise LockedError(
            f"{shown} is in use by {holder_in_words(found, whose)}: wait for it"
            + (f", or give another {flag}" if flag else "")
            + ("" if lease.is_here(found) else f"; if that host is gone for good, remove {path}")
        )
    found.keep()
    try:
        yield found
    finally:
        found.release()


def launcher_in(output: Path) -> str:
    """The launcher that writes to a results folder, in words; empty if none does, or none that is known to live."""
    holders = (living_holder(folder) for folder in (own_folder(output), *other_places(output)))
    return next((holder_in_words(holder) for holder in holders if holder is not None), "")


def living_holder(folder: Path) -> Holder | None:
    """Who holds the lock in `folder`; None if nobody does, or nobody that is known to live.

    One of another host, whose process cannot be looked up here, counts while it renews its lock.
    """
    path = folder / LOCK_FILE
    if not os.path.lexists(path):
        return None
    try:
        holder = lease.read_holder(path)
    except (DamagedLockError, OSError):
        return None
    return holder if holder is not None and _seems_alive(path, holder) else None


def _seems_alive(path: Path, holder: Holder) -> bool:
    if lease.is_here(holder):
        return holder["start_ticks"] is None or is_running(holder["pid"], holder["start_ticks"])
    try:
        return time.time() - os.stat(path).st_mtime < lease.LEASE_S
    except OSError:
        return False


def _remove_damaged(path: Path) -> None:
    """Remove a damaged lock. Launchers do so one after the other, and each looks again: it may be the new lock of another."""
    deadline = time.monotonic() + _REMOVAL_S
    while not isinstance(turn := lease.take(path.with_name(f"{path.name}.removal")), Lease):
        if time.monotonic() > deadline:
            return  # the caller finds what is there
        time.sleep(0.05)
    try:
        lease.read_holder(path)
    except DamagedLockError:
        path.unlink(missing_ok=True)
    finally:
        turn.release()


def holder_in_words(holder: Holder, whose: str = LAUNCHER) -> str:
    """Who holds a lock, for a message."""
    return f"{whose} on {holder['host']}, pid {holder['pid']}, started {holder['started']}"
