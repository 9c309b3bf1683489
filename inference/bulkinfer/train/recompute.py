"""Gradient checkpointing: the backward pass computes the activations of chosen modules again instead of keeping them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from bulkinfer.errors import UsageError
from bulkinfer.train.freezing import moving_norms

BLOCKS, NONE = "blocks", "none"


def recompute(network: nn.Module, patterns: tuple[str, ...]) -> list[str]:
    """Wrap the modules whose whole name matches a pattern; "blocks" matches all blocks with a residual connection.

    Returns the names of the wrapped modules; modules inside of these are not wrapped. Raises UsageError if a pattern matches
    no module.
    """
    if patterns == (NONE,):
        return []
    chosen: list[str] = []
    for pattern in patterns:
        names = [name for name, module in network.named_modules() if name and _matches(pattern, name, module)]
        if not names:
            known = ", ".join(name for name, _ in network.named_children())
            raise UsageError(
                f"--recompute {pattern!r} matches no module: the outermost are {known}; blocks takes all residual blocks"
            )
        chosen += names
    outermost = [name for name in chosen if not any(name.startswith(f"{other}.") for other in chosen)]
    for name in dict.fromkeys(outermost):
        _wrap(network.get_submodule(name))
    return outermost


def _matches(pattern: str, name: str, module: nn.Module) -> bool:
    if pattern == BLOCKS:
        return type(module).__name__ in (
            "BasicBlock",
            "Bottleneck",
            "InvertedResidual",
            "DepthwiseSeparableConv",
            "EdgeResidual",
            "Block",
        )
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error as error:
        raise UsageError(f"--recompute {pattern!r} is not a regular expression: {error}") from None


@contextmanager
def _frozen_averages(module: nn.Module) -> Iterator[None]:
    """Keep batch norm from counting a batch again when it passes for the second time."""
    norms = [norm for norm in moving_norms(module) if norm.track_running_stats]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum
            if norm.num_batches_tracked is not None:
                norm.num_batches_tracked -= 1


def _wrap(module: nn.Module) -> None:
    """Replace the module's forward; its name and its tensors stay as they are."""
    plain = module.forward

    def forward(*inputs: Any) -> Any:
        if not module.training:
            return plain(*inputs)
        return checkpoint(plain, *inputs, use_reentrant=False, context_fn=lambda: (nullcontext(), _frozen_averages(module)))

    module.forward = forward
