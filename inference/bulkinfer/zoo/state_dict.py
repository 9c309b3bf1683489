"""State dicts: load one into a network, or fill a network with random numbers."""

from __future__ import annotations

import hashlib
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from bulkinfer.errors import RunError
from bulkinfer.files.guarded import open_regular

RANDOM_SEED = 0
WRAPPERS = ("module.", "_orig_mod.")

Adapter = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def read(path: Path) -> Mapping[str, torch.Tensor]:
    """Read the tensors of a torch or safetensors file; no code in it is run.

    Raises RunError if it is neither, or holds anything but tensors by name.
    """
    try:
        if _is_safetensors(path):
            state = safetensors.torch.load_file(path)
        else:
            _refuse_compressed(path)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about a file of another kind; that is reported below
                state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RunError):
        raise
    except Exception as error:  # what an unpickler raises on foreign bytes is not a closed list
        raise RunError(
            f"{path} is not a torch state dict that can be loaded safely (weights_only), nor a safetensors file: save the "
            "network's state_dict() alone"
        ) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise RunError(f"{path} holds more than tensors by name{_inner(state)}: save the network's state_dict() alone")
    if not all(isinstance(name, str) for name in state):
        raise RunError(f"{path} holds tensors under names that are not text: save the network's state_dict() alone")
    if not state:  # timm would take its own weights instead
        raise RunError(f"{path} holds no tensors: save the network's state_dict() after it has been built")
    if odd := [name for name, tensor in state.items() if tensor.layout != torch.strided or tensor.is_meta]:
        raise RunError(f"{path} holds sparse or empty tensors ({odd[0]}): save the network's state_dict() as plain numbers")
    return _unwrapped(state)


def _inner(state: object) -> str:
    """Names the entries of a checkpoint that are state dicts; there may be several (EMA), so the user must choose."""
    inner = [
        str(name)
        for name, value in (state.items() if isinstance(state, Mapping) else ())
        if isinstance(value, Mapping) and value and all(isinstance(part, torch.Tensor) for part in value.values())
    ]
    return f" (those that fit a network may be under {', '.join(inner)})" if inner else ""


def _unwrapped(state: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """The tensors without the prefix that torch puts before every name if a network is trained in parallel or compiled."""
    for prefix in WRAPPERS:
        if all(name.startswith(prefix) for name in state):
            return _unwrapped({name.removeprefix(prefix): tensor for name, tensor in state.items()})
    return state


def _is_safetensors(path: Path) -> bool:
    """Whether the file begins like a safetensors file: the length of a header, then the header, which is JSON."""
    with open_regular(path, error=RunError) as file:
        head = file.read(9)
    return head[8:] == b"{" and 0 < int.from_bytes(head[:8], "little") < path.stat().st_size


def _refuse_compressed(path: Path) -> None:
    """Raises RunError for a torch file with compressed members: torch writes none, and a small one could fill the memory."""
    with open_regular(path, error=RunError) as file:
        try:
            members = zipfile.ZipFile(file).infolist()
        except zipfile.BadZipFile:
            return  # of torch's older form, or of none: torch.load says which
        if any(member.compress_size != member.file_size for member in members):
            raise RunError(f"{path} has compressed members, which torch does not write: save the state_dict() again")


def load(network: torch.nn.Module, path: Path, adapt: Adapter = dict) -> None:
    """Load the file at `path` into `network`, with its tensors turned by `adapt`; all tensors must fit.

    Raises RunError if the file holds anything but tensors by name, or tensors that do not fit.
    """
    given, own = read(path), network.state_dict()
    rounded = [name for name in own if name in given and own[name].is_floating_point() != given[name].is_floating_point()]
    if rounded:  # torch would truncate them to whole numbers, or drop imaginary parts
        raise RunError(f"{path} does not fit the network: {_some('of another number type', rounded)}")
    state = adapt(given)
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
    """Fill a network with random numbers, so that different pictures get different outputs.

    `inputs_NCHW` are a few inputs as the network takes them: batch norms take their statistics from these, so that
    activations neither vanish nor explode in any network. The result depends on RANDOM_SEED, the network and the inputs, but
    not on the CPU: the numbers are uniform, statistics are computed in float64 and rounded to 10 bits.
    """
    generator = torch.Generator().manual_seed(RANDOM_SEED)

    def fill(tensor: torch.Tensor | None, low: float, high: float) -> None:
        if tensor is not None:
            tensor.copy_(torch.rand(tensor.shape, generator=generator) * (high - low) + low)

    norms = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d) and m.track_running_stats]
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
        for parameter in _others(network):
            fill(parameter, -0.1, 0.1)
        if norms:
            _take_statistics(network, norms, inputs_NCHW)


def _others(network: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """Parameters outside of convolutions, linear layers and batch norms, such as embeddings and the gains of residual branches.

    If gains kept their first values near 0, a graph could be wrong in all branches and still agree. Parameters that are large
    and all equal, such as temperatures and the gains of norms, are left out.
    """
    for module in network.modules():
        if not isinstance(module, (torch.nn.Conv2d, torch.nn.Linear, torch.nn.BatchNorm2d)):
            for parameter in module.parameters(recurse=False):
                low, high = parameter.aminmax() if parameter.numel() else (0, 0)
                if parameter.is_floating_point() and not (low == high and abs(float(low)) > 0.2):
                    yield parameter


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
