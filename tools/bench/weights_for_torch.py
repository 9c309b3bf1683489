"""A network of the zoo for torch, with the weights that its card names: in timm's own version where there is one.

The packages of the zoo hold networks as they were written years ago, and some of them run at a fraction of the speed of timm's:
a comparison with those would say little of timm.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bulkinfer import zoo
from bulkinfer.model.card import ModelCard
from bulkinfer.zoo import weights

if TYPE_CHECKING:
    import torch

_TOLERANCE = 1e-3  # of the largest output
_LITE = "efficientnet_lite"  # timm calls those ported from TensorFlow tf_efficientnet_lite


def save_state(card: ModelCard, model_path: Path, path: Path) -> tuple[str, str]:
    """Write a state dict. Returns where its network comes from, "timm" or "zoo", and its name there.

    Raises LookupError if the network, or its weights, are not those of the zoo.
    """
    if card.source != "zoo":
        raise LookupError("it is not a network of the zoo")
    import torch
    from bulkinfer.model.graph_checks import golden_images, network_input

    with zoo.quiet():
        images = torch.from_numpy(network_input(golden_images(card.recipe), card.recipe))
        network = _network(card, model_path, images)
        name = _timms_name(card.name)
        theirs = _as_timms(network, name, images) if name else None
    torch.save((theirs or network).state_dict(), path)
    return ("timm", name) if theirs else ("zoo", card.name)


def _network(card: ModelCard, model_path: Path, images: torch.Tensor) -> torch.nn.Module:
    """The zoo's network with the weights of the card."""
    from bulkinfer.zoo import state_dict

    name, spec = zoo.find(card.name)
    network = zoo.build(name)
    if card.weights.is_random:
        state_dict.randomise(network, images)
        sha256 = state_dict.state_sha256(network)
    else:
        found = weights.find(weights.Request(name, spec, "auto", "", model_path / weights.CACHE))
        assert found.path is not None, "published weights are a file"
        state_dict.load(network, found.path, zoo.adapter(name))
        sha256 = found.sha256
    if sha256 != card.weights.sha256:
        raise LookupError("its weights are not those that the zoo gives it")
    return network


def _timms_name(name: str) -> str:
    """What timm calls a network; empty if it has none of that name."""
    import timm

    wanted = f"tf_{name}" if name.startswith(_LITE) else name.removeprefix("timm_")
    return wanted if timm.is_model(wanted) else ""


def _as_timms(network: torch.nn.Module, name: str, images: torch.Tensor) -> torch.nn.Module | None:
    """timm's network of that name with the tensors of `network`, taken over in their order; None if it is another one then."""
    import timm
    import torch

    theirs = timm.create_model(name).eval()
    given, wanted = _tensors(network), _tensors(theirs)
    if [tensor.shape for tensor in given.values()] != [tensor.shape for tensor in wanted.values()]:
        return None
    theirs.load_state_dict(dict(zip(wanted, given.values(), strict=True)), strict=False)
    with torch.inference_mode():
        expected, found = network(images), theirs(images)
    is_same = float((found - expected).abs().max()) <= _TOLERANCE * float(expected.abs().max())
    return theirs if is_same else None


def _tensors(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All that decides about the outputs, by name."""
    return {name: tensor for name, tensor in network.state_dict().items() if not name.endswith("num_batches_tracked")}
