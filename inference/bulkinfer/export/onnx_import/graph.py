"""Somebody else's graph before it is rewritten: opened, examined, and run on the CPU.

Shape letters: N batch, H height, W width, C channels.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from bulkinfer.errors import RunError, UsageError, first_line
from bulkinfer.export.onnx_import.cut import cut_to_pictures
from bulkinfer.export.onnx_import.file import Origin, read_model
from bulkinfer.export.onnx_import.inputs import PictureInput, find_input
from bulkinfer.export.onnx_import.operators import random_operator
from bulkinfer.export.onnx_import.size_limits import check_tensors
from bulkinfer.model.graph_checks import cpu_session, golden_images, network_input
from bulkinfer.model.recipe import Recipe
from bulkinfer.runtime.fixed_batch import FixedBatch
from bulkinfer.runtime.onnxruntime_graph import runtime_reason
from bulkinfer.runtime.providers import runtime

log = logging.getLogger("bulkinfer")

_NOT_OF_NUMPY = re.compile(r"bfloat16|float8|float4|u?int[24]$|optional\(")  # output types that numpy lacks
OLDEST_OPSET = 7  # the first in which Add and Mul broadcast as numpy does
_QUANTISING = re.compile("QuantizeLinear|^QLinear|Integer$")  # operators that round to 8 bits


def open_model(model: onnx.ModelProto, name: str) -> Any:
    """A session on the CPU provider. Raises UsageError with the versions of the graph and the runtime's reason."""
    try:
        return cpu_session(model.SerializeToString())
    except Exception as error:  # see cpu_session
        opsets = ", ".join(f"{opset.domain or 'ai.onnx'} {opset.version}" for opset in model.opset_import)
        raise UsageError(
            f"--onnx: onnxruntime {runtime().__version__} cannot run {name} (IR version {model.ir_version}, opset {opsets}): "
            f"{runtime_reason(error)}"
        ) from error


def source_feed(images_NHWC: NDArray[np.uint8], recipe: Recipe, dtype: str, layout: str) -> NDArray[Any]:
    """RGB pictures as the original graph takes them, prepared outside of any graph."""
    if dtype == "uint8":
        pictures: NDArray[Any] = images_NHWC[..., ::-1] if recipe.channels == "BGR" else images_NHWC
        return np.ascontiguousarray(pictures.transpose(0, 3, 1, 2) if layout == "NCHW" else pictures)
    values_NCHW = network_input(images_NHWC, recipe)
    return np.ascontiguousarray(values_NCHW if layout == "NCHW" else values_NCHW.transpose(0, 2, 3, 1)).astype(dtype)


