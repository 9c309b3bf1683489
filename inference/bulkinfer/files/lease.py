"""Leases: lock files that name their holder and that the holder renews. They work between hosts, without flock.

A lock is created by a hard link, which fails if the lock exists. The lock of a dead holder is replaced by a rename, which only
its heir may do: the process that holds the lock file `<lock>.heir-<token>` and then still finds the dead holder's lock.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, cast

from bulkinfer.errors import DamagedError, DamagedLockError, LockedError, RunError, os_error_sentence
from bulkinfer.files.atomic import NO_LINKS, naming, temporary_path
from bulkinfer.files.guarded import open_regular, read_bytes
from bulkinfer.files.json_validation import mismatch
from bulkinfer.files.lock_holder import Holder as Holder
from bulkinfer.files.lock_holder import is_here as is_here
from bulkinfer.files.lock_holder import lock_text, new_holder
from bulkinfer.host.process_identity import is_running
from bulkinfer.types import shell_word

log = logging.getLogger("bulkinfer")

BEAT_S = 10.0  # how often a holder renews (touches) its lock
LEASE_S = 60.0  # a holder whose process we cannot look up counts as dead if it does not renew its lock for so long
_WRITING_S = 2.0  # a lock that is just being written may look damaged for so long
_CONTENTION_S = 10.0  # several processes that want the same lock may take so long to agree
_HEIR = ".heir-"
_MOST_BYTES = 1 << 16  # of a lock file
Call: TypeAlias = "Callable[[Holder], None] | None"  # what is done when something is seen of a holder


class Lease:
    """A lock that this process has taken. After `keep` a thread renews it until `release`."""

    def __init__(self, path: Path, token: str) -> None:
        self.path, self.token = path, token
        self._lost, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {path.name}", daemon=True)

    def keep(self) -> None:
        """Start the thread that renews the lock, or release the lock if that fails or a signal comes meanwhile."""
        try:
            self._thread.start()
        except BaseException:
            self.release()
            raise

    def _beat(self) -> None:
        while not self._end.wait(BEAT_S):
            try:
                if not is_held(self.path, self.token):
                    self._lost.set()
                    return
                os.utime(self.path)
            except OSError:  # the file server may come back; the token then shows whether the lock is still ours
                continue

    @property
    def refusal(self) -> RunError | None:
        """The error for which the holder must stop: the renewing thread saw that the lock was lost. None while it is held."""
        return _lost(self.path) if self._lost.is_set() else None

    def check(self) -> None:
        """Read the lock file; raises RunError if the lock is no longer ours."""
        check(self.path, self.token)

    def release(self) -> None:
        """Remove the lock, unless another process has taken it over.

        If the file system fails, the lock file stays, with a warning: nobody renews it, and the next process takes it over.
        """
        self._end.set()
        if self._thread.is_alive():  # one that is just beginning ends by itself
            self._thread.join()
        try:
            if is_held(self.path, self.token):  # renewed within BEAT_S, so no other process is about to take it over
                self.path.unlink(missing_ok=True)
        except OSError as error:
            log.warning(
                f"{self.path} cannot be removed ({os_error_sentence(error)}): the next launcher takes it over, as it is not "
                "renewed any more"
            )


def check(path: Path, token: str) -> None:
    """Raises RunError if the lock at `path` no longer has this token, which is that of this process or of its launcher."""
    if not is_held(path, token):
        raise _lost(path)


def _lost(path: Path) -> RunError:
    if not path.parent.is_dir():
        return RunError(f"{path.parent} was removed or renamed while it was in use: run the same command again")
    return RunError(
        f"{path} was lost: its holder has ended, or did not renew it for {LEASE_S:g} s; nothing more is published here: "
        f"find out which process uses {path.parent}"
    )


def is_held(path: Path, token: str) -> bool:
    """True if the lock at `path` still has this token."""
    try:
        value: Any = json.loads(read_bytes(path, _MOST_BYTES))
    except (FileNotFoundError, ValueError, RecursionError, DamagedError):
        return False
    return isinstance(value, dict) and value.get("token") == token


def is_busy(path: Path, holder: Holder) -> bool:
    """True if this holder still has the lock and its process is seen to run here. Cheap: for other holders it is False."""
    return is_here(holder) and is_held(path, holder["token"]) and not _is_dead(path, holder, None)


def take(path: Path, *, on_watch: Call = None, on_takeover: Call = None) -> Lease | Holder:
    """Take the lock, or return its holder. The lock of a dead holder is taken over, by exactly one of those that try.

    A holder in the process table of this process is dead when its process has ended. Any other holder (of another host or
    container, or from before a restart) is dead when it does not renew its lock for LEASE_S seconds while we watch; `on_watch`
    is called before this wait, `on_takeover` after it. Raises LockedError if the lock is damaged.
    """
    holder = new_holder()
    content, token = lock_text(holder), holder["token"]
    try:
        return _take(path, content, token, on_watch, on_takeover)
    except BaseException:  # a signal may come when the lock is ours already
        Lease(path, token).release()
        raise


def _take(path: Path, content: bytes, token: str, on_watch: Call, on_takeover: Call) -> Lease | Holder:
    deadline = time.monotonic() + _CONTENTION_S
    while time.monotonic() < deadline:
        with naming(path):
            holder = read_holder(path) or (None if _is_published(path, content) else read_holder(path))
        if holder is None:
            if is_held(path, token):
                _remove_heirs(path, token)
                return Lease(path, token)
            continue
        if holder["token"] == token:  # the link was made, only the file server's answer was lost
            return Lease(path, token)
        began = time.monotonic()
        if not _is_dead(path, holder, on_watch):
            if (now := read_holder(path)) is not None and now["token"] == holder["token"]:
                return holder
        elif _takes_over(path, holder, content):
            if on_takeover is not None and not is_here(holder):
                on_takeover(holder)
            _remove_heirs(path, token)
            return Lease(path, token)
        else:
            time.sleep(0.02)
        if not is_here(holder):
            deadline += time.monotonic() - began  # the time spent watching does not count
    raise LockedError(f"{path} is wanted by several processes at once: run only one of them")


def _is_published(path: Path, content: bytes) -> bool:
    """Create the lock; False if there is one. A hard link makes it complete at once; without links it is written in place."""
    ours = temporary_path(path)
    try:
        _write(ours, content)
        os.link(ours, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _is_created(path, content)
    finally:
        ours.unlink(missing_ok=True)
    return True


def _is_created(path: Path, content: bytes) -> bool:
    try:
        _write(path, content)
    except FileExistsError:
        return False
    return True


def _write(new: Path, content: bytes) -> None:
    """Create a file completely or not at all; without the fsync a power cut could leave an empty one."""
    with new.open("xb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            new.unlink(missing_ok=True)  # this process created it
            raise


def read_holder(path: Path) -> Holder | None:
    """Who holds the lock; None if there is no lock.

    Raises DamagedLockError if the file stays damaged for _WRITING_S seconds: a power cut may leave an empty one.
    """
    deadline = time.monotonic() + _WRITING_S
    while True:
        try:
            value: Any = json.loads(read_bytes(path, _MOST_BYTES))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError, DamagedError):
            value = None
        if not mismatch(value, Holder):
            return cast(Holder, value)
        if time.monotonic() >= deadline:
            remove = f"rm -r {shell_word(path)}"
            raise DamagedLockError(f"{path} is damaged: if no bulkinfer process works there, remove it: {remove}")
        time.sleep(0.05)


def _is_dead(path: Path, holder: Holder, on_watch: Call) -> bool:
    if is_here(holder):
        return holder["start_ticks"] is not None and not is_running(holder["pid"], holder["start_ticks"])
    if on_watch is not None:
        on_watch(holder)
    seen, deadline = _last_beat(path), time.monotonic() + LEASE_S
    if seen is None:  # it has been released
        return False
    while time.monotonic() < deadline:
        time.sleep(min(1.0, LEASE_S / 20))
        if _last_beat(path) != seen:
            return False
    return True


def _last_beat(path: Path) -> tuple[int, int] | None:
    """A value that changes whenever the holder renews the lock. Clocks of different hosts are never compared.

    The file is opened because that makes a network file system ask its server.
    """
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno())
    except (FileNotFoundError, DamagedError):
        return None
    return found.st_mtime_ns, found.st_ino


def _takes_over(path: Path, dead: Holder, content: bytes) -> bool:
    """Replace the lock of a dead holder by ours; False if another process does so, or has done so."""
    claim = take(path.with_name(f"{path.name.partition(_HEIR)[0]}{_HEIR}{dead['token']}"))
    if not isinstance(claim, Lease):
        return False
    try:
        there = read_holder(path)  # from here on only this process may replace it
        if there is None or there["token"] != dead["token"]:
            return False
        ours = temporary_path(path)
        try:
            with naming(path):
                _write(ours, content)
            os.rename(ours, path)
        finally:
            ours.unlink(missing_ok=True)
        return True
    finally:
        claim.release()


def _remove_heirs(path: Path, token: str) -> None:
    """Remove heir files of earlier locks, left by processes that died while taking over: those locks are gone."""
    if _HEIR in path.name:
        return
    for name in os.listdir(path.parent):
        if name.startswith(f"{path.name}{_HEIR}") and not name.endswith(token):
            path.with_name(name).unlink(missing_ok=True)
