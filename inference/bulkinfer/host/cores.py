"""The cores that this process may use, and how workers, streams and loader threads share them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bulkinfer.errors import UsageError

MAX_PROCESSES = 1024  # of one host
# Loader threads of one process share an interpreter: 16 of them kept 6.3 of 16 cores busy (docs/adr/0015).
CORES_PER_WORKER = 8
THREADS_PER_PROCESS = 5  # for the same reason; beyond that, loader processes take them (docs/adr/0024)
THREADS_ONLY = -1  # of --loader_processes
# Of each kind in one worker. A thread that waits for slow files leaves its core to others, but not to hundreds of them.
_THREADS_PER_CORE, _THREADS_ANYWHERE = 32, 64


@dataclass(frozen=True, slots=True)
class CoreBudget:
    """Cores of the affinity mask, the control-group quota in cores (None: unlimited), and the cores left by both: `usable`."""

    affinity: tuple[int, ...]
    quota: float | None

    @property
    def usable(self) -> int:
        """The number of cores to plan with, at least 1. A fraction of a core in the quota is not worth another thread."""
        cores = len(self.affinity) if self.quota is None else min(len(self.affinity), math.floor(self.quota))
        return max(1, cores)

    def __str__(self) -> str:
        quota = "no quota" if self.quota is None else f"quota {self.quota:g}"
        return f"{self.usable} usable of {len(self.affinity)} in the affinity mask, {quota}"


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """Thread counts of all workers of this host. `affinity[i]` are the cores of worker i, `devices[i]` its device number."""

    num_devices: int
    streams: int
    threads_per_stream: int
    num_workers: int
    affinity: tuple[tuple[int, ...], ...]
    devices: tuple[int, ...]
    loader_processes: int = 0  # of each worker, which its loader threads are spread over; 0: they load in the worker itself

    def with_devices(self, devices: Sequence[int]) -> ThreadPlan:
        """The same plan with the workers on the devices with these numbers."""
        assert len(devices) == self.num_devices, (devices, self.num_devices)
        return replace(self, devices=tuple(devices))

    def __str__(self) -> str:
        workers = "1 worker" if self.num_devices == 1 else f"{self.num_devices} workers"
        processes = f" in {self.loader_processes} loader process(es)" if self.loader_processes else ""
        return (
            f"{workers}, each {self.streams} stream(s) x {self.threads_per_stream} thread(s) "
            f"and {self.num_workers} loader thread(s){processes}; spinning off"
        )


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The plan of another host. Each worker sees only its own GPU, or its share of one, so all devices have the number 0."""

    threads: ThreadPlan
    gpus_per_worker: float  # 0: it needs none


def core_budget(root: Path = Path("/")) -> CoreBudget:
    """The cores that the affinity mask and control groups (v1 and v2) leave to this process. `root` is for tests."""
    return CoreBudget(tuple(sorted(os.sched_getaffinity(0))), _cgroup_quota(root))


def _cgroup_quota(root: Path) -> float | None:
    """The smallest CPU quota, in cores, of this process's control groups and all their parents; None: no limit."""
    quotas = []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []  # no control groups, so no quota
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mounts: tuple[str, ...]
        if not controllers:
            mounts, read = ("sys/fs/cgroup", "sys/fs/cgroup/unified"), _quota_v2
        elif "cpu" in controllers.split(","):
            mounts, read = (f"sys/fs/cgroup/{controllers}", "sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"), _quota_v1
        else:
            continue
        for mount in mounts:
            group = root / mount / path.lstrip("/")
            # in a container the path may be that of the host: walking up ends at the mount, which is the container's
            quotas += [read(folder) for folder in (group, *group.parents) if folder.is_relative_to(root / mount)]
    limits = [quota for quota in quotas if quota is not None]
    return min(limits) if limits else None


def _quota_v2(folder: Path) -> float | None:
    """cpu.max: "<quota|max> <period>", in microseconds."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _quota_v1(folder: Path) -> float | None:
    """cpu.cfs_quota_us (-1: none) over cpu.cfs_period_us."""
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return None if quota <= 0 else quota / period


def check_threads(budget: CoreBudget, **asked: int) -> None:
    """Raises UsageError for more threads or loader processes, by the names of their options, than the cores can ever serve."""
    most = max(_THREADS_ANYWHERE, _THREADS_PER_CORE * budget.usable)
    for option, number in asked.items():
        if number > most:
            cores = "1 core" if budget.usable == 1 else f"{budget.usable} cores"
            raise UsageError(f"--{option} {number} is too many for {cores}: give at most {most}, or leave it out")


def workers_for(budget: CoreBudget) -> int:
    """The number of worker processes that keep the cores busy if the network runs on the processor."""
    return max(1, budget.usable // CORES_PER_WORKER)


def loader_processes_for(asked: int, num_workers: int) -> int:
    """How many processes load the pictures of `num_workers` threads; `asked` is as --loader_processes takes it."""
    if asked:
        return min(max(asked, 0), num_workers)
    return 0 if num_workers <= THREADS_PER_PROCESS else -(-num_workers // THREADS_PER_PROCESS)


def plan_threads(
    budget: CoreBudget,
    *,
    num_devices: int,
    streams: int,
    num_workers: int,
    threads_per_stream: int = 0,
    loader_processes: int = THREADS_ONLY,
) -> ThreadPlan:
    """Divide the cores of `budget`; a parameter of 0 is chosen here.

    Raises UsageError for more than MAX_PROCESSES workers, for more loader processes than loader threads, and as check_threads
    does.

    One worker takes all cores, with one single-threaded stream per core: concurrent runs are faster than one run on many
    threads. If there are at most as many workers as cores, each gets its own block of cores. If there are more, all share all
    cores, since a worker tied to one core would leave other cores idle when their workers end first.
    """
    devices = num_devices or 1
    if devices > MAX_PROCESSES:
        raise UsageError(f"{devices} worker processes are too many: at most {MAX_PROCESSES} on one host")
    check_threads(
        budget,
        num_workers=num_workers,
        loader_processes=loader_processes,
        streams=streams,
        threads_per_stream=threads_per_stream,
    )
    if 0 < num_workers < loader_processes:
        raise UsageError(
            f"--loader_processes {loader_processes}: each has a loader thread at least, and --num_workers is {num_workers}: "
            "give fewer processes or more threads"
        )
    share = max(1, budget.usable // devices)
    loaders = num_workers or max(share, loader_processes)
    chosen_streams = streams or share
    if devices <= budget.usable:
        affinity = tuple(_block(budget.affinity, devices, index) for index in range(devices))
    else:
        affinity = (budget.affinity,) * devices
    return ThreadPlan(
        num_devices=devices,
        streams=chosen_streams,
        threads_per_stream=threads_per_stream or max(1, share // chosen_streams),
        num_workers=loaders,
        affinity=affinity,
        devices=(0,) * devices,
        loader_processes=loader_processes_for(loader_processes, loaders),
    )


def _block(cores: tuple[int, ...], parts: int, index: int) -> tuple[int, ...]:
    """The index-th of `parts` contiguous blocks whose sizes differ by at most one."""
    start, end = len(cores) * index // parts, len(cores) * (index + 1) // parts
    return cores[start:end]
