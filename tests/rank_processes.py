"""Functions as the ranks of a run: real processes that are connected over gloo."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from bulkinfer.train.ranks.group import Ranks, connected
from bulkinfer.train.ranks.world import find_world
from torch import multiprocessing

Sizes = tuple[int, int]  # ranks, and stages of each replica


def run_ranks(function: Callable[..., None], worlds: Sequence[Sizes], *arguments: Any) -> None:
    """Call function(ranks, *arguments) as the ranks of one world after the other; warnings are errors in them.

    The largest world decides how many processes start, since a start with torch takes seconds. One rank is this process.
    """
    for size, _ in worlds:
        if size == 1:
            with single_threaded():
                function(Ranks(), *arguments)
    many = [sizes for sizes in worlds if sizes[0] > 1]
    with tempfile.TemporaryDirectory() as meeting:
        multiprocessing.spawn(_run, (many, meeting, function, arguments), nprocs=max(size for size, _ in many))


@contextmanager
def single_threaded() -> Iterator[None]:
    """As the ranks compute: sums have the same order then."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run(rank: int, worlds: list[Sizes], meeting: str, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    if not sys.warnoptions:
        warnings.simplefilter("error")
    for number, (size, stages) in enumerate(worlds):
        if rank >= size:
            continue
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
        # by a file: a port that is free now may be taken when the ranks come to it
        dist.init_process_group("gloo", init_method=Path(meeting, str(number)).as_uri(), rank=rank, world_size=size)
        with connected(find_world(0, stages), torch.device("cpu")) as ranks:
            torch.set_num_threads(1)
            function(ranks, *arguments)
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # as commands end: torch's threads do not always survive the shutdown of the interpreter
