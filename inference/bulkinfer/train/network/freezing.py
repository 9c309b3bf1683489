"""Which parameters are trained: the others keep their values, and so do the averages of frozen batch norm."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from bulkinfer.errors import UsageError


def freeze(network: nn.Module, *, train_only: str = "", train_from: str = "") -> dict[str, nn.Parameter]:
    """Freeze the parameters whose names the pattern `train_only` matches nowhere, and those before the layer `train_from`.

    "" freezes none. Layers are in the order of named_modules(). Returns the parameters that are trained, by name. A batch norm
    whose weight and bias are both frozen is put in evaluation mode: it normalises with its averages, which no longer move.
    Raises UsageError if the pattern is wrong, if there is no such layer, or if nothing is left to train.
    """
    matching = _matching(network, train_only)
    later = _from_layer(network, train_from)
    chosen = {name: parameter for name, parameter in matching.items() if name in later}
    if not chosen:
        beside = f" beside --train_only {train_only!r}" if train_only else ""
        raise UsageError(f"--train_from {train_from}{beside} leaves nothing to train: name an earlier layer")
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in chosen)
    for module in network.modules():
        own = list(module.parameters(recurse=False))
        if isinstance(module, _BatchNorm) and own and not any(parameter.requires_grad for parameter in own):
            module.eval()
    return chosen


def _matching(network: nn.Module, pattern: str) -> dict[str, nn.Parameter]:
    """The parameters that --train_only chooses."""
    try:
        matches = re.compile(pattern).search
    except re.error as error:
        raise UsageError(f"--train_only {pattern!r} is not a regular expression: {error}") from None
    chosen = {name: parameter for name, parameter in network.named_parameters() if matches(name)}
    if not chosen:
        names = [name for name, _ in network.named_parameters()]
        raise UsageError(f"--train_only {pattern!r} matches no parameter: they are called {', '.join(names[:3])} … {names[-1]}")
    return chosen


def _from_layer(network: nn.Module, layer: str) -> set[str]:
    """The names of the parameters of this layer and those behind it; the parts of a name may be apart by a slash as well."""
    layers = [name for name, _ in network.named_modules()]
    name = layer.replace("/", ".")
    if name not in layers:
        near = difflib.get_close_matches(name, layers, 1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        outer = [known for known in layers if known and known.count(".") <= 1]
        raise UsageError(
            f"--train_from {layer}: no layer has this name{meant}: give one of {', '.join(outer)}, or one inside them"
        )
    kept = {*layers[layers.index(name) :]}
    return {name for name, _ in network.named_parameters() if name.rpartition(".")[0] in kept}


def moving_norms(network: nn.Module) -> Iterator[_BatchNorm]:
    """The batch norms that normalise with the statistics of each batch: those in training mode."""
    return (module for module in network.modules() if isinstance(module, _BatchNorm) and module.training)
