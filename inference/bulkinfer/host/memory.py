"""Memory of this machine: how much a process may use, and the same in words."""

from __future__ import annotations

from pathlib import Path

_GIB = 1 << 30


def usable_memory(root: Path = Path("/")) -> int | None:
    """Bytes of memory that this machine has, or the limit of this control group; None if not known. `root` is for tests."""
    sizes = _sizes(root)
    return None if sizes is None else min(sizes["MemTotal"], *_limits(root)) if _limits(root) else sizes["MemTotal"]


def describe_memory(root: Path = Path("/")) -> str:
    """Memory of the machine, what is free of it, and the limit of this control group. `root` is for tests."""
    if (sizes := _sizes(root)) is None:
        return "not known: there is no /proc/meminfo"
    text = f"{sizes['MemTotal'] / _GIB:.1f} GiB, {sizes['MemAvailable'] / _GIB:.1f} GiB available"
    for limit in _limits(root):
        if limit < sizes["MemTotal"]:
            text += f", of which this container may use {limit / _GIB:.1f} GiB"
    return text


def _sizes(root: Path) -> dict[str, int] | None:
    """The lines of /proc/meminfo, in bytes."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines}


def _limits(root: Path) -> list[int]:
    """The limits of this control group, in bytes, by its versions 2 and 1."""
    files = [root / name for name in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")]
    found = [file.read_text().strip() for file in files if file.is_file()]
    return [int(limit) for limit in found if limit.isdecimal()]
