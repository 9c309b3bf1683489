"""Leases: a file that says who holds something and is renewed by its holder. Between processes and hosts, without flock.

A lock is published by a link, which fails if there is one, and replaced by a rename, which only the one heir of its holder
may do: the process that holds the file `<lock>.heir-<token>`, a lock of the same kind, and has seen the dead lock since.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict, cast

from bulkinfer.errors import LockedError, RunError, os_error_sentence
from bulkinfer.files.atomic import FORMAT, temporary_path
from bulkinfer.files.json_validation import misfit
from bulkinfer.host.process_identity import Table, is_running, process_start_ticks, this_table

log = logging.getLogger("bulkinfer")

BEAT_S = 10.0  # how often a holder touches its lock
LEASE_S = 60.0  # how long we watch a lock not being touched until its holder, whom we cannot look for, counts as gone
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # what file systems without hard links answer
_WRITING_S = 2.0  # how long a lock that is just being written may look damaged
_FIGHT_S = 10.0  # how long several heirs may take to agree
_HEIR = ".heir-"


class Holder(TypedDict):
    """Who holds a lock: the fields of its Table, and of its process. `token` is another one for every lock ever taken."""

    host: str
    boot_id: str | None
    pids: str | None
    pid: int
    start_ticks: int | None
    started: str
    token: str


class Lease:
    """A lock that this process has taken. `keep` renews it from a thread until `release`."""

    def __init__(self, path: Path, token: str) -> None:
        self.path, self.token = path, token
        self._lost = threading.Event()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self) -> None:
        """Begin to renew it."""
        self._thread = threading.Thread(target=self._beat, name=f"lease {self.path.name}", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._end.wait(BEAT_S):
            try:
                if not is_held(self.path, self.token):
                    self._lost.set()
                    return
                os.utime(self.path)
            except OSError:  # its server may come back; whether the lock was ours all the time is then seen by its token
                continue

    @property
    def refusal(self) -> RunError | None:
        """Why the holder must stop: its lock was seen to be gone or another's; None while it was not."""
        return _lost(self.path) if self._lost.is_set() else None

    def check(self) -> None:
        """Raises RunError if the lock is no longer ours, by a look at the file itself."""
        check(self.path, self.token)

    def release(self) -> None:
        """Give it up; a lock that another has taken over stays.

        So does one whose file system fails: it is not touched any more, and the work under it has ended, well or not.
        """
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        try:
            if is_held(self.path, self.token):  # renewed within BEAT_S, so that nobody is just taking it over
                self.path.unlink(missing_ok=True)
        except OSError as error:
            log.warning(
                f"{self.path} cannot be removed ({os_error_sentence(error)}): whoever comes next sees that nobody renews it"
            )


def check(path: Path, token: str) -> None:
    """Raises RunError if the lock with this token, of this process or of its launcher, is no longer the one at `path`."""
    if not is_held(path, token):
        raise _lost(path)


def _lost(path: Path) -> RunError:
    return RunError(
        f"{path} is gone or another's: who held it has ended, or was taken for dead; nothing more is published here: "
        f"see who uses {path.parent}"
    )


def is_held(path: Path, token: str) -> bool:
    """Whether the lock with this token is still the one that lies at `path`."""
    try:
        value: Any = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return isinstance(value, dict) and value.get("token") == token


def is_busy(path: Path, holder: Holder) -> bool:
    """Whether the lock is still the one of this holder, whose process is seen to run. Cheap; take() watches all others."""
    return is_here(holder) and is_held(path, holder["token"]) and not _is_gone(path, holder, None)


