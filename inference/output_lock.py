"""_lock.json: one launcher at a time on an output directory."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inference.errors import LockedError
from inference.file_lock import exclusive
from inference.paths import FORMAT, process_start_ticks, temporary_path

LOCK_FILE = "_lock.json"
_TAKEOVER_FILE = "_lock.takeover"


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
    """Publish our lock by link, which fails if there is one: never a half-written lock, never two winners."""
    pid = os.getpid()
    holder = {"format": FORMAT, "host": socket.gethostname(), "pid": pid, "start_ticks": process_start_ticks(pid),
              "started": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}  # fmt: skip
    ours = temporary_path(path)
    ours.write_text(json.dumps(holder) + "\n")
    try:
        for _ in range(3):
            try:
                os.link(ours, path)
                return
            except FileExistsError:
                _remove_if_stale(path, flag)
        raise LockedError(f"{path} is being fought over by several launchers: run one of them")
    finally:
        ours.unlink(missing_ok=True)


def _remove_if_stale(path: Path, flag: str) -> None:
    """Remove the lock of a dead process; one heir at a time, so that none removes the lock of another who was faster."""
    with exclusive(path.with_name(_TAKEOVER_FILE), on_wait=lambda: None):
        try:
            holder = _read_holder(path)
        except FileNotFoundError:
            return
        same_host = holder["host"] == socket.gethostname()
        if not same_host or process_start_ticks(holder["pid"]) == holder["start_ticks"]:
            raise LockedError(
                f"{path.parent} is in use by a launcher on {holder['host']}, pid {holder['pid']}, started "
                f"{holder['started']}: wait for it, or give another {flag}"
                + ("" if same_host else f"; if that host is gone for good, remove {path}")
            )
        path.unlink()


def _read_holder(path: Path) -> dict[str, Any]:
    try:
        holder: dict[str, Any] = json.loads(path.read_bytes())
        return {name: holder[name] for name in ("host", "pid", "start_ticks", "started")}
    except (ValueError, KeyError, TypeError):  # a power cut may leave an empty file
        raise LockedError(f"{path} is damaged: if no launcher runs on {path.parent}, remove it") from None
