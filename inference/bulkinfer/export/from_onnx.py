"""get_model --onnx: somebody else's graph, checked against itself in onnxruntime. Imports no torch."""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import logging
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bulkinfer import __version__
from bulkinfer.config import GetModelConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export import model_folder
from bulkinfer.export.input_range import log_input_range
from bulkinfer.export.onnx_import import rewrite as graph_rewrite
from bulkinfer.export.onnx_import.batch import find_batch
from bulkinfer.export.onnx_import.graph import Foreign, open_foreign, precision, run_each
from bulkinfer.export.onnx_import.outputs import choose_classified, meaning_of_scores, plan_outputs
from bulkinfer.export.onnx_import.rewrite import GraphOutput
from bulkinfer.export.onnx_import.user_files import read_labels, read_recipe, refuse_other_count
from bulkinfer.export.onnx_import.user_golden import check_user_golden, read_user_golden
from bulkinfer.files.atomic import file_sha256
from bulkinfer.model.card import NO_LICENCE, ModelCard, Weights
from bulkinfer.model.graph_checks import Golden, golden_images
from bulkinfer.model.graph_file import IR_VERSION, Export, make_reproducible, move_weights_out
from bulkinfer.model.made_with import recorded_options
from bulkinfer.model.recipe import Recipe

log = logging.getLogger("bulkinfer")


@dataclass(frozen=True)
class AdoptedGraph:
    """A file that was read, examined and rewritten, which takes seconds and gives the whole card."""

    name: str
    card: ModelCard
    rewritten: Export
    kind: str = "onnx"
    instead: str = ""

    @property
    def recipe(self) -> Recipe:
        return self.card.recipe

    def differences(self, existing: ModelCard) -> list[str]:
        """The fields in which the card of an export differs from this one."""
        names = [field.name for field in fields(ModelCard) if field.compare]
        other = [name for name in names if getattr(existing, name) != getattr(self.card, name)]
        return [f"its card differs in {', '.join(other)}"] if other else []

    def export(self) -> tuple[ModelCard, Export]:
        """The graph as it is published."""
        return self.card, self.rewritten


def find(config: GetModelConfig) -> AdoptedGraph:
    """The graph of --onnx, ready to publish. Raises UsageError or RunError if the file, a flag or the graph is unfit."""
    model_folder.check_own_name(config.name)
    return AdoptedGraph(config.name, *_read_and_rewrite(config))


def _read_and_rewrite(config: GetModelConfig) -> tuple[ModelCard, Export]:
    """Read the file, run it to learn what it computes, check it against that, and rewrite it."""
    path = Path(config.onnx)
    foreign = open_foreign(path, read_recipe(config.recipe), config.input, config.output_name)
    log.info(f"input {foreign.picture.name}: {foreign.picture.dtype} {foreign.picture.layout} {list(foreign.picture.shape)}")
    log_input_range(foreign.recipe)
    fixed_batch, observed = find_batch(foreign, config)
    classified = ""
    if config.scores != "none":
        classified, why = choose_classified(config.output_name, observed)
        log.info(f"classified output: {classified} ({why})")
    outputs = plan_outputs(observed, classified)
    images = golden_images(foreign.recipe)
    golden = Golden(images, _golden_rows(foreign, images, outputs, classified))
    outputs = [output for output in outputs if output.name in golden.outputs]
    meanings = _meanings(config.scores, classified, outputs, golden)
    labels = read_labels(Path(config.labels)) if config.labels else ()
    _check_labels(labels, meanings, golden)
    for case in read_user_golden(Path(config.golden)) if config.golden else ():
        log.info(f"--golden {case.name}: {check_user_golden(foreign, case, outputs, classified)}")
    export = _rewrite(foreign, config.input, outputs, fixed_batch, golden)
    return _card(config, foreign, fixed_batch, meanings, labels, export), export


