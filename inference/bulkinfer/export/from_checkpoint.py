"""get_model --checkpoint: the network of a training run, with the recipe that the run was validated with."""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bulkinfer import zoo
from bulkinfer.config import GetModelConfig
from bulkinfer.export import model_folder
from bulkinfer.export.input_range import log_input_range
from bulkinfer.model.card import NO_LICENCE, ModelCard, Weights
from bulkinfer.model.made_with import recorded_options
from bulkinfer.model.recipe import Recipe

if TYPE_CHECKING:
    from bulkinfer.model.graph_file import Export
    from bulkinfer.train.checkpoints.checkpoint import Checkpoint

log = logging.getLogger("bulkinfer")


@dataclass(frozen=True)
class TrainedNetwork:
    """A checkpoint that was read whole, and the name of the file whose weights are exported."""

    config: GetModelConfig
    name: str
    checkpoint: Checkpoint
    weights_file: str
    kind: str = "checkpoint"
    card: None = None
    instead: str = ""

    @property
    def recipe(self) -> Recipe:
        return Recipe(**self.checkpoint.state["recipe"])

    @property
    def _sha256(self) -> str:
        return str(self.checkpoint.state["sha256"][self.weights_file])

    def differences(self, existing: ModelCard) -> list[str]:
        """Why an export is not the one of this checkpoint; empty if it is."""
        reasons = model_folder.differences(existing, self.recipe, self.config.input)
        if existing.weights.sha256 != self._sha256:
            reasons.append(f"its weights are from {existing.weights.origin}, not from {self.checkpoint.path}")
        return reasons

    def export(self) -> tuple[ModelCard, Export]:
        """Rebuild the network with its weights and export it. Raises RunError if torch cannot export it."""
        with zoo.quiet():
            from bulkinfer.export.torch_export import export_network
            from bulkinfer.train.network.networks import rebuild
        found, state = self.checkpoint, self.checkpoint.state
        weights = found.tensors(self.weights_file)
        shown = f"{self.weights_file} of {found.path}" if found.ema else f"the weights of {found.path}"
        log.info(f"exporting {self.name} with {shown}, {found.step} updates")
        log_input_range(self.recipe)
        export = export_network(rebuild(state["network"], weights, found.path), self.recipe, self.config.input)
        card = ModelCard(
            name=self.name,
            recipe=self.recipe,
            weights=Weights(self.weights_file, self._sha256, os.path.abspath(found.path)),
            licence=self.config.licence or NO_LICENCE,
            origin=f"trained on {state['dataset']}, {state['num_samples']} pictures, {found.step} updates",
            input=self.config.input,
            outputs={output: output for output in export.golden.outputs},
            labels=tuple(state["class_names"]),
            num_parameters=export.num_parameters,
            versions=model_folder.export_versions(),
            external_data=export.weights_file,
            external_data_sha256=hashlib.sha256(export.weights).hexdigest(),
            external_data_bytes=len(export.weights),
            source="checkpoint",
            options=recorded_options(self.config),
        )
        return card, export


def find(config: GetModelConfig) -> TrainedNetwork:
    """The network of --checkpoint. Raises UsageError where it is not there or lacks what --weights_of asks for, and for an
    illegal name; RunError if it is damaged.
    """
    from bulkinfer.train.checkpoints import checkpoint

    found = checkpoint.find(Path(config.checkpoint))
    architecture = str(found.state["network"]["model"]).removeprefix("timm_")  # this prefix is reserved for timm's networks
    name = config.name or f"{architecture}-{found.state['dataset']}"
    model_folder.check_own_name(name)
    return TrainedNetwork(config, name, found, found.weights_file(config.weights_of))
