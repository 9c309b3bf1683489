"""The get_model command that brings what a launch lacks: what is there tells with which options the network was made."""

from __future__ import annotations

import shlex
from pathlib import Path

from bulkinfer.config import GetModelConfig, LaunchConfig
from bulkinfer.model.card import CALIBRATED, ModelCard
from bulkinfer.model.integrity import damage, readable_card, variant_damage


def get_model_command(config: LaunchConfig, network: Path, folder: Path) -> str:
    """What makes the graph of `config` anew in `folder`, which is `network` or that of its variant, as one can type it.

    Without the options of the network that is there, get_model would replace it by another. A sound variant gets another
    batch size without pictures; a network of a file or of a run is damaged for good without that.
    """
    of_network = readable_card(network)
    card = of_network or readable_card(folder)  # that of a variant tells the same of its network
    named = ["--model_name", config.model_name]
    options = ["--batch_size", str(config.batch_size)]
    if card is not None and card.source != "zoo" and network.is_dir() and (of_network is None or damage(network, of_network)):
        named = source_words(card, network.name)
    elif card is not None and card.source == "zoo" and card.weights.option != GetModelConfig.weights:
        options += ["--weights", card.weights.option]
    if card is not None and card.input != GetModelConfig.input:
        options += ["--input", card.input]
    if config.model_path != LaunchConfig.model_path:
        options += ["--model_path", config.model_path]
    if folder != network:
        options += ["--precision", folder.name]
        if folder.name in CALIBRATED and variant_damage(folder, of_network):
            options += ["--calibration_dir", "PICTURES"]
    return shlex.join(["get_model", *named, *options])


def source_words(card: ModelCard, name: str) -> list[str]:
    """The options of get_model that make a network anew which is not of the zoo: its file, or its run."""
    assert card.source != "zoo", card.name
    if card.source == "checkpoint":
        return ["--checkpoint", card.weights.origin, "--name", name]
    return ["--onnx", card.weights.source, "--name", name, "--recipe", "RECIPE.json"]
