"""Memory of this machine, for people."""

from __future__ import annotations

from pathlib import Path

_GIB = 1 << 30


def describe_memory(root: Path = Path("/")) -> str:
    """Memory of the machine, what is free of it, and the limit of this control group. `root` is for tests."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return "not known: there is no /proc/meminfo"
    sizes = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    text = f"{sizes['MemTotal'] / _GIB:.1f} GiB, {sizes['MemAvailable'] / _GIB:.1f} GiB available"
    for name in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = (root / name).read_text().strip() if (root / name).is_file() else "max"
        if limit.isdecimal() and int(limit) < sizes["MemTotal"]:
            text += f", of which this container may use {int(limit) / _GIB:.1f} GiB"
    return text
