"""What get_model --precision can refuse before it exports, which may take minutes."""

from __future__ import annotations

import os
from pathlib import Path

from bulkinfer.config import EXACT, GetModelConfig
from bulkinfer.errors import UsageError
from bulkinfer.model.card import CALIBRATED, ModelCard, readable_card, variant_folder
from bulkinfer.model.integrity import variant_damage
from bulkinfer.model.names import named_folder


def check_request(config: GetModelConfig) -> None:
    """Raises UsageError if pictures are missing, if the network can have no variant, or if its folder cannot be made."""
    if config.calibration_dir and not Path(config.calibration_dir).is_dir():
        raise UsageError(f"--calibration_dir: {config.calibration_dir} is no folder: give a folder of pictures")
    if config.checkpoint and not config.name:
        return  # the name is known when the checkpoint is read
    is_given = bool(config.onnx or config.checkpoint)  # else the network may exist already
    network = Path(config.model_path) / config.name if is_given else named_folder(config.model_path, config.model_name)[0]
    folder, card = variant_folder(network, config.precision), None if is_given else readable_card(network)
    _check_place(folder)
    if card is not None:
        check_network(config, card, network)
    else:  # the network is known only when it is exported
        check_pictures(config, folder, None)


def check_before_export(
    config: GetModelConfig, card: ModelCard | None, existing: ModelCard | None, network: Path, reasons: list[str]
) -> None:
    """Raises UsageError if the network in the folder `network` would be exported for a variant that is refused afterwards.

    `card` is the card that it will get (None: only the export shows it). `existing` is its card now, which `reasons` replace.
    """
    if config.precision == EXACT:
        return
    _check_place(variant_folder(network, config.precision))
    if card is not None:
        check_network(config, card, network)
    elif existing is None:
        check_pictures(config, variant_folder(network, config.precision), None)
    elif reasons and config.precision in CALIBRATED and not config.calibration_dir:
        raise UsageError(
            f"{network} would be exported again ({'; '.join(reasons)}), and a variant in {config.precision} cannot be made "
            "of it without --calibration_dir PHOTOS: give it, or the options that the network was made with"
        )


def check_network(config: GetModelConfig, card: ModelCard, network: Path) -> None:
    """Raises UsageError if no variant can be made of the network of `card`, which is or will be in the folder `network`.

    Without --calibration_dir, a variant that needs pictures must exist already, whole and made of this network.
    """
    if config.precision != EXACT:
        check_kind(config.precision, card)
        check_pictures(config, variant_folder(network, config.precision), card)


def check_kind(precision: str, card: ModelCard) -> None:
    """Raises UsageError for a network that can never have a variant."""
    if not card.classified:
        raise UsageError(
            f"--precision {precision}: {card.name} has no class values, so the effect of {precision} cannot be judged"
        )
    if card.precision != EXACT:
        raise UsageError(
            f"--precision {precision}: the graph of {card.name} already computes in {card.precision}: it runs as it is"
        )


def check_pictures(config: GetModelConfig, folder: Path, card: ModelCard | None) -> None:
    """Raises UsageError if the variant of `card` in `folder` must be made, needs pictures, and none are given."""
    if config.precision in CALIBRATED and not config.calibration_dir and (damage := variant_damage(folder, card)):
        raise UsageError(f"{folder} {damage}: give --calibration_dir PHOTOS, a folder of pictures like those to be classified")


def _check_place(folder: Path) -> None:
    """Raises UsageError if the variant's folder cannot be made or written to."""
    for place in (folder, *folder.parents):
        if not os.path.lexists(place):
            continue
        if not place.is_dir():
            raise UsageError(f"{place} is no folder, but the variant belongs in {folder}: move it away")
        if not os.access(place, os.W_OK | os.X_OK):
            raise UsageError(f"{place} is not writable, but the variant belongs in {folder}: change its mode or owner")
        return
