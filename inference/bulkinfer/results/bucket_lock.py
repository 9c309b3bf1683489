"""The lock of an output in a bucket: an object that names its holder and that the holder renews, by conditional puts.

It is made if there is none, renewed in place of the one that its holder put last, and taken over in place of the one that a
dead holder left: so of several processes one has it, without clocks that agree.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import Any, cast

from bulkinfer.errors import BulkinferError, ConflictError, DamagedLockError, LockedError, RunError, StoreError, UsageError
from bulkinfer.files import lease
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.json_validation import mismatch
from bulkinfer.files.lease import Call
from bulkinfer.files.lock_holder import Holder, is_here, lock_text, new_holder
from bulkinfer.host.process_identity import is_running
from bulkinfer.results.bucket_store import put_object, read_object
from bulkinfer.results.output_store import output_store
from bulkinfer.stores.store import open_store

log = logging.getLogger("bulkinfer")

_MOST_BYTES = 1 << 16
_CONTENTION_S = 30.0  # several processes that want the same lock may take so long to agree
_LOOK_S = 2.0  # between two looks at a lock that may be renewed


class BucketLease:
    """A lock that this process has taken; see files.lease.Lease, which is the same for a lock file."""

    def __init__(self, path: AddressPath, holder: Holder, tag: str) -> None:
        self.path, self.token = path, holder["token"]
        self._holder, self._tag, self._beats = holder, tag, 0
        self._lost, self._end = threading.Event(), threading.Event()
        self._cut_off: RunError | None = None  # why the last beat failed
        self._thread = threading.Thread(target=self._beat, name=f"lease {path.name}", daemon=True)

    def keep(self) -> None:
        """Start the thread that renews the lock, or release the lock if that fails or a signal comes meanwhile."""
        try:
            self._thread.start()
        except BaseException:
            self.release()
            raise

    def _beat(self) -> None:
        while not self._end.wait(lease.BEAT_S):
            self._beats += 1  # the same content would have the same tag
            try:
                self._tag = put_object(self.path, lock_text(self._holder, beat=self._beats), instead_of=self._tag)
                self._cut_off = None
            except ConflictError:
                self._lost.set()
                return
            except RunError as error:  # the store may come back; the token then shows whether the lock is still ours
                self._cut_off = error

    @property
    def refusal(self) -> RunError | None:
        """The error for which the holder must stop: the renewing thread saw that the lock was lost. None while it is held."""
        return _lost(self.path) if self._lost.is_set() else None

    def check(self) -> None:
        """Read the lock; raises RunError if it is no longer ours, or the store did not take the last beat."""
        if self._cut_off is not None:
            raise self._cut_off
        check(self.path, self.token)

    def release(self) -> None:
        """Remove the lock, unless another process has taken it over. If the store fails, it stays, with a warning."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            if self._cut_off is not None:
                raise self._cut_off
            if is_held(self.path, self.token):  # renewed a moment ago, so no other process is about to take it over
                output_store(self.path.parent).remove(self.path.name)
        except BulkinferError as error:
            log.warning(f"{self.path} stays: the next launcher takes it over, as it is not renewed any more ({error})")


def take(path: AddressPath, *, on_watch: Call = None, on_takeover: Call = None) -> BucketLease | Holder:
    """Take the lock, or return its holder; see files.lease.take. Raises DamagedLockError if it does not say who holds it."""
    ours = new_holder()
    content, end = lock_text(ours), time.monotonic() + _CONTENTION_S
    try:
        while time.monotonic() < end:
            there = _read(path)
            tag = ""
            if there is not None:
                holder, tag = there
                began = time.monotonic()
                if not _is_dead(path, holder, tag, on_watch):
                    return holder
                if not is_here(holder):
                    end += time.monotonic() - began  # the time spent watching does not count
            try:
                lease_here = BucketLease(path, ours, put_object(path, content, instead_of=tag))
            except ConflictError:
                continue
            _require_conditions(path, content)
            if there is not None and on_takeover is not None and not is_here(there[0]):
                on_takeover(there[0])
            return lease_here
    except BaseException:  # a signal may come when the lock is ours already
        BucketLease(path, ours, "").release()
        raise
    raise LockedError(f"{path} is wanted by several processes at once: run only one of them")


def _require_conditions(path: AddressPath, content: bytes) -> None:
    """Raises UsageError if the store takes a put that it must refuse. `content` is that of the lock: nothing changes there."""
    store, key = open_store(str(path))
    try:
        store.put(key, content, only_new=True)
    except (ConflictError, StoreError):  # StoreError: the answer was lost, and says nothing
        return
    raise UsageError(
        f"{path} was put twice: this store does not know conditional puts (If-None-Match), so that two launchers could "
        "write at once: give another store, or a folder"
    )


def check(path: AddressPath, token: str) -> None:
    """Raises RunError if the lock no longer has this token, which is that of this process or of its launcher."""
    if not is_held(path, token):
        raise _lost(path)


def _lost(path: AddressPath) -> RunError:
    return RunError(
        f"{path} was lost: its holder has ended, or did not renew it for {lease.LEASE_S:g} s; nothing more is published here: "
        f"find out which process uses {path.parent.parent}"
    )


def is_held(path: AddressPath, token: str) -> bool:
    """True if the lock still has this token."""
    found = read_object(path, _MOST_BYTES)
    value = None if found is None else _parsed(found.data)
    return isinstance(value, dict) and value.get("token") == token


def living_holder(path: AddressPath) -> Holder | None:
    """Who holds the lock; None if nobody does, or nobody that is known to live.

    One of another host, whose process cannot be looked up here, counts while it renews its lock, by the clock of the store.
    """
    if (found := read_object(path, _MOST_BYTES)) is None or mismatch(value := _parsed(found.data), Holder):
        return None
    holder = cast(Holder, value)
    if is_here(holder):
        return holder if not _has_ended(holder) else None
    return holder if time.time() - found.changed_s < lease.LEASE_S else None


def _read(path: AddressPath) -> tuple[Holder, str] | None:
    """Who holds the lock, and the tag of it; None if there is no lock."""
    if (found := read_object(path, _MOST_BYTES)) is None:
        return None
    if mismatch(value := _parsed(found.data), Holder):
        raise DamagedLockError(f"{path} is damaged: if no bulkinfer process works there, remove that object")
    return cast(Holder, value), found.tag


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _has_ended(holder: Holder) -> bool:
    return holder["start_ticks"] is not None and not is_running(holder["pid"], holder["start_ticks"])


def _is_dead(path: AddressPath, holder: Holder, tag: str, on_watch: Call) -> bool:
    """True if the process of the holder has ended; where it cannot be looked up, if it does not renew for LEASE_S seconds."""
    if is_here(holder):
        return _has_ended(holder)
    if on_watch is not None:
        on_watch(holder)
    end = time.monotonic() + lease.LEASE_S
    while time.monotonic() < end:
        time.sleep(min(_LOOK_S, lease.LEASE_S / 20))
        try:
            now = _read(path)
        except StoreError:  # what is not seen does not count as a beat, and the put in its place decides
            continue
        if now is None or now[1] != tag:
            return now is None
    return True
