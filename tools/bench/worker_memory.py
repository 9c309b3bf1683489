"""The memory of the workers of a launch together, read while they run."""

from __future__ import annotations

import os
import threading
from pathlib import Path

_POLL_S = 0.1
_WORKER = b"bulkinfer.worker.process"
_MIB = 1 << 10  # KiB in one


class WorkerMemory:
    """Within the block it looks for workers among the processes below this one, and keeps the largest sums over all of them.

    `resident_mib` counts a page in each process that maps it, `proportional_mib` counts it once (Rss and Pss of smaps_rollup).
    Both are 0 if there were never `workers` of them at once.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self.resident_mib = self.proportional_mib = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="worker memory", daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(_POLL_S):
            found = [sizes for pid in _workers_below(os.getpid()) if (sizes := _sizes(pid))]
            if len(found) == self._workers:
                self.resident_mib = max(self.resident_mib, sum(sizes["Rss:"] for sizes in found) / _MIB)
                self.proportional_mib = max(self.proportional_mib, sum(sizes["Pss:"] for sizes in found) / _MIB)


def _workers_below(pid: int) -> list[int]:
    """The workers among the processes that `pid` started, at any distance."""
    found, below = [], _children(pid)
    while below:
        child = below.pop()
        below += _children(child)
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if _WORKER in words:
            found.append(child)
    return found


def _children(pid: int) -> list[int]:
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    except OSError:  # it has ended
        return found
    return found


def _sizes(pid: int) -> dict[str, int]:
    """The sizes of a process in KiB, by the names of smaps_rollup; none if it has ended."""
    try:
        lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) == 3}
