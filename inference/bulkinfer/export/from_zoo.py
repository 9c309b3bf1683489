"""From a network's name to a finished models/<name>/: the steps of get_model, in order."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from bulkinfer import __version__, zoo
from bulkinfer.config import GetModelConfig
from bulkinfer.errors import UsageError
from bulkinfer.export import model_folder
from bulkinfer.files.file_lock import exclusive
from bulkinfer.model.card import CALIBRATED, GraphSidecar, ModelCard, Weights, graph_path, read_sidecar
from bulkinfer.model.integrity import damage
from bulkinfer.zoo import weights
from bulkinfer.zoo.weights import Found, Request

log = logging.getLogger("bulkinfer")

# What decides about the bytes of a graph, beside weights, recipe and input.
_EXPORTERS = ("torch", "onnx", "onnxscript")


@dataclass(frozen=True, slots=True)
class Provided:
    """A finished model folder. `done` is "exported", "added" (one more batch size) or "verified" (all was there)."""

    folder: Path
    card: ModelCard
    sidecar: GraphSidecar
    done: str
    seconds: float


def provide(config: GetModelConfig) -> Provided:
    """Make models/<name>/ hold a checked graph of the batch size, doing only what is missing.

    Raises UsageError for a wrong name, flag or folder, RunError or DownloadError for all that goes wrong on the way.
    """
    try:
        name, spec = zoo.find(config.model_name)
        cache = Path(config.model_path) / weights.CACHE
        request = Request(name, spec, config.weights, config.weights_sha256, cache)
        folder = model_folder.open_folder(config.model_path, name)
        with exclusive(folder / model_folder.LOCK, lambda: log.info(f"waiting for another get_model that works on {folder}")):
            return _provide(config, request, folder)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("inference"):
            raise
        raise zoo.missing_package(error) from error


def _provide(config: GetModelConfig, request: Request, folder: Path) -> Provided:
    start = time.monotonic()
    card = model_folder.existing_card(folder)
    found = None
    if card is None or not weights.is_satisfied_by(request, card.weights):
        found = weights.find(request)
    if card is not None:
        reasons = _differences(card, config, request, found)
        if not reasons and (told := damage(folder, card)):
            reasons = [told]
        if not reasons:
            done = "verified"
            if not model_folder.has_batch_size(folder, config.batch_size):
                model_folder.add_batch_size(folder, card, config.batch_size)
                done = "added"
            return _provided(folder, card, config.batch_size, done, start)
        if config.precision in CALIBRATED and not config.calibration_dir:  # it would go with the export that it was made of
            raise UsageError(
                f"{folder} would be exported again ({'; '.join(reasons)}), and a variant in {config.precision} cannot be made "
                "of that without --calibration_dir PICTURES: give it, or the options that the network was made with"
            )
        log.info(f"exporting again: {'; '.join(reasons)}")
    card, removed = _export(config, request, found or weights.find(request), folder)
    if removed:
        log.info(f"removed the graphs of the export before: {', '.join(removed)}")
    return _provided(folder, card, config.batch_size, "exported", start)


def _provided(folder: Path, card: ModelCard, batch_size: int, done: str, start: float) -> Provided:
    sidecar = read_sidecar(graph_path(folder, batch_size))
    return Provided(folder, card, sidecar, done, time.monotonic() - start)


def _differences(card: ModelCard, config: GetModelConfig, request: Request, found: Found | None) -> list[str]:
    """Why the export in the folder is not the one asked for; empty if it is."""
    reasons = []
    if card.input != config.input:
        reasons.append(f"its input is {card.input}, {config.input} is asked for")
    if card.recipe != request.spec.recipe:
        reasons.append("its recipe is another")
    if found is not None and (found.path is None or found.sha256 != card.weights.sha256):
        reasons.append(
            f"its weights are {card.weights.source} (sha256 {card.weights.sha256[:12]}, {card.weights.origin}), asked for are "
            f"{found.source} ({found.origin})"
        )
    for package, version in export_versions().items():
        if (recorded := card.versions.get(package)) != version:
            reasons.append(f"it was made by {package} {recorded}, now {version}")
    return reasons


def export_versions() -> dict[str, str]:
    """Versions of what makes a graph, as far as installed: an export can be used and widened without torch."""
    found = {"bulkinfer": __version__}
    for package in _EXPORTERS:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _export(config: GetModelConfig, request: Request, found: Found, folder: Path) -> tuple[ModelCard, list[str]]:
    """Build the network, load its weights, export, check and publish. Returns the card and the graphs removed."""
    with zoo.quiet():
        import torch

        from bulkinfer.export.torch_export import export_network
        from bulkinfer.model.graph_checks import golden_images, network_input
        from bulkinfer.zoo import state_dict
    name, spec = request.name, request.spec
    log.info(f"exporting {name} with {found.path.name if found.path else 'random weights'} ({found.origin})")
    network = zoo.build(name)
    if found.path is None:
        state_dict.randomise(network, torch.from_numpy(network_input(golden_images(spec.recipe), spec.recipe)))
        used = Weights(found.source, state_dict.state_sha256(network), found.origin)
    else:
        state_dict.load(network, found.path, zoo.adapter(name))
        used = Weights(found.source, found.sha256, found.origin)
    export = export_network(network, spec.recipe, config.input)
    labels = zoo.labels(name)
    assert len(labels) in (0, export.golden.outputs["logits"].shape[1]), "one label per logit, or none"
    card = ModelCard(
        name=name,
        recipe=spec.recipe,
        weights=used,
        licence=spec.licence,
        origin=spec.origin,
        input=config.input,
        outputs={output: output for output in export.golden.outputs},
        labels=labels,
        num_parameters=export.num_parameters,
        versions=export_versions(),
        external_data=export.weights_file,
        external_data_sha256=hashlib.sha256(export.weights).hexdigest(),
    )
    return card, model_folder.publish(folder, card, export, config.batch_size)
