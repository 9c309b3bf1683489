"""--pipeline_splits: the blocks with which the parts of a network begin, also as other trainers call them; and a proposal."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from bulkinfer.errors import UsageError
from bulkinfer.train.network.recompute import residual_blocks
from bulkinfer.train.options import TrainConfig

_RUNS = 3  # of the network to time its blocks; the first one warms up
_GROUP_OF_RESNET = re.compile(r"b(\d+)\.(\d+)")  # TensorFlow 1: group and block of a ResNet
_BLOCK_OF_EFFICIENTNET = re.compile(
    r"block(\d+)([a-z])"
)  # the same of an EfficientNet: block2a is the first of the second group
_BLOCK_BY_NUMBER = re.compile(r"_blocks\.(\d+)")  # efficientnet_pytorch: all blocks are numbered from 0


@dataclass(frozen=True, slots=True)
class Split:
    """The block with which a part begins, and the name that was given for it."""

    block: str
    given: str

    def __str__(self) -> str:
        return self.block if _dotted(self.given) == self.block else f"{self.block} (given as {self.given})"


def find_splits(network: nn.Module, config: TrainConfig, example: Tensor) -> list[Split]:
    """The splits that the options name, in the order of the network; a name inside of a block stands for that block.

    `example` is a micro batch, N x C x H x W, for which blocks are timed if that is necessary. Raises UsageError, with the
    legal names and a proposal, if there are too few or too many, or one that is unknown.
    """
    blocks, stages = blocks_of(network), config.stages
    found = [(given, block_named(given, blocks)) for given in config.splits]
    unknown = [given for given, block in found if not block]
    order = [blocks.index(block) for _, block in found if block]
    is_wrong_number = len(config.splits) + 1 != stages
    if unknown or is_wrong_number or any(one >= other for one, other in pairwise(order)):
        reason = (
            f"--pipeline_splits: no block is called {unknown[0]!r}" if unknown
            else f"--shards {stages} needs {stages - 1} --pipeline_splits, and there are {len(config.splits)}"
            if is_wrong_number
            else "--pipeline_splits must be in the order of the network, each block once"
        )  # fmt: skip
        if len(blocks) < stages:
            raise UsageError(
                f"{reason}; the network has {len(blocks)} blocks, too few for {stages} stages: give --shards {len(blocks)} or "
                "fewer"
            )
        proposal = " ".join(propose(network, blocks, stages, example))
        raise UsageError(
            f"{reason}: give --pipeline_splits {proposal}, which takes about the same time for each of the {stages} stages, or "
            f"other blocks of {', '.join(blocks)}"
        )
    return [Split(block, given) for given, block in found]


def blocks_of(network: nn.Module) -> list[str]:
    """The names of the blocks at which a network can be divided: those with a residual connection, else its layers."""
    names = residual_blocks(network) or [
        f"{name}.{child}" for name, module in network.named_children() if isinstance(module, nn.Sequential)
        for child, _ in module.named_children()
    ]  # fmt: skip
    return names or [name for name, _ in network.named_children()]


def block_named(given: str, blocks: Sequence[str]) -> str:
    """The block that a name means: its own name, that of a module in it or around it, or another trainer's; "" for none."""
    name = _dotted(given)
    prefix = blocks[0][: len(blocks[0]) - len(blocks[0].removeprefix("network."))]  # of networks with other input channels
    for candidate in (name, *_translated(name, blocks, prefix)):
        for full in (candidate, prefix + candidate):
            inside = next((block for block in blocks if full == block or full.startswith(f"{block}.")), "")
            if inside or (inside := next((block for block in blocks if block.startswith(f"{full}.")), "")):
                return inside
    return ""


def _dotted(given: str) -> str:
    return given.strip("/.").replace("/", ".")


def _translated(name: str, blocks: Sequence[str], prefix: str) -> list[str]:
    """What a name of another trainer may be here."""
    if match := _GROUP_OF_RESNET.match(name):
        return [f"layer{match[1]}.{match[2]}"]
    if match := _BLOCK_OF_EFFICIENTNET.match(name):
        return [f"blocks.{int(match[1]) - 1}.{ord(match[2]) - ord('a')}"]
    of_efficientnet = [block for block in blocks if block.startswith(f"{prefix}blocks.")]
    if (match := _BLOCK_BY_NUMBER.match(name)) and int(match[1]) < len(of_efficientnet):
        return [of_efficientnet[int(match[1])]]
    return []


def propose(network: nn.Module, blocks: Sequence[str], stages: int, example: Tensor) -> list[str]:
    """The blocks at which to divide a network so that the slowest part takes the least time in a forward pass."""
    costs = seconds_of_blocks(network, blocks, example)
    borders = best_borders(costs, stages)
    return [blocks[border] for border in borders]


@torch.no_grad()
def seconds_of_blocks(network: nn.Module, blocks: Sequence[str], example: Tensor) -> list[float]:
    """The time from the beginning of each block to that of the next, in seconds; the first and last have the rest as well."""

    def now() -> float:
        if example.device.type == "cuda":  # it is still at work when a call returns
            torch.cuda.synchronize(example.device)
        return time.perf_counter()

    marks: list[float] = []
    hooks = [network.get_submodule(block).register_forward_pre_hook(lambda *_: marks.append(now())) for block in blocks]
    try:
        for _ in range(_RUNS):
            marks.clear()
            begin = now()
            network(example)
            end = now()
    finally:
        for hook in hooks:
            hook.remove()
    return [later - earlier for earlier, later in pairwise([begin, *marks[1:], end])]


def best_borders(costs: Sequence[float], parts: int) -> list[int]:
    """Where to begin all parts but the first, so that the largest sum of a part is the least: each has one cost or more."""
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    count = len(costs)
    # best[k][end]: the largest sum if costs[:end] are divided into k + 1 parts, and where the last of these begins
    best = [[(sums[end], 0) for end in range(count + 1)]]
    for k in range(1, parts):
        row = [(float("inf"), 0)] * (count + 1)
        for end in range(k + 1, count + 1):
            row[end] = min((max(best[-1][start][0], sums[end] - sums[start]), start) for start in range(k, end))
        best.append(row)
    borders, end = list[int](), count
    for k in range(parts - 1, 0, -1):
        end = best[k][end][1]
        borders.insert(0, end)
    return borders
