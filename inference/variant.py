"""get_model --precision int8: models/<name>/int8/, a folder like the network's own, made of it and judged by it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from inference import __version__, model_folder, quantize
from inference.activation_ranges import TensorRange, batches, collect
from inference.calibration_pictures import Sample, sample_pictures
from inference.card import Calibration, ModelCard, graph_path, is_made_of, read_card, read_sidecar, variant_folder
from inference.config import GetModelConfig
from inference.cores import core_budget
from inference.errors import RunError, UsageError
from inference.file_lock import exclusive
from inference.gate import Figures, compare, objection, rank
from inference.graph_checks import Golden, Outputs, cpu_session, read_golden
from inference.graph_file import Export, move_weights_out
from inference.preprocess import normalise
from inference.providers import PROVIDERS, SessionSpec
from inference.provision import Provided
from inference.session import Session
from inference.weights import Say

INT8 = "int8"
_JUDGES = ("cpu", "openvino")  # providers that run int8; the first one judges every candidate, the others the best
_MAKERS = ("onnx", "onnxruntime", "numpy")

Tried = dict[str, dict[str, Any]]  # figures by what they are of


def check_request(config: GetModelConfig) -> None:
    """Before the network is made, which may take minutes. Raises UsageError for a folder of pictures that is not there."""
    if config.calibration_dir and not Path(config.calibration_dir).is_dir():
        raise UsageError(f"--calibration_dir: {config.calibration_dir} is no folder: give a folder of pictures")


def provide_int8(config: GetModelConfig, network: Provided, say: Say) -> Provided:
    """Make the variant of a finished network hold a checked graph of the batch size, doing only what is missing.

    Raises UsageError for a network or pictures that do not lead to one, RunError for a variant that does not pass the gate.
    """
    start = time.monotonic()
    card = network.card
    if not card.classified:
        raise UsageError(f"--precision int8: {card.name} classifies nothing, so nobody could tell whether int8 harms it")
    if card.precision != "fp32":
        raise UsageError(f"--precision int8: the graph of {card.name} computes in {card.precision} already: it runs as it is")
    folder = variant_folder(network.folder, INT8)
    with exclusive(network.folder / model_folder.LOCK, lambda: say(f"waiting for another get_model on {network.folder}")):
        if read_card(network.folder / model_folder.CARD) != card:
            raise RunError(f"{network.folder} was changed by another get_model meanwhile: run it again")
        found, reason = _existing(folder, card, say)
        if not config.calibration_dir and found is None:
            raise UsageError(f"{folder} {reason}: give --calibration_dir PICTURES, a folder of pictures like those to come")
        sample = sample_pictures(config.calibration_dir, card.recipe, say) if config.calibration_dir else None
        if found is not None and (sample is None or _is_calibrated_with(found, sample)):
            done = "verified"
            if not model_folder.has_batch_size(folder, config.batch_size):
                model_folder.add_batch_size(folder, found, config.batch_size)
                done = "added"
        else:
            assert sample is not None
            found, done = _make(config, network, sample, say), "exported"
        sidecar = read_sidecar(graph_path(folder, config.batch_size))
        return Provided(folder, found, sidecar, done, time.monotonic() - start)


def _existing(folder: Path, card: ModelCard, say: Say) -> tuple[ModelCard | None, str]:
    """The card of a variant that is whole and of this network; else None, and why."""
    found = model_folder.existing_card(folder, say) if folder.is_dir() else None
    if found is None:
        return None, "does not exist"
    if not is_made_of(found, card):
        return None, "was made of another export of the network"
    if damage := model_folder.damage(folder, found):
        return None, f"is damaged ({damage})"
    return found, ""


def _is_calibrated_with(card: ModelCard, sample: Sample) -> bool:
    facts = card.calibration
    return facts is not None and facts["pictures_sha256"] == sample.sha256 and card.versions == _versions()


def _versions() -> dict[str, str]:
    return {"bulkinfer": __version__, **{name: importlib.metadata.version(name) for name in _MAKERS}}


def _make(config: GetModelConfig, network: Provided, sample: Sample, say: Say) -> ModelCard:
    """Calibrate, choose, publish."""
    card, fixed = network.card, network.card.fixed_batch
    folder = variant_folder(network.folder, INT8)
    with tempfile.TemporaryDirectory(prefix="bulkinfer-") as temporary:
        work = Path(temporary)
        model = quantize.prepared(graph_path(network.folder, fixed), work)
        say(f"measuring the values inside {card.name}")
        feeds = (_feed(card, part) for part in batches(sample.calibrate_NHWC, fixed))
        ranges = collect(model, quantize.tensors_to_watch(model), feeds, work)
        fp32 = graph_path(network.folder, config.batch_size)
        judge = _Judge(card, fp32, sample.held_out_NHWC, 0 if fixed else config.batch_size, work, say)
        chosen, name, tried, judged = _choose(model, ranges, judge, say)
        golden = _golden(chosen, card, read_golden(network.folder / model_folder.GOLDEN).images_NHWC)
    weights, weights_file = move_weights_out(chosen)
    made = replace(
        card,
        precision=INT8,
        versions=_versions(),
        external_data=weights_file,
        external_data_sha256=hashlib.sha256(weights).hexdigest(),
        calibration=Calibration(
            pictures_sha256=sample.sha256,
            calibrated=len(sample.calibrate_NHWC),
            held_out=len(sample.held_out_NHWC),
            chosen=name,
            candidates=tried,
            judged=judged,
        ),
    )
    export = Export(chosen.SerializeToString(deterministic=True), weights, weights_file, golden, card.num_parameters)
    folder.mkdir(exist_ok=True)
    try:
        if removed := model_folder.publish(folder, made, export, config.batch_size):
            say(f"removed the graphs of the variant before: {', '.join(removed)}")
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()
    return made


def _feed(card: ModelCard, images_NHWC: NDArray[np.uint8]) -> NDArray[Any]:
    """Prepared pictures as the graph takes them."""
    return images_NHWC if card.input == "uint8" else normalise(images_NHWC, card.recipe)


class _Judge:
    """Held-out pictures with what fp32 makes of them; `figures` compares a graph on a provider with that.

    `batch_size` is given to graphs of free batch, 0: they have their own. `folder` is for files to work with.
    """

    def __init__(
        self, card: ModelCard, fp32: Path, images_NHWC: NDArray[np.uint8], batch_size: int, folder: Path, say: Say
    ) -> None:
        self._card, self._images_NHWC, self._batch_size, self._say = card, images_NHWC, batch_size, say
        self._path = folder / "candidate.onnx"
        self._expected_NC = self._class_values(fp32, "cpu", "fp32")

    def figures(self, model: onnx.ModelProto, provider: str, what: str) -> tuple[Figures, str]:
        """The figures, and why they do not pass; what came out is said."""
        graph = model.SerializeToString(deterministic=True)
        self._path.write_bytes(model_folder.fix_batch(graph, self._batch_size) if self._batch_size else graph)
        values_NC = self._class_values(self._path, provider, INT8)
        figures = compare(self._expected_NC, values_NC, are_logits=self._card.outputs[self._card.classified] == "logits")
        why = objection(figures, INT8)
        self._say(f"int8, {what}, on {provider}: {figures}: {why or 'passes'}")
        return figures, why

    def _class_values(self, graph: Path, provider: str, precision: str) -> NDArray[Any]:
        session = Session(SessionSpec(str(graph), provider, precision, 1, core_budget().usable), [self._card.classified])
        parts = batches(self._images_NHWC, session.batch_shape[0])
        values = [session.run(_feed(self._card, part))[self._card.classified] for part in parts]
        return np.concatenate(values)[: len(self._images_NHWC)]


def _choose(
    model: onnx.ModelProto, ranges: dict[str, TensorRange], judge: _Judge, say: Say
) -> tuple[onnx.ModelProto, str, Tried, Tried]:
    """The best graph of the first step in which one passes, its name, the figures of all that were tried, and its own by
    provider. Raises RunError where none passes.

    Steps are tried in order because what stays in fp32 costs speed.
    """
    tried: Tried = {}
    best: tuple[tuple[float, ...], str] | None = None
    for step in quantize.candidates(model):
        passing = []
        for candidate in step:
            graph = quantize.quantized(model, ranges, candidate)
            figures, why = judge.figures(graph, _JUDGES[0], str(candidate))
            tried[str(candidate)] = {**asdict(figures), "objection": why}
            if not why:
                passing.append((rank(figures), candidate, graph, figures))
            elif best is None or rank(figures) < best[0]:
                best = rank(figures), f"{candidate} has {figures} ({why})"
        for place, candidate, graph, figures in sorted(passing, key=lambda item: item[0]):
            others = {provider: judge.figures(graph, provider, str(candidate)) for provider in _other_judges(say)}
            if not any(why for _, why in others.values()):
                judged = {_JUDGES[0]: asdict(figures), **{name: asdict(found) for name, (found, _) in others.items()}}
                say(f"int8: {candidate} is taken")
                return graph, str(candidate), tried, judged
            name, (found, why) = next((name, item) for name, item in others.items() if item[1])
            if best is None or place < best[0]:
                best = place, f"{candidate} on {name} has {found} ({why})"
    assert best is not None
    raise RunError(
        f"int8 changes what the network sees, so no variant was made: of {len(tried)} candidates the best, {best[1]}: "
        "stay with --precision fp32, or give more pictures, and such as are to come"
    )


def _other_judges(say: Say) -> Iterator[str]:
    """Providers beside the first that could run the variant here."""
    for provider in _JUDGES[1:]:
        if all(importlib.util.find_spec(module) for module in PROVIDERS[provider].modules):
            yield provider
        else:
            say(f"int8: not judged on {provider}, which is not installed here")


def _golden(model: onnx.ModelProto, card: ModelCard, images_NHWC: NDArray[np.uint8]) -> Golden:
    """What the chosen graph gives for each golden picture alone: its graphs of other batch sizes must give the same.

    How far it is from the source is the gate's business; golden pictures are no photographs and say nothing of that.
    """
    session = cpu_session(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    feed = _feed(card, images_NHWC)
    rows: list[list[NDArray[Any]]] = []
    for image in feed:
        batch = np.repeat(image[None], card.fixed_batch or 1, axis=0)
        rows.append([values[:1] for values in session.run(names, {session.get_inputs()[0].name: batch})])
    outputs: Outputs = {name: np.concatenate([row[place] for row in rows]) for place, name in enumerate(names)}
    return Golden(images_NHWC, outputs)
