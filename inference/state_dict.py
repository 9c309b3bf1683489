"""State dicts: load one into a network, or fill a network with random numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch

from inference.errors import RunError

RANDOM_SEED = 0


def load(network: torch.nn.Module, path: Path) -> None:
    """Load a state dict file into `network`; every tensor must find its place.

    Raises RunError if the file holds anything but tensors by name, or tensors that do not fit.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # what an unpickler raises on foreign bytes is not a closed list
        raise RunError(
            f"{path} is not a torch state dict that can be loaded safely (weights_only): save the network's state_dict() alone"
        ) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise RunError(f"{path} holds more than tensors by name: save the network's state_dict() alone")
    own = network.state_dict()
    # Counters of training steps: absent in files of torch before 0.4.1, and without effect on inference.
    counters = {name for name in own if name.endswith("num_batches_tracked")}
    faults = [
        _some("missing", [name for name in own if name not in state and name not in counters]),
        _some("unexpected", [name for name in state if name not in own]),
        _some("of another shape", [name for name in own if name in state and state[name].shape != own[name].shape]),
    ]
    if any(faults):
        raise RunError(f"{path} does not fit the network: {'; '.join(fault for fault in faults if fault)}")
    network.load_state_dict(state, strict=False)


def _some(what: str, names: list[str]) -> str:
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    return f"{len(names)} tensors {what} ({shown})" if names else ""


def randomise(network: torch.nn.Module) -> None:
    """Fill convolutions, linear layers and batch norms with random numbers that keep activations at a working size.

    The numbers depend on RANDOM_SEED and the order of the layers only: uniform ones, since torch makes those alike on
    every CPU. Convolutions keep the variance of what follows a ReLU (He); batch norm scales below 1 hold down the
    growth along residual additions; its statistics differ per channel, so that folding them away is tested too.
    """
    generator = torch.Generator().manual_seed(RANDOM_SEED)

    def fill(tensor: torch.Tensor | None, low: float, high: float) -> None:
        if tensor is not None:
            tensor.copy_(torch.rand(tensor.shape, generator=generator) * (high - low) + low)

    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
                gain = 6.0 if isinstance(module, torch.nn.Conv2d) else 3.0
                bound = (gain / module.weight[0].numel()) ** 0.5
                fill(module.weight, -bound, bound)
                fill(module.bias, -0.1, 0.1)
            elif isinstance(module, torch.nn.BatchNorm2d):
                fill(module.weight, 0.5, 0.9)
                fill(module.bias, -0.1, 0.1)
                fill(module.running_mean, -0.1, 0.1)
                fill(module.running_var, 0.8, 1.2)


def state_sha256(network: torch.nn.Module) -> str:
    """sha256 over names, types, shapes and bytes of all tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
