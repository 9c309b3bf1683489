"""get_model --onnx: somebody else's graph becomes models/<name>/, checked against itself in onnxruntime. Imports no torch."""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import logging
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bulkinfer import __version__, zoo
from bulkinfer.config import GetModelConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export import model_folder
from bulkinfer.export.from_zoo import Provided
from bulkinfer.export.onnx_import import rewrite as graph_rewrite
from bulkinfer.export.onnx_import.batch import look
from bulkinfer.export.onnx_import.graph import Foreign, open_foreign, precision, run_each
from bulkinfer.export.onnx_import.outputs import choose, meaning_of_scores, plan
from bulkinfer.export.onnx_import.rewrite import GraphOutput
from bulkinfer.export.onnx_import.user_files import read_labels, read_recipe
from bulkinfer.export.onnx_import.user_golden import check_user_golden, read_user_golden
from bulkinfer.export.variants.request import check_network
from bulkinfer.files.atomic import file_sha256
from bulkinfer.files.file_lock import exclusive
from bulkinfer.model.card import GraphSidecar, ModelCard, Weights, graph_path, read_card, read_sidecar
from bulkinfer.model.get_model_hint import source_words
from bulkinfer.model.graph_checks import Golden, golden_images
from bulkinfer.model.graph_file import IR_VERSION, Export, make_reproducible, move_weights_out
from bulkinfer.model.integrity import CARD, damage
from bulkinfer.model.lookup import named_folder

log = logging.getLogger("bulkinfer")


def adopt(config: GetModelConfig) -> Provided:
    """Make models/<name>/ of the graph of `config`. Raises UsageError or RunError with one sentence for all that hinders it."""
    start = time.monotonic()
    model_folder.check_own_name(config.name)
    try:
        card, export = _prepare(config)
    except ModuleNotFoundError as error:
        raise zoo.missing_package(error) from error
    folder = model_folder.open_folder(config.model_path, config.name)
    with exclusive(folder / model_folder.LOCK, lambda: log.info(f"waiting for another get_model that works on {folder}")):
        there = model_folder.existing_card(folder)
        if there is not None and there.source != "onnx":
            of = "of the zoo" if there.source == "zoo" else "that was trained"
            raise UsageError(f"--name {config.name}: {folder} holds a network {of}: give another name")
        check_network(config, card, folder)
        if there == card and not damage(folder, card) and not card.fixed_batch:
            return _widen(folder, card, config.batch_size, start)
        if removed := model_folder.publish(folder, card, export, config.batch_size):
            log.info(f"removed the graphs of the export before: {', '.join(removed)}")
    return Provided(folder, card, _sidecar(folder, config.batch_size), "exported", time.monotonic() - start)


def widen(config: GetModelConfig) -> Provided | None:
    """Add a batch size to a network that was adopted or trained, from its folder alone; None if none of these has the name."""
    start = time.monotonic()
    folder, _ = named_folder(config.model_path, config.model_name)
    if not _is_adopted(folder, config.model_name):
        return None
    folder = model_folder.open_folder(config.model_path, folder.name)
    with exclusive(folder / model_folder.LOCK, lambda: None):
        card = read_card(folder / CARD)
        made = "adopted from" if card.source == "onnx" else "made of"
        option, source, *_ = source_words(card, folder.name)
        if config.weights != "auto" or config.weights_sha256:
            raise UsageError(f"--weights: {card.name} was {made} {source}, which holds its own")
        if config.input not in (card.input, GetModelConfig.input):
            raise UsageError(f"--input {config.input}: {card.name} was {made.split()[0]} with --input {card.input}")
        if config.batch_size != (card.fixed_batch or config.batch_size):
            raise UsageError(f"{card.name} runs at batch {card.fixed_batch} only: its graph fixes that batch inside")
        check_network(config, card, folder)
        if told := damage(folder, card):
            raise RunError(f"{folder}: {told}: run get_model {option} again with {source}")
        return _widen(folder, card, config.batch_size, start)


def _is_adopted(folder: Path, name: str) -> bool:
    """Whether a folder holds an adopted network. A damaged card of a network of the zoo is made anew, so it is none."""
    if not (folder / CARD).is_file():
        return False
    try:
        return read_card(folder / CARD).source != "zoo"
    except RunError:
        zoo.find(name)  # raises where nothing could make it anew but the file it was adopted from
        return False


