"""Somebody else's graph before it is rewritten: its picture input is found, and it is run on the CPU.

Shape letters: N batch, H height, W width, C channels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from bulkinfer.errors import RunError, UsageError, first_line
from bulkinfer.export.onnx_import.file import read_model
from bulkinfer.model.graph_checks import cpu_session, golden_images, network_input
from bulkinfer.model.recipe import Recipe
from bulkinfer.runtime.fixed_batch import FixedBatch
from bulkinfer.runtime.providers import runtime
from bulkinfer.runtime.session import runtime_reason

DTYPES = {TensorProto.UINT8: "uint8", TensorProto.FLOAT: "float32", TensorProto.FLOAT16: "float16"}
_NOT_OF_NUMPY = re.compile(r"bfloat16|float8|float4|u?int[24]$|optional\(")  # output types that numpy lacks
LAYOUTS = ("NCHW", "NHWC")
OLDEST_OPSET = 7  # the first in which Add and Mul broadcast as numpy does
_QUANTISING = re.compile("QuantizeLinear|^QLinear|Integer$")  # operators that round to 8 bits


@dataclass(frozen=True, slots=True)
class PictureInput:
    """The input that takes the pictures: `dtype` is uint8, float32 or float16, `batch` 0 means free.

    `layouts` are those that its shape allows.
    """

    name: str
    dtype: str
    layouts: tuple[str, ...]
    batch: int
    shape: tuple[int | str, ...]

    @property
    def layout(self) -> str:
        """NCHW or NHWC, once the layout is settled."""
        (layout,) = self.layouts
        return layout

    def picture_shape(self, recipe: Recipe) -> tuple[int, ...]:
        """The dimensions after the batch."""
        if self.layout == "NCHW":
            return (3, recipe.height, recipe.width)
        return (recipe.height, recipe.width, 3)


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


def find_input(model: onnx.ModelProto, name: str) -> PictureInput:
    """The one input that is to be fed; weights that are listed as inputs too are taken off that list.

    Raises UsageError if there are more, or if it is none for pictures.
    """
    graph = model.graph
    filled = {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}
    real = [value for value in graph.input if value.name not in filled]
    del graph.input[:]
    graph.input.extend(real)
    if len(real) != 1:
        listed = ", ".join(f"{value.name} {_shown(value)}" for value in real) or "none"
        raise UsageError(f"--onnx: {name} needs {len(real)} inputs ({listed}); all but the pictures must have a default value "
                         "(an initializer of the same name)")  # fmt: skip
    (value,) = real
    kind, shape = value.type.tensor_type.elem_type, _shape(value)
    if not value.type.HasField("tensor_type") or kind not in DTYPES:
        raise UsageError(f"--onnx: {name} takes {_shown(value)} as {value.name}; {', '.join(DTYPES.values())} can be fed")
    layouts = tuple(layout for layout in LAYOUTS if len(shape) == 4 and shape[layout.index("C")] == 3)
    if not layouts:
        layouts = tuple(layout for layout in LAYOUTS if len(shape) == 4 and isinstance(shape[layout.index("C")], str))
    if not layouts:
        raise UsageError(f"--onnx: {name} takes {_shown(value)} as {value.name}, which are no pictures of 3 channels: "
                         "N x 3 x H x W or N x H x W x 3 is needed")  # fmt: skip
    return PictureInput(value.name, DTYPES[kind], layouts, shape[0] if isinstance(shape[0], int) else 0, shape)


def _shape(value: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    """Sizes where they are known, names (or ?) where not."""
    dims = value.type.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.dim_value > 0 else dim.dim_param or "?" for dim in dims)


def _shown(value: onnx.ValueInfoProto) -> str:
    kind = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    kind = {"float": "float32", "double": "float64", "undefined": "no tensor"}.get(kind, kind)
    return f"{kind} [{', '.join(map(str, _shape(value)))}]"


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

    `name` is the name of its file, `recipe` prepares its pictures. `external_sha256` is the hash of the weights that lie in
    other files, empty if there are none.
    """

    name: str
    model: onnx.ModelProto
    session: Any
    picture: PictureInput
    recipe: Recipe
    external_sha256: str

    def feed(self, images_NHWC: NDArray[np.uint8]) -> NDArray[Any]:
        """RGB pictures as this graph takes them."""
        return source_feed(images_NHWC, self.recipe, self.picture.dtype, self.picture.layout)


def open_foreign(path: Path, recipe: Recipe, input_kind: str) -> Foreign:
    """Read a graph and check that `recipe` can prepare its input. Raises UsageError saying what does not fit."""
    model, external_sha256 = read_model(path)
    session = open_model(model, path.name)
    if any(node.op_type == "BatchNormalization" and _is_training(node) for node in model.graph.node):
        raise UsageError(f"--onnx: {path.name} was exported for training, its batch norms take their scale from the pictures: "
                         "export the network for inference (in torch: after model.eval())")  # fmt: skip
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
    return Foreign(path.name, model, session, picture, recipe, external_sha256)


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
