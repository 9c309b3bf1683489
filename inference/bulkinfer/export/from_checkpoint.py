"""From a checkpoint of a training run to a finished models/<name>/, with the recipe that the run was validated with."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bulkinfer import zoo
from bulkinfer.config import GetModelConfig
from bulkinfer.errors import UsageError
from bulkinfer.export import model_folder
from bulkinfer.export.from_zoo import Provided, export_versions
from bulkinfer.files.file_lock import exclusive
from bulkinfer.model.card import ModelCard, Recipe, Weights, graph_path, read_sidecar
from bulkinfer.model.integrity import damage

if TYPE_CHECKING:
    from bulkinfer.train.checkpoint import Checkpoint

log = logging.getLogger("bulkinfer")


def provide_trained(config: GetModelConfig) -> Provided:
    """Make models/<name>/ hold the network of --checkpoint, doing only what is missing.

    Raises UsageError where there is no checkpoint or the name is no good, RunError where it is damaged or cannot be exported.
    """
    from bulkinfer.train import checkpoint

    start = time.monotonic()
    found = checkpoint.find(Path(config.checkpoint))
    network = str(found.state["network"]["model"]).removeprefix("timm_")  # such a name would be one of timm's
    name = config.name or f"{network}-{found.state['dataset']}"
    model_folder.check_own_name(name)
    folder = model_folder.open_folder(config.model_path, name)
    with exclusive(folder / model_folder.LOCK, lambda: log.info(f"waiting for another get_model that works on {folder}")):
        card, done = model_folder.existing_card(folder), "verified"
        if card is None or not _is_of(card, found, config) or damage(folder, card):
            if card is not None and card.source != "checkpoint":
                raise UsageError(f"{folder} holds another network, {card.name} of {card.origin}: give this one another --name")
            card, done = _export(config, name, found, folder), "exported"
        elif not model_folder.has_batch_size(folder, config.batch_size):
            model_folder.add_batch_size(folder, card, config.batch_size)
            done = "added"
        return Provided(folder, card, read_sidecar(graph_path(folder, config.batch_size)), done, time.monotonic() - start)


def _is_of(card: ModelCard, found: Checkpoint, config: GetModelConfig) -> bool:
    """Whether a model folder holds the export that is asked for."""
    return (
        card.weights.sha256 == found.state["sha256"]["weights.safetensors"]
        and card.recipe == Recipe(**found.state["recipe"])
        and card.input == config.input
        and card.versions == export_versions()
    )


def _export(config: GetModelConfig, name: str, found: Checkpoint, folder: Path) -> ModelCard:
    with zoo.quiet():
        from bulkinfer.export.torch_export import export_network
        from bulkinfer.train.networks import rebuild
    log.info(f"exporting {name} with the weights of {found.path}, {found.step} updates")
    recipe = Recipe(**found.state["recipe"])
    export = export_network(rebuild(found.state["network"], found.weights), recipe, config.input)
    card = ModelCard(
        name=name,
        recipe=recipe,
        weights=Weights("weights.safetensors", found.state["sha256"]["weights.safetensors"], os.path.abspath(found.path)),
        licence=config.licence or "not stated",
        origin=f"trained on {found.state['dataset']}, {found.state['num_samples']} pictures, {found.step} updates",
        input=config.input,
        outputs={output: output for output in export.golden.outputs},
        labels=tuple(found.state["class_names"]),
        num_parameters=export.num_parameters,
        versions=export_versions(),
        external_data=export.weights_file,
        external_data_sha256=hashlib.sha256(export.weights).hexdigest(),
        source="checkpoint",
    )
    model_folder.publish(folder, card, export, config.batch_size)
    return card