def run_each(session: Any, feed: NDArray[Any], batch: int, names: list[str]) -> dict[str, NDArray[Any]]:
    """Outputs for each picture alone (a graph of fixed batch gets it `batch` times); row i belongs to picture i.

    Raises RunError with what the runtime says.
    """

    def run_batch(images: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return dict(zip(names, run(session, images, names), strict=True))

    return FixedBatch(run_batch, batch or 1, padding=None, per_run=1).run(feed)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The value of an output of a type that numpy lacks, such as bfloat16: it cannot be fetched."""

    kind: str


def run_all(session: Any, images: NDArray[Any]) -> dict[str, Any]:
    """Every output by name, Unreadable where it cannot be fetched. Raises RunError like `run`."""
    found: dict[str, Any] = {}
    for output in session.get_outputs():
        kind = re.sub(r"^tensor\((.*)\)$", r"\1", output.type)
        found[output.name] = Unreadable(kind) if _NOT_OF_NUMPY.match(kind) else None
    names = [name for name, value in found.items() if value is None]
    return {**found, **dict(zip(names, run(session, images, names) if names else [], strict=True))}


def run(session: Any, images: NDArray[Any], names: list[str]) -> list[Any]:
    """One run of a graph with one input. Raises RunError with what the runtime says."""
    try:
        found: list[Any] = session.run(names, {session.get_inputs()[0].name: images})
    except Exception as error:  # onnxruntime's errors share no base class
        raise RunError(f"the graph does not run on a batch of {len(images)}: {first_line(error)}") from error
    return found


@dataclass(frozen=True)
class Foreign:
    """The original graph, a session of it on the CPU, and its picture input.

    `name` is the name of its file, `recipe` prepares its pictures. `origin` says which files the graph
    came from. `cut` are the outputs that were removed because they need other inputs, with reasons.
    """

    name: str
    model: onnx.ModelProto
    session: Any
    picture: PictureInput
    recipe: Recipe
    origin: Origin
    cut: dict[str, str]

    def feed(self, images_NHWC: NDArray[np.uint8]) -> NDArray[Any]:
        """RGB pictures as this graph takes them."""
        return source_feed(images_NHWC, self.recipe, self.picture.dtype, self.picture.layout)


def open_foreign(path: Path, recipe: Recipe, input_kind: str, output_name: str = "") -> Foreign:
    """Read a graph and check that `recipe` can prepare its input; outputs that need other inputs are cut off.

    Raises UsageError saying what does not fit.
    """
    model, origin = read_model(path)
    _drop_repeated_outputs(model)
    cut = cut_to_pictures(model, output_name)
    _check_for_inference(model, path.name)
    check_tensors(model, path.name)
    session = open_model(model, path.name)
    oldest = next((opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")), 0)
    if oldest < OLDEST_OPSET:
        raise UsageError(f"--onnx: {path.name} has opset {oldest}; the oldest that is supported is {OLDEST_OPSET}: "
                         "convert it with onnx.version_converter")  # fmt: skip
    picture = find_input(model, path.name)
    picture = _settle_layout(session, picture, recipe, path.name)
    wanted = picture.picture_shape(recipe)
    if any(isinstance(there, int) and there != size for there, size in zip(picture.shape[1:], wanted, strict=True)):
        raise UsageError(f"--recipe makes pictures of {recipe.height} x {recipe.width} (height x width), but {picture.name} of "
                         f"{path.name} takes {list(picture.shape)}")  # fmt: skip
    if picture.dtype == "uint8":
        if input_kind != "uint8":
            raise UsageError(f"--input {input_kind}: {path.name} takes uint8: leave it out")
        if (recipe.value_range, recipe.mean, recipe.std) != ((0, 255), (0, 0, 0), (1, 1, 1)):
            raise UsageError(f"--recipe scales the values, but {path.name} takes uint8 pictures as they are: give value_range "
                             "[0, 255], mean [0, 0, 0] and std [1, 1, 1]")  # fmt: skip
    return Foreign(path.name, model, session, picture, recipe, origin, cut)


def _drop_repeated_outputs(model: onnx.ModelProto) -> None:
    """List each output once: a graph may list one several times, and the runtime then gives it several times."""
    names = [output.name for output in model.graph.output]
    for place in reversed(range(len(names))):
        if names[place] in names[:place]:
            del model.graph.output[place]
            log.info(f"output {names[place]} is listed more than once in the graph: it is taken once")


def _check_for_inference(model: onnx.ModelProto, name: str) -> None:
    """Raises UsageError for a graph that behaves as in training: its answers are random, or depend on other pictures."""
    way_out = "export the network for inference (in torch: after model.eval())"
    if operator := random_operator(model):
        raise UsageError(f"--onnx: {name} draws random numbers in every run (operator {operator}): {way_out}")
    if any(node.op_type == "BatchNormalization" and _is_training(node) for node in model.graph.node):
        raise UsageError(f"--onnx: {name} was exported for training, its batch norms take their scale from the pictures: "
                         f"{way_out}")  # fmt: skip


def _is_training(node: onnx.NodeProto) -> bool:
    return any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)


def _settle_layout(session: Any, picture: PictureInput, recipe: Recipe, name: str) -> PictureInput:
    """If the shape allows both layouts, settle on the one in which the graph runs. Raises UsageError if it is still open."""
    running = []
    for layout in picture.layouts if len(picture.layouts) > 1 else ():
        feed = source_feed(golden_images(recipe)[:1], recipe, picture.dtype, layout)
        try:
            run(session, np.repeat(feed, picture.batch or 1, axis=0), [session.get_outputs()[0].name])
        except RunError:
            continue
        running.append(layout)
    if len(picture.layouts) > 1 and len(running) != 1:
        raise UsageError(f"--onnx: the input {picture.name} {list(picture.shape)} of {name} does not say where its 3 "
                         "channels are: give its channel dimension the size 3")  # fmt: skip
    return replace(picture, layouts=tuple(running)) if running else picture


def precision(foreign: Foreign) -> str:
    """The graph's arithmetic: int8 if it quantises, fp16 if its input or any weight is half precision, else fp32."""
    graph = foreign.model.graph
    if any(_QUANTISING.search(node.op_type) for node in graph.node):
        return "int8"
    is_half = any(tensor.data_type == TensorProto.FLOAT16 for tensor in graph.initializer)
    return "fp16" if is_half or foreign.picture.dtype == "float16" else "fp32"
