"""The group of ranks of a run: connects them, and adds tensors over them."""

from __future__ import annotations

from datetime import timedelta

import torch
from torch import Tensor

from bulkinfer.host.cores import core_budget
from bulkinfer.train.ranks.world import World, number_in

_LONGEST_VALIDATION = timedelta(hours=6)  # the first replica validates while the others wait for it


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


def share_cores() -> None:
    """Set the number of torch's threads in this process: the cores that it may use, shared with the replicas of this host."""
    torch.set_num_threads(max(1, core_budget().usable // number_in("LOCAL_WORLD_SIZE")))
