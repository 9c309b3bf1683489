"""The get_model command that brings what a launch lacks: what is there tells with which options the network was made."""

from __future__ import annotations

import shlex
from pathlib import Path

from inference.card import CALIBRATED, ModelCard, graph_path, is_made_of, read_card, read_sidecar
from inference.config import GetModelConfig, LaunchConfig
from inference.errors import BulkinferError, RunError
from inference.graph_checks import GOLDEN_FILE
from inference.paths import file_sha256


def get_model_command(config: LaunchConfig, network: Path, folder: Path) -> str:
    """What makes the graph of `config` anew in `folder`, which is `network` or that of its variant, as one can type it.

    Without the options of the network that is there, get_model would replace it by another. A sound variant gets another
    batch size without pictures; a network that was adopted is damaged for good without its file.
    """
    card = readable_card(network) or readable_card(folder)  # that of a variant tells the same of its network
    words = ["get_model", "--model_name", config.model_name, "--batch_size", str(config.batch_size)]
    if card is not None and card.source != "zoo" and network.is_dir() and not _is_sound(network):
        words = ["get_model", "--onnx", card.weights.source, "--name", network.name, "--recipe", "RECIPE.json", *words[3:]]
    elif card is not None and card.source == "zoo" and card.weights.option != GetModelConfig.weights:
        words += ["--weights", card.weights.option]
    if card is not None and card.input != GetModelConfig.input:
        words += ["--input", card.input]
    if config.model_path != LaunchConfig.model_path:
        words += ["--model_path", config.model_path]
    if folder != network:
        words += ["--precision", folder.name]
        if folder.name in CALIBRATED and not _is_sound(folder, readable_card(network)):
            words += ["--calibration_dir", "PICTURES"]
    return shlex.join(words)


def readable_card(folder: Path) -> ModelCard | None:
    """The card in a folder; None where it is missing or damaged. Raises UsageError for one of a newer format."""
    try:
        return read_card(folder / "card.json") if (folder / "card.json").is_file() else None
    except RunError:
        return None


def _is_sound(folder: Path, network: ModelCard | None = None) -> bool:
    """Whether get_model can add a batch size to what is in a folder, of this `network` if it is a variant."""
    card = readable_card(folder)
    if card is None or (network is not None and not is_made_of(card, network)):
        return False
    graph, weights = graph_path(folder, card.fixed_batch), folder / card.external_data
    try:
        return (
            (folder / GOLDEN_FILE).is_file()
            and file_sha256(graph) == read_sidecar(graph).sha256
            and file_sha256(weights) == card.external_data_sha256
        )
    except (BulkinferError, OSError):  # missing or damaged, whatever else is wrong
        return False
