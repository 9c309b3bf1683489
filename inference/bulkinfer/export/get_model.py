"""From a request to a finished models/<name>/: the one sequence found -> checked -> exported -> published.

Each place a network can come from is one file beside this one, which supplies what differs (see Source): from_zoo,
from_checkpoint, from_onnx, and from_folder for an adopted or trained network that only gets one more batch size.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any, Protocol

from bulkinfer.config import EXACT, GetModelConfig
from bulkinfer.errors import RunError, UsageError, advising
from bulkinfer.export import model_folder
from bulkinfer.export.in_store import make_in_store
from bulkinfer.export.model_folder import ModelFolder
from bulkinfer.export.variants.request import check_before_export, check_request
from bulkinfer.files.addresses import address_of
from bulkinfer.host.install_hint import missing_package
from bulkinfer.model.batch_graph import complete
from bulkinfer.model.batch_memory import require_batch_fits
from bulkinfer.model.card import ModelCard
from bulkinfer.model.graph_checks import Golden
from bulkinfer.model.graph_file import Export
from bulkinfer.model.integrity import damage
from bulkinfer.model.recipe import Recipe

log = logging.getLogger("bulkinfer")

_KINDS = {"zoo": "the zoo", "checkpoint": "a training run", "onnx": "an ONNX file"}  # by the card's `source`


class Source(Protocol):
    """A network that was found and is not exported yet.

    `name` is the name of its folder. `kind` is the `source` of its card: zoo, checkpoint or onnx. `recipe` is how its pictures
    are prepared. `card` is the card that it will get, None if only the export shows it. `instead` is the command to run if it
    cannot be exported from here, else empty.
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def recipe(self) -> Recipe: ...
    @property
    def card(self) -> ModelCard | None: ...
    @property
    def instead(self) -> str: ...

    def differences(self, existing: ModelCard) -> list[str]:
        """Why the export with the card `existing` is not the one asked for; empty if it is. Raises UsageError for bad flags."""

    def export(self) -> tuple[ModelCard, Export]:
        """The card and the graph to publish. Raises RunError or DownloadError."""


def get_model(
    model_name: str = GetModelConfig.model_name, *, batch_size: int = GetModelConfig.batch_size, **options: Any
) -> ModelFolder:
    """Make models/<name>/ with a checked graph that takes `batch_size` pictures; work that is already done is not repeated.

    `model_name` is a name that `get_model --list` prints, or timm:NAME. `options` are the other fields of GetModelConfig, which
    are also the flags of the command get_model: model_path="models" is the folder of model folders, precision="int8" with
    calibration_dir="photos" makes a variant, onnx="net.onnx" with name and recipe adopts a file. Nothing is printed; progress
    goes to the logger "bulkinfer".

    Raises UsageError for a wrong name or value, RunError or DownloadError where something fails on the way, TypeError for
    an option that does not exist.
    """
    config = GetModelConfig(model_name=model_name, batch_size=batch_size, **options)
    if config.list:
        raise UsageError("list prints the networks, which only the command does: get_model --list")
    return make_model(config)


def make_model(config: GetModelConfig) -> ModelFolder:
    """Make the network of `config`, then its variant if one is asked for; returns the folder of the latter.

    Raises UsageError for a wrong name, flag or folder, RunError or DownloadError where something fails on the way.
    """
    if address := address_of(config.model_path).rstrip("/"):
        return make_in_store(config, address, make_model)
    if config.precision != EXACT:
        check_request(config)
    with advising("run get_model again"):
        network = make_network(config)
        if config.precision == EXACT:
            return network
        from bulkinfer.export.variants.variant import make_variant

        log.info(f"{EXACT}: {network.folder}, {network.done} in {network.seconds:.1f} s")
        return make_variant(config, network)


def make_network(config: GetModelConfig) -> ModelFolder:
    """Make models/<name>/ with the network in its own precision. Raises the same errors as make_model."""
    start = time.monotonic()
    try:
        source = _find(config)
        require_batch_fits(config.batch_size, source.recipe)
        with model_folder.locked_folder(config.model_path, source.name) as folder:
            card, done = _keep_or_export(config, source, folder)
            return model_folder.finished(folder, card, config.batch_size, done, start)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("bulkinfer"):
            raise
        raise missing_package("get_model", error) from error


def _find(config: GetModelConfig) -> Source:
    """Found: the network that `config` names."""
    if config.checkpoint:
        from bulkinfer.export import from_checkpoint

        return from_checkpoint.find(config)
    if config.onnx:
        from bulkinfer.export import from_onnx

        return from_onnx.find(config)
    from bulkinfer.export import from_folder, from_zoo

    return from_folder.find(config) or from_zoo.find(config)


def _keep_or_export(config: GetModelConfig, source: Source, folder: Path) -> tuple[ModelCard, str]:
    """Checked: a sound export that is as asked for stays. Otherwise exported, and published in its place."""
    existing = model_folder.existing_card(folder)
    reasons = _why_replace(source, existing, folder)
    check_before_export(config, source.card, existing, folder, reasons)
    if existing is not None and not reasons:
        return existing, complete(folder, existing, config.batch_size)
    if source.instead:
        raise RunError(f"{folder}: {'; '.join(reasons) or 'its card cannot be read'}: {source.instead}")
    if reasons:
        log.info(f"exporting again: {'; '.join(reasons)}")
    card, export = source.export()
    _warn_of_constants(export.golden)
    if removed := model_folder.publish(folder, card, export, config.batch_size):
        log.info(f"removed the graphs of the export before: {', '.join(removed)}")
    return card, "exported"


def _warn_of_constants(golden: Golden) -> None:
    """Warn of outputs that say nothing about a picture: wrong weights and a wrong recipe look like that."""
    for name, values in golden.outputs.items():
        if not values.any():
            log.warning(f"warning: {name} is 0 for every golden picture: are the weights, and the recipe, the right ones?")
        elif (values == values[:1]).all():
            log.warning(f"warning: {name} is the same for every golden picture: does it depend on the picture?")


def _why_replace(source: Source, existing: ModelCard | None, folder: Path) -> list[str]:
    """Why the network in the folder cannot stay; empty if it can, or there is none.

    Raises UsageError for a network from another source, which is never replaced.
    """
    if existing is None:
        return []
    if existing.source != source.kind:
        made_of = _KINDS.get(existing.source, existing.source)
        raise UsageError(f"{folder} holds a network from {made_of} ({existing.origin}): give this one another --name")
    if reasons := source.differences(existing):
        return reasons
    return [found] if (found := damage(folder, existing)) else []
