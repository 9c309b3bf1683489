"""Gradient checkpointing: activations of chosen modules are computed again in the backward pass instead of being kept."""

from __future__ import annotations

import re
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from inference.errors import UsageError

BLOCKS = "blocks"


def recompute(network: nn.Module, patterns: tuple[str, ...]) -> list[str]:
    """Wrap the modules whose names a pattern matches whole; "blocks" takes those that hold a residual connection.

    Returns their names; modules inside a wrapped one are left alone. Raises UsageError if a pattern matches none.
    """
    chosen: list[str] = []
    for pattern in patterns:
        names = [name for name, module in network.named_modules() if name and _matches(pattern, name, module)]
        if not names:
            known = ", ".join(name for name, _ in network.named_children())
            raise UsageError(f"--recompute {pattern!r} matches no module: the outermost are {known}; blocks takes all residual blocks")
        chosen += names
    outermost = [name for name in chosen if not any(name.startswith(f"{other}.") for other in chosen)]
    for name in dict.fromkeys(outermost):
        _wrap(network.get_submodule(name))
    return outermost


def _matches(pattern: str, name: str, module: nn.Module) -> bool:
    if pattern == BLOCKS:
        return type(module).__name__ in ("BasicBlock", "Bottleneck", "InvertedResidual", "DepthwiseSeparableConv", "EdgeResidual", "Block")
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error as error:
        raise UsageError(f"--recompute {pattern!r} is no regular expression: {error}") from None


def _wrap(module: nn.Module) -> None:
    """Replace the module's forward, so that its name and its tensors stay as they are."""
    plain = module.forward

    def forward(*inputs: Any) -> Any:
        if not module.training:
            return plain(*inputs)
        return checkpoint(plain, *inputs, use_reentrant=False)

    module.forward = forward  # type: ignore[method-assign]
