"""Functions as the ranks of a run: real processes that are connected over gloo."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from bulkinfer.train.ranks.group import Ranks, connected
from bulkinfer.train.ranks.world import find_world
from torch import multiprocessing


def run_ranks(function: Callable[..., None], size: int, *arguments: Any, stages: int = 1) -> None:
    """Call function(ranks, *arguments) in `size` new processes, and wait for all; warnings are errors in them.

    With one rank it is called in this process.
    """
    if size == 1:
        function(Ranks(), *arguments)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(_run, (size, stages, port, function, arguments), nprocs=size)


def _run(rank: int, size: int, stages: int, port: int, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    if not sys.warnoptions:
        warnings.simplefilter("error")
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with connected(find_world(0, stages), torch.device("cpu")) as ranks:
        torch.set_num_threads(1)
        function(ranks, *arguments)
    sys.stdout.flush()
    os._exit(0)  # as commands end: torch's threads do not always survive the shutdown of the interpreter
