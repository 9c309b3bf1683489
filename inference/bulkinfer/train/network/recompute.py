"""Gradient checkpointing: the backward pass computes the activations of chosen modules again instead of keeping them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from bulkinfer.errors import UsageError
from bulkinfer.train.network.freezing import moving_norms

BLOCKS, NONE = "blocks", "none"
_AVERAGES = ("running_mean", "running_var", "num_batches_tracked")
_RESIDUAL = ("BasicBlock", "Bottleneck", "InvertedResidual", "DepthwiseSeparableConv", "EdgeResidual", "Block")


def recompute(network: nn.Module, patterns: tuple[str, ...]) -> list[str]:
    """Wrap the modules whose whole name matches a pattern; "blocks" matches all blocks with a residual connection.

    Returns the names of the wrapped modules; modules inside of these are not wrapped. Raises UsageError if a pattern matches
    no module.
    """
    names = modules_matching(network, patterns)
    for name in names:
        wrap(network.get_submodule(name))
    return names


def modules_matching(network: nn.Module, patterns: tuple[str, ...]) -> list[str]:
    """The names of the modules that recompute() wraps. Raises UsageError if a pattern matches no module."""
    if patterns == (NONE,):
        return []
    chosen: list[str] = []
    for pattern in patterns:
        names = residual_blocks(network) if pattern == BLOCKS else _names_like(network, pattern)
        if not names:
            known = ", ".join(name for name, _ in network.named_children())
            raise UsageError(
                f"--recompute {pattern!r} matches no module: the outermost are {known}; blocks takes all residual blocks"
            )
        chosen += names
    return list(dict.fromkeys(name for name in chosen if not any(name.startswith(f"{other}.") for other in chosen)))


def residual_blocks(network: nn.Module) -> list[str]:
    """The names of the blocks with a residual connection, in the order of the network."""
    return [name for name, module in network.named_modules() if name and type(module).__name__ in _RESIDUAL]


def _names_like(network: nn.Module, pattern: str) -> list[str]:
    try:
        matches = re.compile(pattern).fullmatch
    except re.error as error:
        raise UsageError(f"--recompute {pattern!r} is not a regular expression: {error}") from None
    return [name for name, _ in network.named_modules() if name and matches(name)]


@contextmanager
def _frozen_averages(module: nn.Module) -> Iterator[None]:
    """Keep batch norm from counting a batch again when it passes for the second time; a frozen one counts none.

    A network that is divided into parts was exported: there batch norm is no module of its class, but has its buffers.
    """
    norms = [norm for norm in moving_norms(module) if norm.track_running_stats]
    own = {id(buffer) for norm in module.modules() if isinstance(norm, _BatchNorm) for buffer in norm.buffers()}
    exported = [
        (buffer, buffer.clone())
        for name, buffer in module.named_buffers()
        if name.rpartition(".")[2] in _AVERAGES and id(buffer) not in own
    ]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            if norm.num_batches_tracked is not None:
                norm.num_batches_tracked -= 1
        for buffer, value in exported:
            buffer.copy_(value)


def wrap(module: nn.Module) -> None:
    """Replace the module's forward; its name and its tensors stay as they are."""
    plain = module.forward

    def forward(*inputs: Any) -> Any:
        if not module.training:
            return plain(*inputs)
        return checkpoint(plain, *inputs, use_reentrant=False, context_fn=lambda: (nullcontext(), _frozen_averages(module)))

    module.forward = forward
