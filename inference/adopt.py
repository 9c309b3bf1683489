"""get_model --onnx: somebody else's graph becomes models/<name>/, checked against itself in onnxruntime. Imports no torch."""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inference import __version__, graph_rewrite, model_folder, zoo
from inference.adopt_outputs import Observed, choose, meaning_of_scores, observe, plan
from inference.card import GraphSidecar, ModelCard, Weights, graph_path, read_card, read_sidecar
from inference.config import GetModelConfig
from inference.errors import BulkinferError, RunError, UsageError
from inference.file_lock import exclusive
from inference.foreign import Foreign, open_foreign, open_model, precision, run_all, run_each
from inference.graph_checks import PADDING_TOLERANCE, PARITY_TOLERANCES, Golden, golden_images
from inference.graph_file import IR_VERSION, Export, make_reproducible, move_weights_out
from inference.graph_rewrite import GraphOutput
from inference.paths import file_sha256
from inference.provision import Provided
from inference.user_files import read_labels, read_recipe
from inference.user_golden import check_user_golden, read_user_golden
from inference.weights import Say

_BATCHES = (1, 3)  # at which a graph of free batch is looked at
_LONGEST_NAME = 100  # job folders and temporaries are called by it with more behind it


def adopt(config: GetModelConfig, say: Say) -> Provided:
    """Make models/<name>/ of the graph of `config`. Raises UsageError or RunError with one sentence for all that hinders it."""
    start = time.monotonic()
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", config.name):
        raise UsageError(f"--name {config.name!r}: letters, digits, dot, dash and underscore make a name")
    if len(config.name) > _LONGEST_NAME:
        raise UsageError(f"--name: {len(config.name)} characters, at most {_LONGEST_NAME} make a name")
    if config.name.lower().startswith("timm_") or zoo.plain(config.name) in map(zoo.plain, zoo.NETWORKS):
        raise UsageError(f"--name {config.name}: a network of get_model --list is called so, or one of timm: give another name")
    try:
        card, export = _prepare(config, say)
    except ModuleNotFoundError as error:
        raise zoo.missing_package(error) from error
    folder = model_folder.open_folder(config.model_path, config.name)
    with exclusive(folder / model_folder.LOCK, lambda: say(f"waiting for another get_model that works on {folder}")):
        there = model_folder.existing_card(folder, say)
        if there is not None and there.source == "zoo":
            raise UsageError(f"--name {config.name}: {folder} holds a network of the zoo: give another name")
        if there == card and not model_folder.damage(folder, card) and not card.fixed_batch:
            return _widen(folder, card, config.batch_size, start)
        if removed := model_folder.publish(folder, card, export, config.batch_size):
            say(f"removed the graphs of the export before: {', '.join(removed)}")
    return Provided(folder, card, _sidecar(folder, config.batch_size), "exported", time.monotonic() - start)


def widen(config: GetModelConfig) -> Provided | None:
    """Add a batch size to an adopted network, from its folder alone; None if no adopted network has the name."""
    start = time.monotonic()
    folder = Path(config.model_path) / config.model_name
    if not (folder / model_folder.CARD).is_file() or (card := read_card(folder / model_folder.CARD)).source == "zoo":
        return None
    if config.weights != "auto":
        raise UsageError(f"--weights: {card.name} was adopted from {card.weights.source}, which holds its own")
    folder = model_folder.open_folder(config.model_path, config.model_name)
    if config.batch_size != (card.fixed_batch or config.batch_size):
        raise UsageError(f"{card.name} runs at batch {card.fixed_batch} only: its graph fixes that batch inside")
    with exclusive(folder / model_folder.LOCK, lambda: None):
        if damage := model_folder.damage(folder, card):
            raise RunError(f"{folder}: {damage}: run get_model --onnx again with {card.weights.source}")
        return _widen(folder, card, config.batch_size, start)


def _widen(folder: Path, card: ModelCard, batch_size: int, start: float) -> Provided:
    done = "verified"
    if not model_folder.has_batch_size(folder, batch_size):
        model_folder.add_batch_size(folder, card, batch_size)
        done = "added"
    return Provided(folder, card, _sidecar(folder, batch_size), done, time.monotonic() - start)


