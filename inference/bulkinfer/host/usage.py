"""Memory and processor time that processes have used so far."""

from __future__ import annotations

import resource
from pathlib import Path


def peak_memory_bytes() -> int:
    """Largest resident size of this process so far, in bytes.

    Read from /proc: the figure of getrusage is inherited over fork and exec, so it could be that of the launcher.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cpu_seconds() -> float:
    """User and system time of this process so far, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_ticks(pid: int) -> int | None:
    """Processor time of a process so far, in clock ticks; None if it does not run (proc(5), fields 14 and 15)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    return int(fields[11]) + int(fields[12])
