"""The lock of an output: only one launcher at a time may write there, to a folder or to a bucket."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from bulkinfer.errors import DamagedLockError, LockedError, RunError
from bulkinfer.files import lease, output_lock
from bulkinfer.files.addresses import AddressPath, address_of
from bulkinfer.files.lease import Holder
from bulkinfer.files.output_lock import holder_in_words, results_lock
from bulkinfer.files.own_folder import LOCK_FILE, own_folder

log = logging.getLogger("bulkinfer")


class HeldLock(Protocol):
    """A lock that this process holds: a lease.Lease, or a BucketLease."""

    token: str

    @property
    def path(self) -> Path:
        """The lock: a file, or an object."""

    @property
    def refusal(self) -> RunError | None:
        """The error for which the holder must stop; None while the lock is held."""

    def check(self) -> None:
        """Raises RunError if the lock is no longer held."""


@contextmanager
def lock_of_output(output: Path, *, flag: str = "--output", replaces_damaged: bool = False) -> Iterator[HeldLock]:
    """Lock an output for this process; see output_lock.results_lock."""
    if not isinstance(output, AddressPath):
        with results_lock(output, flag=flag, replaces_damaged=replaces_damaged) as held:
            yield held
        return
    with _bucket_lock(output, flag, replaces_damaged) as held_there:
        yield held_there


@contextmanager
def _bucket_lock(output: AddressPath, flag: str, replaces_damaged: bool) -> Iterator[HeldLock]:
    from bulkinfer.results import bucket_lock
    from bulkinfer.results.output_store import output_store

    path = AddressPath(own_folder(output) / LOCK_FILE)

    def watching(holder: Holder) -> None:
        who = holder_in_words(holder)
        log.info(f"{output} is locked by {who}: waiting up to {lease.LEASE_S:g} s to see whether it still runs")

    def taken_over(holder: Holder) -> None:
        log.warning(
            f"warning: {path} belonged to {holder_in_words(holder)}, and was not renewed for {lease.LEASE_S:g} s: taken over; "
            "if that launcher was only cut off from the bucket, it stops when it sees this"
        )

    try:
        found = bucket_lock.take(path, on_watch=watching, on_takeover=taken_over)
    except DamagedLockError:
        if not replaces_damaged:
            raise
        log.warning(f"warning: {path} was damaged, and is replaced as --overwrite asks")
        output_store(path.parent).remove(path.name)
        found = bucket_lock.take(path, on_watch=watching, on_takeover=taken_over)
    if not isinstance(found, bucket_lock.BucketLease):
        raise LockedError(
            f"{output} is in use by {holder_in_words(found)}: wait for it" + (f", or give another {flag}" if flag else "")
        )
    found.keep()
    try:
        yield found
    finally:
        found.release()


def check_lock(path: str, token: str) -> None:
    """Raises RunError if the lock at `path`, a file or an object, no longer has this token."""
    if not address_of(path):
        lease.check(Path(path), token)
        return
    from bulkinfer.results import bucket_lock

    bucket_lock.check(AddressPath(path), token)


def is_lock_held(path: str, token: str) -> bool:
    """True if the lock at `path`, a file or an object, still has this token."""
    if not address_of(path):
        return lease.is_held(Path(path), token)
    from bulkinfer.results import bucket_lock

    return bucket_lock.is_held(AddressPath(path), token)


def living_holder(folder: Path) -> Holder | None:
    """Who holds the lock in a log folder or own folder; see output_lock.living_holder."""
    if not isinstance(folder, AddressPath):
        return output_lock.living_holder(folder)
    from bulkinfer.results import bucket_lock

    return bucket_lock.living_holder(AddressPath(folder / LOCK_FILE))


def launcher_in(output: Path) -> str:
    """The launcher that writes to an output, in words; empty if none does, or none that is known to live."""
    if not isinstance(output, AddressPath):
        return output_lock.launcher_in(output)
    holder = living_holder(own_folder(output))
    return "" if holder is None else holder_in_words(holder)
