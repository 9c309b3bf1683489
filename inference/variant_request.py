"""What get_model --precision can refuse before it makes anything, which may take minutes."""

from __future__ import annotations

import os
from pathlib import Path

from inference import model_folder
from inference.card import CALIBRATED, ModelCard, is_made_of, read_card, variant_folder
from inference.config import GetModelConfig
from inference.errors import RunError, UsageError
from inference.model_lookup import named_folder


def check_request(config: GetModelConfig) -> None:
    """Raises UsageError for pictures that are missing, for what no variant can be made of, and where it could not be put."""
    if config.calibration_dir and not Path(config.calibration_dir).is_dir():
        raise UsageError(f"--calibration_dir: {config.calibration_dir} is no folder: give a folder of pictures")
    network = Path(config.model_path) / config.name if config.onnx else named_folder(config.model_path, config.model_name)[0]
    folder, card = variant_folder(network, config.precision), None if config.onnx else _readable(network)
    _check_place(folder)
    if card is not None:
        check_network(config, card, network)
    elif reason := _fault_for_want_of_pictures(config, folder, None):  # of a network that is known only when it is there
        raise UsageError(reason)


def check_network(config: GetModelConfig, card: ModelCard, network: Path) -> None:
    """Raises UsageError where the network of `card`, which is or will be in the folder, leads to no variant.

    Without pictures one that needs them must be there, whole and of this network.
    """
    precision = config.precision
    if precision == GetModelConfig.precision:
        return
    if not card.classified:
        raise UsageError(
            f"--precision {precision}: {card.name} classifies nothing, so nobody could tell whether {precision} harms it"
        )
    if card.precision != GetModelConfig.precision:
        raise UsageError(
            f"--precision {precision}: the graph of {card.name} computes in {card.precision} already: it runs as it is"
        )
    if reason := _fault_for_want_of_pictures(config, variant_folder(network, precision), card):
        raise UsageError(reason)


def _fault_for_want_of_pictures(config: GetModelConfig, folder: Path, card: ModelCard | None) -> str:
    if config.precision not in CALIBRATED or config.calibration_dir or not (reason := fault(folder, card)):
        return ""
    return f"{folder} {reason}: give --calibration_dir PICTURES, a folder of pictures like those to come"


def fault(folder: Path, card: ModelCard | None) -> str:
    """Why what is in a variant's folder is no whole variant of the network of `card` (None: of any); empty if it is."""
    found = _readable(folder)
    if found is None:
        return "is damaged (its card cannot be read)" if (folder / model_folder.CARD).exists() else "does not exist"
    if card is not None and not is_made_of(found, card):
        return "was made of another export of the network"
    damage = model_folder.damage(folder, found)
    return f"is damaged ({damage})" if damage else ""


def _readable(folder: Path) -> ModelCard | None:
    try:
        return read_card(folder / model_folder.CARD) if (folder / model_folder.CARD).is_file() else None
    except RunError:
        return None


def _check_place(folder: Path) -> None:
    """Raises UsageError where the variant's folder cannot be made or written to."""
    for place in (folder, *folder.parents):
        if not os.path.lexists(place):
            continue
        if not place.is_dir():
            raise UsageError(f"{place} is no folder, but the variant is to lie in {folder}: move it away")
        if not os.access(place, os.W_OK | os.X_OK):
            raise UsageError(f"{place} may not be written to, but the variant is to lie in {folder}: change its mode or owner")
        return
