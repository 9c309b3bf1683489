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
from inference.paths import FORMAT, process_start_ticks, temporary_path

LOCK_FILE = "_lock.json"


@contextmanager
def output_lock(output: Path) -> Iterator[None]:
    """Hold the directory for this process. A lock of a dead process of this host is taken over.

    Raises LockedError naming host, pid and start of the holder.
    """
    path = output / LOCK_FILE
    _acquire(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _acquire(path: Path) -> None:
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
                _remove_if_stale(path)
        raise LockedError(f"{path} is being fought over by several launchers: run one of them")
    finally:
        ours.unlink(missing_ok=True)


def _remove_if_stale(path: Path) -> None:
    """Take a dead process's lock away by renaming it, so that only one of several heirs succeeds."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    holder: dict[str, Any] = json.loads(text) if text.strip() else {}
    same_host = holder.get("host") == socket.gethostname()
    if not same_host or process_start_ticks(int(holder["pid"])) == holder["start_ticks"]:
        raise LockedError(
            f"{path.parent} is in use by a launcher on {holder.get('host')}, pid {holder.get('pid')}, started "
            f"{holder.get('started')}: wait for it, or give another --output"
            + ("" if same_host else f"; if that host is gone for good, remove {path}")
        )
    stale = temporary_path(path)
    try:
        path.rename(stale)
    except FileNotFoundError:
        return
    if stale.read_bytes() != text:  # a new holder came in between: give it back
        os.link(stale, path)
    stale.unlink(missing_ok=True)
