"""Processes by number and start, and the table that the numbers are of: other hosts and containers have their own."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import NamedTuple

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PIDS = Path("/proc/self/ns/pid")


class Table(NamedTuple):
    """What names a table of processes. None: that system does not tell.

    Several hosts may bear one name, so the boot counts: process numbers and start times repeat after it. `pids` is the
    namespace of the numbers: in another container of the same host the same number is another process.
    """

    host: str
    boot_id: str | None
    pids: str | None

    @property
    def is_here(self) -> bool:
        """Whether a process that is not seen here is gone: the table is provably the one of this process."""
        return None not in self and self == this_table()

    @property
    def digest(self) -> str:
        """Twelve hex digits, for names of files."""
        return hashlib.sha256("\n".join(map(str, self)).encode("utf-8", "surrogateescape")).hexdigest()[:12]


class Owner(NamedTuple):
    """One process for as long as its machine is up: the digest of its table, its number, its start in clock ticks."""

    table: str
    pid: int
    start_ticks: int

    @property
    def is_gone(self) -> bool:
        """Whether it has provably ended. One of another table may run, and so may one here that is not seen through /proc."""
        here = this_table()
        return here.is_here and self.table == here.digest and not is_running(self.pid, self.start_ticks)


def this_table() -> Table:
    """The table that this process is in."""
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

    With the pid it names one process for as long as the machine is up (proc(5), stat fields 3 and 22).
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_running(pid: int, start_ticks: int) -> bool:
    """Whether the process with this number that started then still runs, in the table of this process."""
    return process_start_ticks(pid) == start_ticks
