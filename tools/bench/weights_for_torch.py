"""The weights of a network of the zoo as a state dict that torch loads: those that its card names, and no others."""

from __future__ import annotations

from pathlib import Path

from inference import weights, zoo
from inference.card import ModelCard


def save_state(card: ModelCard, model_path: Path, path: Path) -> bool:
    """Write the state dict; False if the network or its weights are not those of the zoo."""
    if card.source != "zoo":
        return False
    import torch

    from inference import state_dict
    from inference.graph_checks import golden_images, network_input

    with zoo.quiet():
        name, spec = zoo.find(card.name)
        network = zoo.build(name)
    if card.weights.is_random:
        state_dict.randomise(network, torch.from_numpy(network_input(golden_images(spec.recipe), spec.recipe)))
        sha256 = state_dict.state_sha256(network)
    else:
        found = weights.find(weights.Request(name, spec, "auto", "", model_path / weights.CACHE), print)
        assert found.path is not None, "published weights are a file"
        state_dict.load(network, found.path, zoo.adapter(name))
        sha256 = found.sha256
    if sha256 != card.weights.sha256:
        return False
    torch.save(network.state_dict(), path)
    return True
