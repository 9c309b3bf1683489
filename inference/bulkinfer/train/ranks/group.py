"""The ranks of a run, connected: what they add up, agree on and send to each other."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from bulkinfer.errors import RankLostError, RunError, first_line
from bulkinfer.host.cores import core_budget
from bulkinfer.train.ranks.world import DEFAULT_PORT, World

_LONGEST_WAIT = timedelta(minutes=30)  # of one rank for another
_LOST = ("gloo", "Connection closed by peer", "NCCL")  # in what torch says where a message did not arrive

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The ranks of a run. All of them call the same methods in the same order; with one rank no method does anything.

    If the network is divided, `stages` are the ranks of this replica, and `replicas` those that have the same stage.
    """

    world: World = field(default_factory=World)
    stages: dist.ProcessGroup | None = None
    replicas: dist.ProcessGroup | None = None

    @property
    def are_many(self) -> bool:
        """True if there is another rank."""
        return self.world.size > 1

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors over the ranks, in place, with one message; 16-bit ones are summed in float32."""
        if self.are_many:
            _add(tensors, None)

    def add_gradients(self, tensors: Sequence[Tensor]) -> None:
        """The same over the ranks that have the same part of the network."""
        if self.world.replicas > 1:
            _add(tensors, self.replicas)

    def largest(self, number: int) -> int:
        """The largest of the numbers that the ranks give."""
        return max(self.gather(number))

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in their order."""
        if not self.are_many:
            return [value]
        values: list[T | None] = [None] * self.world.size
        dist.all_gather_object(values, value)
        return values  # type: ignore[return-value]

    @torch.no_grad()
    def take_from_first(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the first rank, in place."""
        if self.are_many:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def make_group(self, span: int) -> dist.ProcessGroup:
        """Make groups of `span` consecutive replicas; with stages, of the ranks that have the same part in them.

        Returns the group of this rank. All ranks call it, since all make all groups.
        """
        return _make_group_of_replicas(self.world, span)

    def wait_for_all(self) -> None:
        """Wait until all ranks have come to this point."""
        self.gather(None)


ALONE = Ranks()


def _add(tensors: Sequence[Tensor], group: dist.ProcessGroup | None) -> None:
    flat = torch.cat([tensor.reshape(-1).to(torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors])
    dist.all_reduce(flat, group=group)
    for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


def _make_group_of_replicas(world: World, span: int) -> dist.ProcessGroup:
    firsts = range(0, world.replicas, span)
    return _make_groups(
        [
            [replica * world.stages + stage for replica in range(first, first + span)]
            for first in firsts
            for stage in range(world.stages)
        ]
    )


def _make_groups(rows: list[list[int]]) -> dist.ProcessGroup:
    """Make groups of these ranks, on all ranks; returns the one of this rank."""
    own, _ = dist.new_subgroups_by_enumeration(rows, timeout=_LONGEST_WAIT)
    assert isinstance(own, dist.ProcessGroup), "each rank is in a row"
    return own


def _ranks_of(world: World) -> Ranks:
    """The ranks of a world that is connected."""
    if world.stages == 1:
        return Ranks(world)
    rows = [list(range(first, first + world.stages)) for first in range(0, world.size, world.stages)]
    return Ranks(world, stages=_make_groups(rows), replicas=_make_group_of_replicas(world, world.replicas))


@contextmanager
def connected(world: World, device: torch.device) -> Iterator[Ranks]:
    """Connect this rank with the others until the block ends, which it does for all ranks at the same time.

    Does nothing where there are none; a process group that exists is used and left alone. Raises RunError if the ranks cannot
    connect, RankLostError if another one ends too early or keeps this one waiting for half an hour.
    """
    if world.size == 1:
        yield Ranks(world)
        return
    is_ours = not dist.is_initialized()
    if is_ours:
        _connect(world, device)
    try:
        with noticing_lost_ranks(str):
            ranks = _ranks_of(world)
            share_cores(ranks)
            yield ranks
            ranks.wait_for_all()
    finally:
        if is_ours:
            dist.destroy_process_group()


@contextmanager
def noticing_lost_ranks(advice: Callable[[], str]) -> Iterator[None]:
    """Raise RankLostError, with an advice such as ": do this", for a message in the block that could not be exchanged."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(word in str(error) for word in _LOST):
            raise
        raise RankLostError(advice()) from error


def _connect(world: World, device: torch.device) -> None:
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), os.environ.get("MASTER_PORT", DEFAULT_PORT)
    os.environ.update(MASTER_ADDR=host, MASTER_PORT=port)
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            rank=world.rank,
            world_size=world.size,
            timeout=_LONGEST_WAIT,
        )
    except (dist.DistError, RuntimeError, ValueError) as error:
        raise RunError(
            f"rank {world.rank} of {world.size} cannot connect to the others at {host}:{port} ({first_line(error)}): check "
            "MASTER_ADDR and MASTER_PORT"
        ) from error


def share_cores(ranks: Ranks = ALONE) -> None:
    """Set torch's threads of this rank: the cores that it may use, divided among the ranks of this host that may use them."""
    cores = core_budget()
    places = ranks.gather((socket.gethostname(), cores.affinity))
    sharing = sum(host == socket.gethostname() and not set(cores.affinity).isdisjoint(others) for host, others in places)
    torch.set_num_threads(max(1, cores.usable // sharing))
