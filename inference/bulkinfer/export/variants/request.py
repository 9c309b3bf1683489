"""What get_model --precision can refuse before it makes anything, which may take minutes."""

from __future__ import annotations

import os
from pathlib import Path

from bulkinfer.config import EXACT, GetModelConfig
from bulkinfer.errors import UsageError
from bulkinfer.model.card import CALIBRATED, ModelCard, variant_folder
from bulkinfer.model.integrity import readable_card, variant_damage
from bulkinfer.model.lookup import named_folder


def check_request(config: GetModelConfig) -> None:
    """Raises UsageError for pictures that are missing, for what no variant can be made of, and where it could not be put."""
    if config.calibration_dir and not Path(config.calibration_dir).is_dir():
        raise UsageError(f"--calibration_dir: {config.calibration_dir} is no folder: give a folder of pictures")
    if config.checkpoint and not config.name:
        return  # the run will tell the name
    is_given = bool(config.onnx or config.checkpoint)  # else the network may be there
    network = Path(config.model_path) / config.name if is_given else named_folder(config.model_path, config.model_name)[0]
    folder, card = variant_folder(network, config.precision), None if is_given else readable_card(network)
    _check_place(folder)
    if card is not None:
        check_network(config, card, network)
    else:  # of a network that is known only when it is there
        check_pictures(config, folder, None)


def check_before_export(
    config: GetModelConfig, card: ModelCard | None, existing: ModelCard | None, network: Path, reasons: list[str]
) -> None:
    """Raises UsageError where the network in the folder `network` would be exported for a variant that is refused afterwards.

    `card` is what it will get (None: only the export tells), `existing` what is there now and goes for `reasons`, if any.
    """
    if config.precision == EXACT:
        return
    if card is not None:
        check_network(config, card, network)
    elif existing is None:
        check_pictures(config, variant_folder(network, config.precision), None)
    elif reasons and config.precision in CALIBRATED and not config.calibration_dir:
        raise UsageError(
            f"{network} would be exported again ({'; '.join(reasons)}), and a variant in {config.precision} cannot be made "
            "of that without --calibration_dir PICTURES: give it, or the options that the network was made with"
        )


def check_network(config: GetModelConfig, card: ModelCard, network: Path) -> None:
    """Raises UsageError where the network of `card`, which is or will be in the folder, leads to no variant.

    Without pictures one that needs them must be there, whole and of this network.
    """
    if config.precision != EXACT:
        check_kind(config.precision, card)
        check_pictures(config, variant_folder(network, config.precision), card)


def check_kind(precision: str, card: ModelCard) -> None:
    """Raises UsageError for a network of which no variant can be made, whatever there is."""
    if not card.classified:
        raise UsageError(
            f"--precision {precision}: {card.name} classifies nothing, so nobody could tell whether {precision} harms it"
        )
    if card.precision != EXACT:
        raise UsageError(
            f"--precision {precision}: the graph of {card.name} computes in {card.precision} already: it runs as it is"
        )


def check_pictures(config: GetModelConfig, folder: Path, card: ModelCard | None) -> None:
    """Raises UsageError where no pictures are given that the variant of `card`, to lie in `folder`, would be made of."""
    if config.precision in CALIBRATED and not config.calibration_dir and (damage := variant_damage(folder, card)):
        raise UsageError(f"{folder} {damage}: give --calibration_dir PICTURES, a folder of pictures like those to come")


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
