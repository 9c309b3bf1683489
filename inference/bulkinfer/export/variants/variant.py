"""get_model --precision: models/<name>/int8/ or fp16/, a folder like the network's own, converted from it and judged by it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from bulkinfer import __version__
from bulkinfer.config import GetModelConfig
from bulkinfer.errors import RunError
from bulkinfer.export import model_folder
from bulkinfer.export.model_folder import ModelFolder
from bulkinfer.export.variants.calibration_set import Sample, most_pictures, pictures_for, sample_pictures
from bulkinfer.export.variants.evaluate import Chosen, Judge, feed
from bulkinfer.export.variants.make import make_fp16, make_int8
from bulkinfer.export.variants.request import check_kind, check_pictures
from bulkinfer.export.variants.simplify import simplified
from bulkinfer.files.atomic import remove_abandoned, write_owner_file
from bulkinfer.files.file_lock import exclusive
from bulkinfer.model.accuracy_gate import MIN_CLEAR
from bulkinfer.model.batch_graph import LOCK, complete
from bulkinfer.model.card import CALIBRATED, CARD, Calibration, ModelCard, graph_path, read_card, variant_folder
from bulkinfer.model.graph_checks import Golden, Outputs, cpu_session, read_golden
from bulkinfer.model.graph_file import Export, move_weights_out
from bulkinfer.model.integrity import variant_damage
from bulkinfer.runtime.providers import runtime

log = logging.getLogger("bulkinfer")

_WORK_PREFIX = "bulkinfer-"  # of folders for temporary files


def make_variant(config: GetModelConfig, network: ModelFolder) -> ModelFolder:
    """Make the variant of a finished network with a checked graph of the batch size; work already done is not repeated.

    Raises UsageError for a network or pictures of which none can be made, RunError for one that does not pass the gate.
    """
    start = time.monotonic()
    card, precision = network.card, config.precision
    folder = variant_folder(network.folder, precision)
    remove_abandoned(Path(tempfile.gettempdir()), f"{_WORK_PREFIX}*")
    with exclusive(network.folder / LOCK, lambda: log.info(f"waiting for another get_model on {network.folder}")):
        if read_card(network.folder / CARD) != card:
            raise RunError(f"{network.folder} was changed by another get_model in the meantime: run it again")
        check_kind(precision, card)
        found = model_folder.existing_card(folder) if folder.is_dir() else None
        if variant_damage(folder, card):
            check_pictures(config, folder, card)
            found = None
        sample = None
        if config.calibration_dir:
            sample = sample_pictures(config.calibration_dir, card.recipe, all_held_out=precision not in CALIBRATED)
        if found is not None and _is_current(found, sample):
            done = complete(folder, found, config.batch_size)
        else:
            found, done = _make(config, network, sample), "exported"
        return model_folder.finished(folder, found, config.batch_size, done, start)


def _is_current(card: ModelCard, sample: Sample | None) -> bool:
    """True if making it again would give the same; without pictures, a variant that needs them counts as current."""
    if sample is None:
        return card.precision in CALIBRATED or card.versions == _versions()
    facts = card.calibration
    return facts is not None and facts["pictures_sha256"] == sample.sha256 and card.versions == _versions()


def _versions() -> dict[str, str]:
    made_with = {name: importlib.metadata.version(name) for name in ("onnx", "numpy")}
    return {"bulkinfer": __version__, "onnxruntime": runtime().__version__, **made_with}  # its package may be onnxruntime-gpu


def _make(config: GetModelConfig, network: ModelFolder, sample: Sample | None) -> ModelCard:
    """Convert, judge and publish; returns the card."""
    card, fixed, precision = network.card, network.card.fixed_batch, config.precision
    images_NHWC = read_golden(network.folder / model_folder.GOLDEN).images_NHWC
    if sample is None:
        log.info(f"{precision}: no --calibration_dir: judged on the golden pictures only, by the error of the output")
    with tempfile.TemporaryDirectory(prefix=_WORK_PREFIX) as temporary:
        work = Path(temporary)
        write_owner_file(work)
        model = simplified(graph_path(network.folder, fixed), work)
        held_out_NHWC = images_NHWC if sample is None else sample.held_out_NHWC
        fp32 = graph_path(network.folder, config.batch_size)
        judge = Judge(precision, card, fp32, held_out_NHWC, 0 if fixed else config.batch_size, work)
        if precision in CALIBRATED:
            assert sample is not None
            _refuse_unclear(card, judge.clear, sample)
            chosen = make_int8(model, card, sample.calibrate_NHWC, judge, work)
        else:
            chosen = make_fp16(model, judge)
    if sample is not None and judge.clear < MIN_CLEAR and not card.weights.is_random:
        log.info(
            f"warning: it was not measured whether {precision} keeps this network's answers: of {len(held_out_NHWC)} pictures "
            f"that judge, {judge.clear} have a clear answer, {MIN_CLEAR} are needed: give more, and pictures of its classes"
        )
    facts = Calibration(
        pictures_sha256=sample.sha256 if sample else "",
        calibrated=len(sample.calibrate_NHWC) if sample else 0,
        held_out=len(held_out_NHWC),
        chosen=chosen.name,
        candidates=chosen.tried,
        judged=chosen.judged,
    )
    folder = variant_folder(network.folder, precision)
    return _publish(folder, replace(card, precision=precision, calibration=facts), chosen, images_NHWC, config.batch_size)


def _refuse_unclear(card: ModelCard, clear: int, sample: Sample) -> None:
    """Raises RunError if too few pictures have a clear answer to judge whether a calibrated network keeps its answers.

    A small output error does not prove it: a network calibrated with pictures that are not of its classes had one, and lost
    most of its right answers. Random weights have no answers to lose.
    """
    if card.weights.is_random or clear >= MIN_CLEAR:
        return
    held_out, there = len(sample.held_out_NHWC), len(sample.held_out_NHWC) + len(sample.calibrate_NHWC)
    total, most = pictures_for(MIN_CLEAR, held_out, clear), most_pictures(card.recipe)
    if total is not None and total <= most:
        advice = f"give pictures that it knows better, or some {total - there} more like these {there}"
    else:
        advice = f"give pictures of its classes, because even {most} like these, the most that are taken, would not suffice"
    raise RunError(
        f"the effect of int8 on {card.name} cannot be judged, so no variant was made: of {held_out} pictures that judge, "
        f"{clear} have a clear answer in fp32, {MIN_CLEAR} are needed: {advice}"
    )


def _publish(folder: Path, card: ModelCard, chosen: Chosen, images_NHWC: NDArray[np.uint8], batch_size: int) -> ModelCard:
    """Publish the chosen graph in the variant's folder, in place of the variant before; returns its card."""
    golden = _golden(chosen.model, card, images_NHWC)
    weights, weights_file = move_weights_out(chosen.model)
    sha256 = hashlib.sha256(weights).hexdigest()
    made = replace(
        card,
        versions=_versions(),
        external_data=weights_file,
        external_data_sha256=sha256,
        external_data_bytes=len(weights),
    )
    graph = chosen.model.SerializeToString(deterministic=True)
    export = Export(graph, weights, weights_file, golden, card.num_parameters)
    folder.mkdir(exist_ok=True)
    try:
        if removed := model_folder.publish(folder, made, export, batch_size):
            log.info(f"removed the graphs of the variant before: {', '.join(removed)}")
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()
    return made


def _golden(model: onnx.ModelProto, card: ModelCard, images_NHWC: NDArray[np.uint8]) -> Golden:
    """The outputs of the chosen graph for each golden picture alone: its graphs of other batch sizes must give the same.

    The gate has judged its distance from fp32; golden pictures are no photographs and cannot.
    """
    session = cpu_session(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    rows: list[list[NDArray[Any]]] = []
    for image in feed(card, images_NHWC):
        batch = np.repeat(image[None], card.fixed_batch or 1, axis=0)
        rows.append([values[:1] for values in session.run(names, {session.get_inputs()[0].name: batch})])
    outputs: Outputs = {name: np.concatenate([row[place] for row in rows]) for place, name in enumerate(names)}
    return Golden(images_NHWC, outputs)
