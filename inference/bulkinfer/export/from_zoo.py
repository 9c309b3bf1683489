"""get_model --model_name: a network of the zoo with its published, given or random weights."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bulkinfer import zoo
from bulkinfer.config import GetModelConfig
from bulkinfer.errors import UsageError
from bulkinfer.export import model_folder
from bulkinfer.export.input_range import log_input_range
from bulkinfer.model.card import ModelCard, Weights
from bulkinfer.model.made_with import recorded_options
from bulkinfer.model.recipe import Recipe
from bulkinfer.zoo import weights
from bulkinfer.zoo.weights import Found, Request

if TYPE_CHECKING:
    import torch

    from bulkinfer.model.graph_file import Export

log = logging.getLogger("bulkinfer")


@dataclass
class ZooNetwork:
    """A network of the zoo and the weights asked for, which are located (and fetched) only when they are needed."""

    config: GetModelConfig
    request: Request
    kind: str = "zoo"
    card: None = None
    instead: str = ""
    _found: Found | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def recipe(self) -> Recipe:
        return self.request.spec.recipe

    def differences(self, existing: ModelCard) -> list[str]:
        """Why an export is not the one asked for; empty if it is."""
        spec = self.request.spec
        reasons = model_folder.differences(existing, spec.recipe, self.config.input)
        if bool(existing.classified) != spec.has_classes:
            reasons.append("it has classes, this network gives an embedding" if existing.classified else "it has no classes")
        if not weights.is_satisfied_by(self.request, existing.weights):
            found, has = self._weights(), existing.weights
            if found.path is None or found.sha256 != has.sha256:
                reasons.append(
                    f"its weights are {has.source} (sha256 {has.sha256[:12]}, {has.origin}), not "
                    f"{found.source} ({found.origin})"
                )
        return reasons

    def export(self) -> tuple[ModelCard, Export]:
        """Build the network, load its weights and export it. Raises RunError or DownloadError."""
        found = self._weights()
        with zoo.quiet():
            from bulkinfer.export.torch_export import export_network
        name, spec = self.name, self.request.spec
        log.info(f"exporting {name} with {found.path.name if found.path else 'random weights'} ({found.origin})")
        log_input_range(spec.recipe)
        network = zoo.build(name)
        used = self._load(network, found)
        export = export_network(network, spec.recipe, self.config.input, has_classes=spec.has_classes)
        labels = zoo.labels(name) if spec.has_classes else ()
        assert not labels or len(labels) == export.golden.outputs["logits"].shape[1], "one label per logit, or none"
        card = ModelCard(
            name=name,
            recipe=spec.recipe,
            weights=used,
            licence=spec.licence,
            origin=spec.origin,
            input=self.config.input,
            outputs={output: output for output in export.golden.outputs},
            labels=labels,
            num_parameters=export.num_parameters,
            versions=model_folder.export_versions(),
            external_data=export.weights_file,
            external_data_sha256=hashlib.sha256(export.weights).hexdigest(),
            external_data_bytes=len(export.weights),
            test_size=self.config.use_test_size,
            options=recorded_options(self.config),
        )
        return card, export

    def _weights(self) -> Found:
        if self._found is None:
            self._found = weights.find(self.request)
        return self._found

    def _load(self, network: torch.nn.Module, found: Found) -> Weights:
        """Load the weights into the network; returns what the card records about them."""
        import torch

        from bulkinfer.model.graph_checks import golden_images, network_input
        from bulkinfer.zoo import state_dict

        if found.path is not None:
            state_dict.load(network, found.path, zoo.adapter(self.name))
            return Weights(found.source, found.sha256, found.origin)
        recipe = self.request.spec.recipe
        state_dict.randomise(network, torch.from_numpy(network_input(golden_images(recipe), recipe)))
        return Weights(found.source, state_dict.state_sha256(network), found.origin)


def find(config: GetModelConfig) -> ZooNetwork:
    """The network of this name. Raises UsageError with the nearest names, RunError if timm is needed but not installed."""
    name, spec = zoo.find(config.model_name)
    if config.use_test_size:
        if spec.test_recipe is None:
            raise UsageError(f"--use_test_size: {name} is tested at the size at which it was trained: leave it out")
        spec = replace(spec, recipe=spec.test_recipe)
    cache = Path(config.model_path) / weights.CACHE
    return ZooNetwork(config, Request(name, spec, config.weights, config.weights_sha256, cache))
