"""Which rank this process is, and how many there are."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from bulkinfer.errors import UsageError

_MOST_REPLICAS = 999_999


@dataclass(frozen=True, slots=True)
class World:
    """The processes that share an update: the number of this one, how many there are, and the same on this host."""

    rank: int = 0
    replicas: int = 1
    local_rank: int = 0
    local_replicas: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process logs, validates and saves."""
        return self.rank == 0


def find_world(asked: int, *, is_plan: bool = False) -> World:
    """The replicas that torchrun started; for a plan, those asked for.

    Raises UsageError if another number is asked for, or if the variables of torchrun are not as it sets them.
    """
    world = World(
        number_in("RANK", below="WORLD_SIZE"),
        number_in("WORLD_SIZE"),
        number_in("LOCAL_RANK", below="LOCAL_WORLD_SIZE"),
        number_in("LOCAL_WORLD_SIZE"),
    )
    if is_plan and asked and world.replicas == 1:
        return World(replicas=asked, local_replicas=asked)
    if asked and asked != world.replicas:
        starter = f"torchrun --standalone --nproc_per_node {asked} --no_python"
        raise UsageError(f"--replicas {asked}, but {world.replicas} running: put {starter} in front of the command")
    return world


def number_in(name: str, below: str = "") -> int:
    """A variable of torchrun: a rank, which is below the number in the variable `below`, or the number of processes."""
    text, smallest = os.environ.get(name), 0 if below else 1
    end = number_in(below) if below else _MOST_REPLICAS + 1
    if text is None:
        return smallest
    if not re.fullmatch("[0-9]{1,6}", text) or not smallest <= int(text) < end:
        legal = f"a whole number from {smallest} to {end - 1}" + (f", as {below} is {end}" if below else "")
        raise UsageError(
            f"the variable {name} is {text!r}, and must be {legal}: unset it, or start with torchrun, which sets it"
        )
    return int(text)