def _sidecar(folder: Path, batch_size: int) -> GraphSidecar:
    return read_sidecar(graph_path(folder, batch_size))


def _prepare(config: GetModelConfig, say: Say) -> tuple[ModelCard, Export]:
    """Everything but publishing: read, look at, check, rewrite."""
    path = Path(config.onnx)
    foreign = open_foreign(path, read_recipe(config.recipe), config.input)
    say(f"input {foreign.picture.name}: {foreign.picture.dtype} {foreign.picture.layout} {list(foreign.picture.shape)}")
    fixed_batch, observed = _look(foreign, config, say)
    classified = ""
    if config.scores != "none":
        classified, why = choose(config.output_name, observed)
        say(f"classified output: {classified} ({why})")
    outputs = plan(observed, classified)
    images = golden_images(foreign.recipe)
    golden = Golden(images, _golden_rows(foreign, images, outputs))
    meanings = _meanings(config.scores, classified, outputs, golden, say)
    labels = read_labels(Path(config.labels)) if config.labels else ()
    _check_labels(labels, meanings, golden)
    for case in read_user_golden(Path(config.golden)) if config.golden else ():
        say(f"--golden {case.name}: {check_user_golden(foreign, case, outputs, classified)}")
    export = _rewrite(foreign, config.input, outputs, fixed_batch, golden)
    sha256 = file_sha256(path)
    beside = f", weights beside it sha256 {foreign.external_sha256}" if foreign.external_sha256 else ""
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


def _look(foreign: Foreign, config: GetModelConfig, say: Say) -> tuple[int, Observed]:
    """The batch that the graph cannot do without (0: none), and its outputs.

    Raises UsageError where a batch that it fixes inside is not the one asked for.
    """
    batch = foreign.picture.batch
    _check_repeatable(foreign)
    try:
        observed = _observe_free(foreign)
        if not observed.rows or (batch and config.output_name in observed.left_out):
            name = config.output_name or next(iter(observed.left_out))
            raise RunError(f"output {name}: {observed.left_out[name]}")
    except BulkinferError as error:
        fixed, only = _observe_fixed(foreign, batch or 1)
        if fixed.rows and config.batch_size != only:
            raise UsageError(f"--onnx: {foreign.name} fixes or mixes its batch inside ({error}); "
                             f"it can only be adopted with --batch_size {only}") from error  # fmt: skip
        observed = _told(fixed, foreign, say)
        say(f"batch: {only} only, fixed inside the graph ({error})")
        return only, observed
    say("batch: free" + (f" (the graph said {batch}; it runs at any)" if batch else ""))
    return 0, _told(observed, foreign, say)


def _check_repeatable(foreign: Foreign) -> None:
    """Raises UsageError if the graph as it came gives the same pictures other values from run to run."""
    images = np.repeat(foreign.feed(golden_images(foreign.recipe))[:1], foreign.picture.batch or 1, axis=0)
    first, second = run_all(foreign.session, images), run_all(foreign.session, images)
    for name, values in first.items():
        if (
            isinstance(values, np.ndarray)
            and values.dtype.kind in "fiub"
            and not _agree(values, second[name], _tolerance(foreign))
        ):
            raise UsageError(f"--onnx: {foreign.name} draws random numbers: {name} differs from run to run with one picture: "
                             "export the network for inference (in torch: after model.eval())")  # fmt: skip


def _tolerance(foreign: Foreign) -> float:
    return PARITY_TOLERANCES[precision(foreign)]


def _agree(values: NDArray[Any], others: NDArray[Any], tolerance: float) -> bool:
    """Whether two results are the same but for the order of additions; values that are not finite are told elsewhere."""
    if values.shape != others.shape:
        return False
    if not (np.isfinite(values).all() and np.isfinite(others).all()):
        return True
    first, second = values.astype(np.float64), others.astype(np.float64)
    largest = float(np.max(np.abs(first), initial=0))
    return float(np.max(np.abs(first - second), initial=0)) <= tolerance * largest


