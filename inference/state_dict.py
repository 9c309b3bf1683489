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
    if not all(isinstance(name, str) for name in state):
        raise RunError(f"{path} holds tensors under names that are no text: save the network's state_dict() alone")
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


def randomise(network: torch.nn.Module, inputs_NCHW: torch.Tensor) -> None:
    """Fill convolutions, linear layers and batch norms with random numbers under which different pictures differ.

    `inputs_NCHW` are a few inputs as the network wants them: batch norms take their statistics from these, so that
    activations neither die out nor explode, whatever the network. The result depends on RANDOM_SEED, the network and
    the inputs, not on the CPU: uniform numbers, statistics in float64, and those rounded to 10 bits.
    """
    generator = torch.Generator().manual_seed(RANDOM_SEED)

    def fill(tensor: torch.Tensor | None, low: float, high: float) -> None:
        if tensor is not None:
            tensor.copy_(torch.rand(tensor.shape, generator=generator) * (high - low) + low)

    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
                # Variance of what follows a ReLU is kept by 2 / fan-in (He); linear layers keep that of their input.
                bound = ((6 if isinstance(module, torch.nn.Conv2d) else 3) / module.weight[0].numel()) ** 0.5
                fill(module.weight, -bound, bound)
                fill(module.bias, -0.1, 0.1)
            elif isinstance(module, torch.nn.BatchNorm2d):
                fill(module.weight, 0.5, 1.0)
                fill(module.bias, -0.1, 0.1)
        _take_statistics(network, norms, inputs_NCHW)


def _take_statistics(network: torch.nn.Module, norms: list[torch.nn.BatchNorm2d], inputs_NCHW: torch.Tensor) -> None:
    """Set every batch norm's mean and variance to those of its input when `inputs_NCHW` pass through."""
    momenta = [norm.momentum for norm in norms]
    network.double()
    for norm in norms:
        norm.train()
        norm.momentum = 1.0  # statistics of this one batch
    network(inputs_NCHW.double())
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.eval()
        norm.momentum = momentum
        assert norm.running_mean is not None, "batch norms of the zoo track statistics"
        assert norm.running_var is not None
        # At least the layer's average: amplifying its quietest channels would amplify rounding errors layer by layer.
        norm.running_var.clamp_(min=float(norm.running_var.mean()))
        for statistics in (norm.running_mean, norm.running_var):
            mantissa, exponent = torch.frexp(statistics)
            statistics.copy_(torch.ldexp((mantissa * 1024).round() / 1024, exponent))
    network.float()


def state_sha256(network: torch.nn.Module) -> str:
    """sha256 over names, types, shapes and bytes of all tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
