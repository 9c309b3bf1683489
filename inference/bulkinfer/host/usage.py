"""Memory and processor time that processes have used so far."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from pathlib import Path


def peak_memory_bytes(others: Iterable[int] = ()) -> int:
    """Largest resident size of this process so far, in bytes; with that of the processes `others`, each at its own time.

    Memory that they share counts in each of them.

    Read from /proc: the figure of getrusage is inherited over fork and exec, so it could be that of the launcher.
    """
    own = _peak_bytes("self") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return own + sum(_peak_bytes(pid) for pid in others)


def _peak_bytes(process: int | str) -> int:
    """0 if the process does not run, or the system does not say."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def cpu_seconds(others: Iterable[int] = ()) -> float:
    """User and system time of this process so far, in seconds, and of the processes `others` to the clock tick (10 ms)."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    ticks = sum(cpu_ticks(pid) or 0 for pid in others)
    return usage.ru_utime + usage.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def cpu_ticks(pid: int) -> int | None:
    """Processor time of a process so far, in clock ticks; None if it does not run (proc(5), fields 14 and 15)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    return int(fields[11]) + int(fields[12])
