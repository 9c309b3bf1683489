"""_lock.json: one launcher at a time on an output directory."""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict, cast

from inference.errors import LockedError
from inference.file_lock import exclusive
from inference.paths import FORMAT, is_running, process_start_ticks, temporary_path
from inference.structure import misfit

LOCK_FILE = "_lock.json"
_TAKEOVER_FILE = "_lock.takeover"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # what file systems without hard links answer
_WRITING_S = 2.0  # how long a lock that is just being written may look damaged


class Holder(TypedDict):
    """Who holds the lock. None: that host does not tell."""

    host: str
    boot_id: str | None
    pid: int
    start_ticks: int | None
    started: str


@contextmanager
def output_lock(output: Path, *, flag: str) -> Iterator[None]:
    """Hold the directory for this process. A lock of a dead process of this host is taken over.

    `flag` is the option that would name another directory.
    Raises LockedError naming host, pid and start of the holder, or the file if it is damaged.
    """
    path = output / LOCK_FILE
    _acquire(path, flag)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _acquire(path: Path, flag: str) -> None:
    """Publish our lock, which fails if there is one: never two winners."""
    pid = os.getpid()
    holder = Holder(host=socket.gethostname(), boot_id=_boot_id(), pid=pid, start_ticks=process_start_ticks(pid),
                    started=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")  # fmt: skip
    content = json.dumps({"format": FORMAT, **holder}).encode() + b"\n"
    for _ in range(3):
        try:
            _publish(path, content)
            return
        except FileExistsError:
            _remove_if_stale(path, flag)
    raise LockedError(f"{path} is being fought over by several launchers: run one of them")


def _publish(path: Path, content: bytes) -> None:
    """Create the lock. By link it is there whole or not at all; where links are not to be had, it is written in place."""
    ours = temporary_path(path)
    try:
        ours.write_bytes(content)
        os.link(ours, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _create(path, content)
    finally:
        ours.unlink(missing_ok=True)


def _create(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)  # it is ours
            raise


def _remove_if_stale(path: Path, flag: str) -> None:
    """Remove the lock of a dead process; one heir at a time, so that none removes the lock of another who was faster."""
    with exclusive(path.with_name(_TAKEOVER_FILE), on_wait=lambda: None):
        try:
            holder = _read_holder(path)
        except FileNotFoundError:
            return
        if not _is_stale(holder):
            is_here = holder["host"] == socket.gethostname()
            raise LockedError(
                f"{path.parent} is in use by a launcher on {holder['host']}, pid {holder['pid']}, started "
                f"{holder['started']}: wait for it, or give another {flag}"
                + ("" if is_here else f"; if that host is gone for good, remove {path}")
            )
        path.unlink()


def _is_stale(holder: Holder) -> bool:
    """Whether the holder is known to be gone: a process of this host that does not run, or ran before the last boot."""
    if holder["host"] != socket.gethostname():
        return False
    if holder["boot_id"] and (now := _boot_id()) and holder["boot_id"] != now:
        return True
    return holder["start_ticks"] is not None and not is_running((holder["pid"], holder["start_ticks"]))


def _boot_id() -> str | None:
    """What names the time since this machine was started; process numbers and start times repeat after that."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None


def _read_holder(path: Path) -> Holder:
    """Raises FileNotFoundError, and LockedError if the lock is damaged and stays so: a power cut may leave an empty one."""
    deadline = time.monotonic() + _WRITING_S
    while True:
        try:
            value: Any = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            value = None
        holder = {"boot_id": None, **value} if isinstance(value, dict) else value
        if not misfit(holder, Holder):
            return cast(Holder, holder)
        if time.monotonic() >= deadline:
            raise LockedError(f"{path} is damaged: if no launcher runs on {path.parent}, remove it")
        time.sleep(0.05)