def _widen(folder: Path, card: ModelCard, batch_size: int, start: float) -> Provided:
    done = "verified"
    if not model_folder.has_batch_size(folder, batch_size):
        model_folder.add_batch_size(folder, card, batch_size)
        done = "added"
    return Provided(folder, card, _sidecar(folder, batch_size), done, time.monotonic() - start)


def _sidecar(folder: Path, batch_size: int) -> GraphSidecar:
    return read_sidecar(graph_path(folder, batch_size))


def _prepare(config: GetModelConfig) -> tuple[ModelCard, Export]:
    """Everything but publishing: read, look at, check, rewrite."""
    path = Path(config.onnx)
    foreign = open_foreign(path, read_recipe(config.recipe), config.input)
    log.info(f"input {foreign.picture.name}: {foreign.picture.dtype} {foreign.picture.layout} {list(foreign.picture.shape)}")
    fixed_batch, observed = look(foreign, config)
    classified = ""
    if config.scores != "none":
        classified, why = choose(config.output_name, observed)
        log.info(f"classified output: {classified} ({why})")
    outputs = plan(observed, classified)
    images = golden_images(foreign.recipe)
    golden = Golden(images, _golden_rows(foreign, images, outputs, classified))
    outputs = [output for output in outputs if output.name in golden.outputs]
    meanings = _meanings(config.scores, classified, outputs, golden)
    labels = read_labels(Path(config.labels)) if config.labels else ()
    _check_labels(labels, meanings, golden)
    for case in read_user_golden(Path(config.golden)) if config.golden else ():
        log.info(f"--golden {case.name}: {check_user_golden(foreign, case, outputs, classified)}")
    export = _rewrite(foreign, config.input, outputs, fixed_batch, golden)
    sha256 = file_sha256(path)
    return ModelCard(
        name=config.name,
        recipe=foreign.recipe,
        weights=Weights(path.name, sha256, "file given to get_model --onnx"),
        licence=config.licence or "not stated",
        origin=f"{path.name}, sha256 {sha256}"
        + (f", weights beside it {beside}" if (beside := foreign.external_sha256) else ""),
        input=config.input,
        outputs=meanings,
        labels=labels,
        num_parameters=export.num_parameters,
        versions={"bulkinfer": __version__, **{name: importlib.metadata.version(name) for name in ("onnx", "numpy")}},
        external_data=export.weights_file,
        external_data_sha256=hashlib.sha256(export.weights).hexdigest(),
        source="onnx",
        precision=precision(foreign),
        fixed_batch=fixed_batch,
    ), export


def _golden_rows(
    foreign: Foreign, images: NDArray[np.uint8], outputs: list[GraphOutput], classified: str
) -> dict[str, NDArray[np.float32]]:
    """What the graph as it came gives for each picture alone, in our names and shapes.

    An output that is not finite cannot be checked and is left out. Raises RunError if that is the classified one, or all.
    """
    rows = run_each(foreign.session, foreign.feed(images), foreign.picture.batch, [output.source for output in outputs])
    golden = {}
    for output in outputs:
        values = rows[output.source].astype(np.float32).reshape(len(images), *output.shape)
        if np.isfinite(values).all():
            golden[output.name] = values
        elif output.source == classified or len(outputs) == 1:
            raise RunError(
                f"{foreign.name}: {output.source} is not finite on ordinary pictures: is it fed by the right recipe?"
            )
        else:
            log.info(f"output {output.source} is left out: it is not finite on ordinary pictures")
    if not golden:
        raise RunError(f"{foreign.name}: no output is finite on ordinary pictures: is it fed by the right recipe?")
    return golden


def _meanings(scores: str, classified: str, outputs: list[GraphOutput], golden: Golden) -> dict[str, str]:
    """Meaning of each output by name; what was decided is said."""
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
        raise UsageError("--labels: there is nothing to name with --scores none")
    if len(labels) != (num_classes := golden.outputs[classified].shape[1]):
        raise UsageError(f"--labels: {len(labels)} names for the {num_classes} values of {classified}")


def _rewrite(foreign: Foreign, input_kind: str, outputs: list[GraphOutput], fixed_batch: int, golden: Golden) -> Export:
    """The graph that is published, its weights beside it."""
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
