"""Identify a process by pid and start time, and by its process table: other hosts and containers have their own."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import NamedTuple

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PIDS = Path("/proc/self/ns/pid")


class Table(NamedTuple):
    """Identifies a table of processes. None: the system does not say.

    Several hosts may have one name, so the boot id is part of it: pids and start times repeat after a boot. `pids` is the pid
    namespace: in another container of the same host the same pid is another process.
    """

    host: str
    boot_id: str | None
    pids: str | None

    @property
    def is_here(self) -> bool:
        """True if the table is provably the one of this process: a process that is not seen here has then ended."""
        return None not in self and self == this_table()

    @property
    def digest(self) -> str:
        """Twelve hex digits, for file names."""
        return hashlib.sha256("\n".join(map(str, self)).encode("utf-8", "surrogateescape")).hexdigest()[:12]


class Owner(NamedTuple):
    """One process, until its machine restarts: the digest of its table, its pid, its start time in clock ticks."""

    table: str
    pid: int
    start_ticks: int

    @property
    def is_gone(self) -> bool:
        """True if it has provably ended; False if it runs, or may run where we cannot see it (another table, no /proc)."""
        here = this_table()
        return here.is_here and self.table == here.digest and not is_running(self.pid, self.start_ticks)


def this_table() -> Table:
    """The process table of this process."""
    return Table(socket.gethostname(), _boot_id(), _pids())


def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None


def _pids() -> str | None:
    try:
        return os.readlink(_PIDS)
    except OSError:
        return None


def process_start_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None if it does not run (a zombie does not).

    Together with the pid it identifies a process until the machine restarts (proc(5), stat fields 3 and 22).
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_running(pid: int, start_ticks: int) -> bool:
    """True if the process with this pid and start time still runs, in the table of this process."""
    return process_start_ticks(pid) == start_ticks
