"""Replicas: the processes started by torchrun that share each update."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor

from bulkinfer.errors import UsageError
from bulkinfer.host.cores import core_budget

_MOST_REPLICAS = 999_999
_LONGEST_VALIDATION = timedelta(hours=6)  # the first replica validates while the others wait for it


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
        _number("RANK", below="WORLD_SIZE"),
        _number("WORLD_SIZE"),
        _number("LOCAL_RANK", below="LOCAL_WORLD_SIZE"),
        _number("LOCAL_WORLD_SIZE"),
    )
    if is_plan and asked and world.replicas == 1:
        return World(replicas=asked, local_replicas=asked)
    if asked and asked != world.replicas:
        starter = f"torchrun --standalone --nproc_per_node {asked} --no_python"
        raise UsageError(f"--replicas {asked}, but {world.replicas} running: put {starter} in front of the command")
    return world


def _number(name: str, below: str = "") -> int:
    """A variable of torchrun: a rank, which is below the number in the variable `below`, or the number of processes."""
    text, smallest = os.environ.get(name), 0 if below else 1
    end = _number(below) if below else _MOST_REPLICAS + 1
    if text is None:
        return smallest
    if not re.fullmatch("[0-9]{1,6}", text) or not smallest <= int(text) < end:
        legal = f"a whole number from {smallest} to {end - 1}" + (f", as {below} is {end}" if below else "")
        raise UsageError(
            f"the variable {name} is {text!r}, and must be {legal}: unset it, or start with torchrun, which sets it"
        )
    return int(text)


def share_cores() -> None:
    """Set the number of torch's threads in this process: the cores that it may use, shared with the replicas of this host."""
    torch.set_num_threads(max(1, core_budget().usable // _number("LOCAL_WORLD_SIZE")))


def join(world: World, device: torch.device) -> None:
    """Connect to the other replicas, if there are any."""
    if world.replicas > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_LONGEST_VALIDATION)


def leave(world: World) -> None:
    """Disconnect from the other replicas at the end of a run."""
    if world.replicas > 1:
        torch.distributed.destroy_process_group()


def add_over_replicas(tensors: list[Tensor]) -> None:
    """Sum tensors over the replicas, in place, with one message."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    torch.distributed.all_reduce(flat)
    for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))