def take(
    path: Path,
    *,
    on_watch: Callable[[Holder], None] | None = None,
    on_heir: Callable[[Holder], None] | None = None,
) -> Lease | Holder:
    """The lock, or who holds it. One of a holder that is gone is taken over, by one of all that try.

    A holder of our table of processes is gone when its process is; any other one, of another host or container, or of before
    a restart, when its lock is not touched for LEASE_S while we look at it, which `on_watch` is told of before and `on_heir`
    afterwards. Raises LockedError if the lock is damaged.
    """
    content, token = _ours()
    deadline = time.monotonic() + _FIGHT_S
    while time.monotonic() < deadline:
        holder = read_holder(path) or (None if _is_published(path, content) else read_holder(path))
        if holder is None:
            if is_held(path, token):
                _remove_heirs(path, token)
                return Lease(path, token)
            continue
        if holder["token"] == token:  # the answer to our link was lost on its way, not the link
            return Lease(path, token)
        began = time.monotonic()
        if not _is_gone(path, holder, on_watch):
            if (now := read_holder(path)) is not None and now["token"] == holder["token"]:
                return holder
        elif _inherited(path, holder, content):
            if on_heir is not None and not is_here(holder):
                on_heir(holder)
            _remove_heirs(path, token)
            return Lease(path, token)
        else:
            time.sleep(0.02)
        if not is_here(holder):
            deadline += time.monotonic() - began  # watching is no fight
    raise LockedError(f"{path} is being fought over by several processes: run one of them")


def _ours() -> tuple[bytes, str]:
    """The content of a lock of this process, and its token."""
    pid, token = os.getpid(), secrets.token_hex(8)
    table = this_table()
    holder = Holder(host=table.host, boot_id=table.boot_id, pids=table.pids, pid=pid, start_ticks=process_start_ticks(pid),
                    started=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", token=token)  # fmt: skip
    return json.dumps({"format": FORMAT, **holder}).encode() + b"\n", token


def is_here(holder: Holder) -> bool:
    """Whether the holder's process can be looked for: its number is provably of the table that this process is in."""
    return Table(holder["host"], holder["boot_id"], holder["pids"]).is_here


def _is_published(path: Path, content: bytes) -> bool:
    """Create the lock, if there is none. By link it is there whole or not at all; without links it is written in place."""
    ours = temporary_path(path)
    try:
        _write(ours, content)
        os.link(ours, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
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
    """Create a file whole or not at all; a power cut would leave an empty one, hence the fsync."""
    with new.open("xb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            new.unlink(missing_ok=True)  # it is ours
            raise


def read_holder(path: Path) -> Holder | None:
    """Who holds the lock; None if it is gone.

    Raises LockedError if it is damaged and stays so: a power cut may leave an empty one.
    """
    deadline = time.monotonic() + _WRITING_S
    while True:
        try:
            value: Any = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            value = None
        if not misfit(value, Holder):
            return cast(Holder, value)
        if time.monotonic() >= deadline:
            raise LockedError(f"{path} is damaged: if nothing of bulkinfer works in {path.parent}, remove it")
        time.sleep(0.05)


def _is_gone(path: Path, holder: Holder, on_watch: Callable[[Holder], None] | None) -> bool:
    if is_here(holder):
        return holder["start_ticks"] is not None and not is_running(holder["pid"], holder["start_ticks"])
    if on_watch is not None:
        on_watch(holder)
    seen, deadline = _last_beat(path), time.monotonic() + LEASE_S
    while time.monotonic() < deadline:
        time.sleep(min(1.0, LEASE_S / 20))
        if _last_beat(path) != seen:
            return False
    return True


def _last_beat(path: Path) -> tuple[int, int] | None:
    """What changes whenever the holder touches the lock: no clock of ours is compared with one of another host.

    The file is opened, which makes a network file system ask its server.
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_ino


def _inherited(path: Path, dead: Holder, content: bytes) -> bool:
    """Replace the lock of a holder that is gone by ours, if we are its heir; False if another is, or was."""
    claim = take(path.with_name(f"{path.name.partition(_HEIR)[0]}{_HEIR}{dead['token']}"))
    if not isinstance(claim, Lease):
        return False
    try:
        there = read_holder(path)  # nobody but us may replace it from here on
        if there is None or there["token"] != dead["token"]:
            return False
        ours = temporary_path(path)
        try:
            _write(ours, content)
            os.rename(ours, path)
        finally:
            ours.unlink(missing_ok=True)
        return True
    finally:
        claim.release()


def _remove_heirs(path: Path, token: str) -> None:
    """Remove what heirs have left who died over a lock before ours: it is worth nothing, since that lock is gone."""
    if _HEIR in path.name:
        return
    for name in os.listdir(path.parent):
        if name.startswith(f"{path.name}{_HEIR}") and not name.endswith(token):
            path.with_name(name).unlink(missing_ok=True)