def _card(
    config: GetModelConfig,
    foreign: Foreign,
    fixed_batch: int,
    meanings: dict[str, str],
    labels: tuple[str, ...],
    export: Export,
) -> ModelCard:
    path = Path(config.onnx)
    found = foreign.origin
    sha256 = found.sha256 if not found.beside else file_sha256(path)
    beside = f", weights beside it {found.weights_sha256}" if found.beside else ""
    files = f" with {', '.join(found.beside)}, one hash over all" if found.beside else ""
    return ModelCard(
        name=config.name,
        recipe=foreign.recipe,
        weights=Weights(path.name, found.sha256, "file given to get_model --onnx" + files),
        licence=config.licence or NO_LICENCE,
        origin=f"{path.name}, sha256 {sha256}{beside}",
        input=config.input,
        outputs=meanings,
        labels=labels,
        num_parameters=export.num_parameters,
        versions={"bulkinfer": __version__, **{name: importlib.metadata.version(name) for name in ("onnx", "numpy")}},
        external_data=export.weights_file,
        external_data_sha256=hashlib.sha256(export.weights).hexdigest(),
        external_data_bytes=len(export.weights),
        source="onnx",
        precision=precision(foreign),
        fixed_batch=fixed_batch,
        options=recorded_options(config),
    )


def _golden_rows(
    foreign: Foreign, images: NDArray[np.uint8], outputs: list[GraphOutput], classified: str
) -> dict[str, NDArray[np.float32]]:
    """The outputs of the original graph for each picture alone, under the names and shapes that are published.

    An output that is not finite cannot be checked and is left out. Raises RunError if it is the classified one, or all are.
    """
    rows = run_each(foreign.session, foreign.feed(images), foreign.picture.batch, [output.source for output in outputs])
    golden = {}
    for output in outputs:
        values = rows[output.source].astype(np.float32).reshape(len(images), *output.shape)
        if np.isfinite(values).all():
            golden[output.name] = values
        elif output.source == classified or len(outputs) == 1:
            raise RunError(f"{foreign.name}: {output.source} is not finite on ordinary pictures: is --recipe the right one?")
        else:
            log.info(f"output {output.source} is left out: it is not finite on ordinary pictures")
    if not golden:
        raise RunError(f"{foreign.name}: no output is finite on ordinary pictures: is --recipe the right one?")
    return golden


def _meanings(scores: str, classified: str, outputs: list[GraphOutput], golden: Golden) -> dict[str, str]:
    """The meaning of each output by name; logs how it was found."""
    meanings = {}
    for output in outputs:
        meaning = "embedding" if output.name == "embedding" else "values"
        if output.source == classified:
            meaning, why = meaning_of_scores(scores, golden.outputs[output.name])
            log.info(f"scores: {meaning} ({why})")
        renamed = f" (called {output.source} in the graph)" if output.name != output.source else ""
        log.info(f"output {output.name}: {meaning}, {list(output.shape)} per picture{renamed}")
        meanings[output.name] = meaning
    return meanings


def _check_labels(labels: tuple[str, ...], meanings: dict[str, str], golden: Golden) -> None:
    if not labels:
        return
    classified = next((name for name, meaning in meanings.items() if meaning in ("logits", "probabilities")), "")
    if not classified:
        raise UsageError("--labels: with --scores none there are no classes to name")
    refuse_other_count(labels, golden.outputs[classified].shape[1], classified)


def _rewrite(foreign: Foreign, input_kind: str, outputs: list[GraphOutput], fixed_batch: int, golden: Golden) -> Export:
    """The graph to publish, with its weights in a block of their own."""
    model = copy.deepcopy(foreign.model)
    graph_rewrite.weights_to_initializers(model)
    parameters = graph_rewrite.num_parameters(model)
    graph_rewrite.set_batch(model, foreign.picture, foreign.recipe, fixed_batch)
    graph_rewrite.keep_outputs(model, outputs)
    graph_rewrite.drop_unused(model)
    graph_rewrite.feed_pictures(model, foreign.picture, foreign.recipe, input_kind)
    graph_rewrite.sort_nodes(model)
    weights, weights_file = move_weights_out(model)
    make_reproducible(model, max(IR_VERSION, model.ir_version))
    return Export(model.SerializeToString(deterministic=True), weights, weights_file, golden, parameters)
