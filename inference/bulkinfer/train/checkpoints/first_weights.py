"""`bulkinfer train --init_checkpoint`: the weights of another run, without its classifier if that is for other classes."""

from __future__ import annotations

import logging
from pathlib import Path

from torch import nn

from bulkinfer.errors import UsageError
from bulkinfer.train.checkpoints import checkpoint

log = logging.getLogger("bulkinfer")


def load_first_weights(network: nn.Module, path: Path, num_classes: int) -> None:
    """Load the weights of a checkpoint or run, their average if it has one, into a network for `num_classes` classes.

    Tensors that differ in the number of classes alone keep their first values, and a line says which. Raises UsageError if
    others do not fit.
    """
    found, own = checkpoint.find(path), network.state_dict()
    file = found.weights_file("auto")
    weights = found.tensors(file)
    classes_there = found.state["network"]["num_classes"]
    new, faults = [], []
    for name, tensor in own.items():
        there, here = tuple(weights[name].shape) if name in weights else None, tuple(tensor.shape)
        if there == here:
            continue
        if there and (there[:1], here[:1]) == ((classes_there,), (num_classes,)) and there[1:] == here[1:]:
            new.append(name)
        else:
            faults.append(f"{name} is {_shape(there)} there and {_shape(here)} here")
    faults += [f"{name} is there and not here" for name in weights if name not in own]
    if faults:
        more = f", and {len(faults) - 1} others" if len(faults) > 1 else ""
        raise UsageError(f"--init_checkpoint {path} does not fit this network: {faults[0]}{more}")
    network.load_state_dict({**weights, **{name: own[name] for name in new}})
    if found.ema:
        log.info(f"first weights: the average in {found.path / file}")
    if new:
        log.info(
            f"first weights: those of {found.path} but for a new classifier ({', '.join(new)}): {classes_there} classes there, "
            f"{num_classes} here"
        )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "x".join(map(str, shape)) or "a number"
