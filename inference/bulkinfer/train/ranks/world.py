"""Which rank this process is, and how many there are: what torchrun, mpirun or srun has set."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from bulkinfer.errors import UsageError

_MOST_RANKS = 999_999
DEFAULT_PORT = "29500"  # torch's own


@dataclass(frozen=True, slots=True)
class World:
    """The ranks of a run: the number of this one, how many there are, and the same on this host.

    A replica consists of `stages` ranks in a row, each of which has a part of the network; 1 if the network is not divided.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    stages: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this rank logs and saves."""
        return self.rank == 0

    @property
    def replicas(self) -> int:
        """How many ranks, or rows of stages, share the pictures of an update."""
        return self.size // self.stages

    @property
    def replica(self) -> int:
        """The replica that this rank belongs to."""
        return self.rank // self.stages

    @property
    def stage(self) -> int:
        """The part of the network that this rank has."""
        return self.rank % self.stages


@dataclass(frozen=True, slots=True)
class Starter:
    """A program that starts ranks, and the variables that it sets: rank and number of ranks, and the same on this host."""

    name: str
    rank: str
    size: str
    local_rank: str
    local_size: str


_TORCHRUN = Starter("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_MPIRUN = Starter(
    "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"
)
# srun alone sets SLURM_STEP_NUM_TASKS: the script of an sbatch is one process, whatever SLURM_NTASKS says
_SRUN = Starter("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")


def find_starter() -> Starter | None:
    """The program that has started this process as one of several ranks; torchrun also if it is the only one."""
    if any(getattr(_TORCHRUN, name) in os.environ for name in ("rank", "size", "local_rank", "local_size")):
        return _TORCHRUN
    return next((each for each in (_MPIRUN, _SRUN) if os.environ.get(each.size, "1") != "1"), None)


def is_first_rank() -> bool:
    """True if this process is the first rank, which prints what is the same for all, or the only one."""
    starter = find_starter()
    return starter is None or os.environ.get(starter.rank, "0") == "0"


def find_world(replicas: int, stages: int = 1, *, is_plan: bool = False) -> World:
    """The ranks of which this process is one; for a plan, those asked for. `replicas` 0 is any number.

    Raises UsageError if there are others than asked for, if the variables of the starter are not as it sets them, or if the
    ranks could not find each other.
    """
    starter = find_starter()
    world = World() if starter is None else _world_of(starter)
    asked = (replicas or max(1, world.size // stages)) * stages
    if is_plan:
        return replace(world, size=asked, local_size=asked, stages=stages)
    name = "nothing" if starter is None else starter.name
    if asked != world.size:
        product = f"--replicas {asked // stages}" + (f" x --shards {stages}" if stages > 1 else "")
        raise UsageError(
            f"{product} needs {asked} processes, and {name} has started {world.size}: put torchrun --nproc_per_node {asked} "
            "--no_python in front of the command, or on a single host leave out what starts processes"
        )
    if world.size > world.local_size and not os.environ.get("MASTER_ADDR"):
        raise UsageError(
            f"{name} has started {world.size} processes on several hosts, and MASTER_ADDR is not set: set it to the "
            f"host of the first one, and MASTER_PORT to a port that is free there (default {DEFAULT_PORT})"
        )
    return replace(world, stages=stages)


def _world_of(starter: Starter) -> World:
    size = _number(starter, starter.size, 1, _MOST_RANKS + 1)
    local_size = _local_size(starter, size)
    return World(
        _number(starter, starter.rank, 0, size, of=starter.size),
        size,
        _number(starter, starter.local_rank, 0, local_size, of=starter.local_size),
        local_size,
    )


def _local_size(starter: Starter, size: int) -> int:
    if starter is not _SRUN:
        return _number(starter, starter.local_size, 1, _MOST_RANKS + 1)
    tasks = [
        int(count)
        for count, times in re.findall(r"(\d{1,6})(?:\(x(\d{1,6})\))?", os.environ.get(starter.local_size, ""))
        for _ in range(int(times or 1))
    ]
    return tasks[_number(starter, "SLURM_NODEID", 0, len(tasks))] if sum(tasks) == size else 1


def _number(starter: Starter, name: str, smallest: int, end: int, of: str = "") -> int:
    """A variable of the starter: a whole number from `smallest` to below `end`, which is the variable `of`."""
    text = os.environ.get(name)
    if text is None:
        return smallest
    if not re.fullmatch("[0-9]{1,6}", text) or not smallest <= int(text) < end:
        legal = f"a whole number from {smallest} to {end - 1}" + (f", as {of} is {end}" if of else "")
        raise UsageError(
            f"the variable {name} is {text!r}, and must be {legal}: unset it, or start with {starter.name}, which sets it"
        )
    return int(text)
