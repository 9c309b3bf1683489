"""Which parameters are trained: the others keep their values, and so do the averages of frozen batch norm."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from bulkinfer.errors import UsageError


def train_only(network: nn.Module, pattern: str) -> dict[str, nn.Parameter]:
    """Freeze the parameters whose names `pattern` matches nowhere ("" matches all); returns the others by name.

    A batch norm whose weight and bias are both frozen is put in evaluation mode: it normalises with its averages, which no
    longer move. Raises UsageError if the pattern is wrong or matches nothing.
    """
    try:
        matches = re.compile(pattern).search
    except re.error as error:
        raise UsageError(f"--train_only {pattern!r} is not a regular expression: {error}") from None
    chosen = {name: parameter for name, parameter in network.named_parameters() if matches(name)}
    if not chosen:
        names = [name for name, _ in network.named_parameters()]
        raise UsageError(f"--train_only {pattern!r} matches no parameter: they are called {', '.join(names[:3])} … {names[-1]}")
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in chosen)
    for module in network.modules():
        own = list(module.parameters(recurse=False))
        if isinstance(module, _BatchNorm) and own and not any(parameter.requires_grad for parameter in own):
            module.eval()
    return chosen


def moving_norms(network: nn.Module) -> Iterator[_BatchNorm]:
    """The batch norms that normalise with the statistics of each batch: those in training mode."""
    return (module for module in network.modules() if isinstance(module, _BatchNorm) and module.training)