def _observe_fixed(foreign: Foreign, batch: int) -> tuple[Observed, int]:
    """The outputs of the graph as it came, at its batch, and the batch at which it can be used: that one, or 1 if it mixes."""
    feed = foreign.feed(golden_images(foreign.recipe))
    observed = observe({batch: run_all(foreign.session, np.repeat(feed[:1], batch, axis=0))})
    return observed, 1 if batch > 1 and _mixed(foreign.session, feed, batch, observed) else batch


def _mixed(session: Any, feed: NDArray[Any], batch: int, observed: Observed) -> str:
    """The first output whose rows change with their neighbours in a batch; empty if none does."""
    images = np.resize(feed, (batch, *feed.shape[1:]))
    together = run_all(session, images)
    for number in range(min(batch, len(feed))):
        repeated = run_all(session, np.repeat(feed[number : number + 1], batch, axis=0))
        for name in observed.rows:
            if not _agree(together[name][number], repeated[name][number], PADDING_TOLERANCE):
                return name
    return ""


def _told(observed: Observed, foreign: Foreign, say: Say) -> Observed:
    """`observed`, what is left out said. Raises UsageError if nothing is left."""
    for name, why in observed.left_out.items():
        say(f"output {name} is left out: {why}")
    if not observed.rows:
        raise UsageError(f"--onnx: {foreign.name} has no output with one row per picture")
    return observed


def _observe_free(foreign: Foreign) -> Observed:
    """The outputs of the graph with a free batch. Raises RunError or UsageError where it does not run so."""
    model = copy.deepcopy(foreign.model)
    graph_rewrite.set_batch(model, foreign.picture, foreign.recipe, 0)
    if foreign.picture.batch and (fixed := graph_rewrite.fixed_outputs(model)):
        raise RunError(f"the batch of output {fixed[0]} does not follow that of the input")
    session = open_model(model, foreign.name)
    feed = foreign.feed(golden_images(foreign.recipe))
    runs = {count: run_all(session, feed[:count]) for count in _BATCHES}
    observed = observe(runs)
    # A graph made for one batch may run at others and take their pictures for one; the checks of the finished graph tell
    # more, but could only refuse what this can still take at its own batch.
    mixed = _mixed(session, feed, max(_BATCHES), observed)
    for number in range(max(_BATCHES)):
        alone = run_all(session, feed[number : number + 1])
        for name in observed.rows:
            if not _agree(runs[max(_BATCHES)][name][number], alone[name][0], _tolerance(foreign)):
                mixed = mixed or name
    if mixed:
        raise RunError(f"other rows of the batch change a picture's {mixed}")
    return observed


def _golden_rows(foreign: Foreign, images: NDArray[np.uint8], outputs: list[GraphOutput]) -> dict[str, NDArray[np.float32]]:
    """What the graph as it came gives for each picture alone, in our names and shapes."""
    rows = run_each(foreign.session, foreign.feed(images), foreign.picture.batch, [output.source for output in outputs])
    golden = {}
    for output in outputs:
        values = rows[output.source].astype(np.float32).reshape(len(images), *output.shape)
        if not np.isfinite(values).all():
            raise RunError(
                f"{foreign.name}: {output.source} is not finite on ordinary pictures: is it fed by the right recipe?"
            )
        golden[output.name] = values
    return golden


def _meanings(scores: str, classified: str, outputs: list[GraphOutput], golden: Golden, say: Say) -> dict[str, str]:
    """Meaning of each output by name; what was decided is said."""
    meanings = {}
    for output in outputs:
        meaning = "embedding" if output.name == "embedding" else "values"
        if output.source == classified:
            meaning, why = meaning_of_scores(scores, golden.outputs[output.name])
            say(f"scores: {meaning} ({why})")
        renamed = f" (called {output.source} in the graph)" if output.name != output.source else ""
        say(f"output {output.name}: {meaning}, {list(output.shape)} per picture{renamed}")
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
