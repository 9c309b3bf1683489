"""Sentences about limits of this machine that a process has reached: which one, and what to do."""

from __future__ import annotations

import resource

_NO_THREAD = "can't start new thread"
# Where there is no memory: Python; the dynamic linker and Python, for a compiled package; the C++ library
_NO_MEMORY = (
    "MemoryError",
    "failed to map segment",
    "annot allocate memory",
    "SystemError: execution of module",
    "std::bad_alloc",
)


def exhausted(error: str) -> str:
    """The sentence for an error that means that a limit was reached; '' for others. `error` begins with its class."""
    if _NO_THREAD in error:
        return no_thread()
    return no_memory() if any(words in error for words in _NO_MEMORY) else ""


def no_memory() -> str:
    """The sentence for an allocation that failed."""
    return f"out of memory{_limit(resource.RLIMIT_AS)}: free some, or raise the limit of this shell (ulimit -v)"


def no_thread() -> str:
    """The sentence for a thread that could not be started: its stack needs memory, and it counts as a process."""
    if limit := _limit(resource.RLIMIT_AS):
        return f"out of memory for another thread{limit}: raise the limit of this shell (ulimit -v)"
    return (
        f"no further thread can be started{_limit(resource.RLIMIT_NPROC, 'processes and threads')}: raise the limit of this "
        "shell (ulimit -u) or of its container, or end other processes"
    )


def _limit(kind: int, unit: str = "bytes") -> str:
    """The limit of this process in words; '' if it has none."""
    most = resource.getrlimit(kind)[0]
    return "" if most == resource.RLIM_INFINITY else f" (the limit is {most:,} {unit})"
