"""What the scripts of all peers share: the job they are given, and clock and CPU time around their finished batches.

Runs in the environment of the peers, and imports nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read_job() -> dict[str, Any]:
    """The job whose file is the only argument of the script."""
    job: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    return job


def picture_paths(job: dict[str, Any]) -> list[str]:
    """The pictures of the job, in the order of their names."""
    return sorted(entry.path for entry in os.scandir(job["pictures"]))


def tree_cpu_s(root: int) -> float:
    """User and system time so far of a process, its living descendants, and those that any of them has waited for."""
    parents, seconds = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{name}/stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):  # ended just now
            continue
        fields = stat.rpartition(b")")[2].split()
        parents[int(name)] = int(fields[1])
        seconds[int(name)] = sum(map(int, fields[11:15])) / TICKS_PER_S  # utime, stime, cutime, cstime

    def is_below(pid: int) -> bool:
        while pid != root and pid in parents:
            pid = parents[pid]
        return pid == root

    return sum(value for pid, value in seconds.items() if is_below(pid))


class Laps:
    """Notes the answers of every finished batch, and the time and CPU time of the first and of the last one."""

    def __init__(self) -> None:
        self.answers: dict[str, int] = {}
        self._first: tuple[float, float, int] | None = None  # time, CPU time, pictures
        self._last_s = 0.0

    def done(self, paths: Iterable[str], best_classes: Iterable[int]) -> None:
        """A batch is finished: the best class of each of its pictures is known."""
        found = {Path(path).name: int(best) for path, best in zip(paths, best_classes, strict=True)}
        self.answers.update(found)
        self._last_s = time.monotonic()
        if self._first is None:
            self._first = (self._last_s, tree_cpu_s(os.getpid()), len(found))

    def write(self, job: dict[str, Any], **facts: Any) -> None:
        """Write the result; to be called right after the last batch, while all processes are there."""
        assert self._first is not None, "no batch was finished"
        start_s, start_cpu_s, first = self._first
        seconds, cpu_s = self._last_s - start_s, tree_cpu_s(os.getpid()) - start_cpu_s
        write_result(job, self.answers, pictures=len(self.answers) - first, seconds=seconds, cpu_s=cpu_s, facts=facts)


def write_result(
    job: dict[str, Any], answers: dict[str, int], *, pictures: int, seconds: float, cpu_s: float, facts: dict[str, Any]
) -> None:
    """What tools/bench/peers.py reads: `pictures`, `seconds` and `cpu_s` lie between the first and the last finished batch."""
    result = {"answers": answers, "pictures": pictures, "seconds": seconds, "cpu_s": cpu_s, "facts": facts}
    Path(job["result"]).write_text(json.dumps(result))
