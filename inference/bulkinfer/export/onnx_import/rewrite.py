"""A foreign graph -> one that workers can feed: free or fixed batch, pictures in, float32 rows out, weights as initializers.

Changes protobuf messages in memory and checks nothing. Shape letters: N batch, H height, W width, C channels.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bulkinfer.export.onnx_import.inputs import PictureInput
from bulkinfer.export.onnx_import.operators import needed_names, subgraphs, taken
from bulkinfer.model.graph_checks import BATCH
from bulkinfer.model.graph_file import EXTERNAL_BYTES
from bulkinfer.model.recipe import Recipe

PREFIX = "bulkinfer_"  # of every value that is added


@dataclass(frozen=True, slots=True)
class GraphOutput:
    """An output to publish. `source`, `source_shape` and `dtype` are its name, row shape and type in the foreign graph.

    `name` and `shape` are those of the published graph. float32 and float16 stay: with a cast in the graph, onnxruntime could
    skip the rounding of half precision, and so hide an overflow. All other types become float32.
    """

    source: str
    name: str
    source_shape: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str

    @property
    def kept_type(self) -> int:
        """The ONNX element type in the published graph."""
        return int(TensorProto.FLOAT16 if self.dtype == "float16" else TensorProto.FLOAT)


def set_batch(model: onnx.ModelProto, picture: PictureInput, recipe: Recipe, batch: int) -> None:
    """Give the input its final shape, with a free batch (0) or one of that size, and remove all shapes inferred before."""
    dims = [batch or BATCH, *picture.picture_shape(recipe)]
    (value,) = model.graph.input
    value.CopyFrom(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, dims))
    del model.graph.value_info[:]
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")


def first_dimensions(model: onnx.ModelProto) -> dict[str, int | str]:
    """The first of several dimensions of each output as far as it can be inferred: a number, or BATCH for the free batch."""
    ordered = copy.deepcopy(model)
    sort_nodes(ordered)  # else nothing is inferred of what is used before it is made
    inferred = onnx.shape_inference.infer_shapes(ordered, data_prop=True)
    shapes = {output.name: output.type.tensor_type.shape.dim for output in inferred.graph.output}
    first = {name: dims[0].dim_value or dims[0].dim_param for name, dims in shapes.items() if len(dims) > 1}
    return {name: size for name, size in first.items() if size}


def feed_pictures(model: onnx.ModelProto, picture: PictureInput, recipe: Recipe, kind: str) -> None:
    """Add nodes that turn the new input (uint8 N x H x W x 3 RGB, or normalised float32 N x 3 x H x W) into the graph's own."""
    (value,) = model.graph.input
    dims = [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
    steps = _steps(picture, recipe, kind)
    if not steps:
        return
    fed, ours = value.name, "images"
    if fed == ours:
        fed = f"{PREFIX}input"
        _rename(model.graph, ours, fed)
    elif ours in value_names(model):
        ours = f"{PREFIX}images"
    nodes, here = [], ours
    for number, (operator, constant, attributes) in enumerate(steps):
        there = fed if number == len(steps) - 1 else f"{PREFIX}pictures_{number}"
        inputs = [here]
        if constant is not None:
            inputs.append(f"{PREFIX}constant_{number}")
            model.graph.initializer.append(numpy_helper.from_array(constant, inputs[-1]))
        nodes.append(helper.make_node(operator, inputs, [there], **attributes))
        here = there
    own = [*model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *own])
    shape = [dims[0], recipe.height, recipe.width, 3] if kind == "uint8" else [dims[0], 3, recipe.height, recipe.width]
    value.CopyFrom(helper.make_tensor_value_info(ours, TensorProto.UINT8 if kind == "uint8" else TensorProto.FLOAT, shape))


def _steps(picture: PictureInput, recipe: Recipe, kind: str) -> list[tuple[str, Any, dict[str, Any]]]:
    """Operator, constant second input and attributes of each added node."""
    steps: list[tuple[str, Any, dict[str, Any]]] = []
    is_nchw = picture.layout == "NCHW"
    if kind == "uint8":
        if recipe.channels == "BGR":
            steps.append(("Gather", np.array([2, 1, 0], np.int64), {"axis": 3}))
        if is_nchw:
            steps.append(("Transpose", None, {"perm": [0, 3, 1, 2]}))
        if picture.dtype != "uint8":
            shape = (3, 1, 1) if is_nchw else (3,)
            steps.append(("Cast", None, {"to": TensorProto.FLOAT}))
            steps.append(("Mul", np.array(recipe.scale, np.float32).reshape(shape), {}))
            steps.append(("Add", np.array(recipe.offset, np.float32).reshape(shape), {}))
    elif not is_nchw:
        steps.append(("Transpose", None, {"perm": [0, 2, 3, 1]}))
    if picture.dtype == "float16":
        steps.append(("Cast", None, {"to": TensorProto.FLOAT16}))
    return steps


def keep_outputs(model: onnx.ModelProto, outputs: list[GraphOutput]) -> None:
    """Keep only these outputs, with their published names and shapes; the batch is that of the input."""
    batch = model.graph.input[0].type.tensor_type.shape.dim[0]
    del model.graph.output[:]
    moved = _make_room(model, outputs)
    for number, output in enumerate(outputs):
        steps: list[tuple[str, list[str], dict[str, Any]]] = []
        if output.dtype not in ("float32", "float16"):
            steps.append(("Cast", [], {"to": TensorProto.FLOAT}))
        if output.source_shape != output.shape:
            target = f"{PREFIX}shape_{number}"
            model.graph.initializer.append(numpy_helper.from_array(np.array([0, *output.shape], np.int64), target))
            steps.append(("Reshape", [target], {}))
        here = moved.get(output.source, output.source)
        if not steps and here != output.name:
            steps.append(("Identity", [], {}))
        if steps and here == output.name:
            here = f"{PREFIX}source_{number}"
            _rename(model.graph, output.name, here)
        for place, (operator, others, attributes) in enumerate(steps):
            there = output.name if place == len(steps) - 1 else f"{PREFIX}output_{number}"
            model.graph.node.append(helper.make_node(operator, [here, *others], [there], **attributes))
            here = there
        dims = [batch.dim_param or batch.dim_value, *output.shape]
        model.graph.output.append(helper.make_tensor_value_info(output.name, output.kept_type, dims))


def _make_room(model: onnx.ModelProto, outputs: list[GraphOutput]) -> dict[str, str]:
    """Rename every value that has the published name of an output but is not its source; returns old name -> new name."""
    taken, moved = value_names(model), {}
    for number, output in enumerate(outputs):
        if output.name != output.source and output.name in taken:
            moved[output.name] = f"{PREFIX}moved_{number}"
            _rename(model.graph, output.name, moved[output.name])
    return moved


def drop_unused(model: onnx.ModelProto) -> None:
    """Remove the nodes and weights that no output needs."""
    graph = model.graph
    needed = needed_names(graph, (output.name for output in graph.output))
    nodes = [node for node in graph.node if needed.intersection(node.output)]
    weights = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(weights)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and all its subgraphs."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graphs(inner)


def value_names(model: onnx.ModelProto) -> set[str]:
    """The names of all values of a graph and its subgraphs."""
    names: set[str] = set()
    for graph in _graphs(model.graph):
        names.update(value.name for value in (*graph.input, *graph.initializer))
        names.update(name for node in graph.node for name in (*node.input, *node.output))
    return names


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Rename a value wherever it is made or used."""
    for one in _graphs(graph):
        for value in (*one.input, *one.output, *one.initializer):
            if value.name == old:
                value.name = new
        for node in one.node:
            for names in (node.input, node.output):
                for place, name in enumerate(names):
                    if name == old:
                        names[place] = new


def sort_nodes(model: onnx.ModelProto) -> None:
    """Put every node after the nodes whose values it takes: onnx requires that, onnxruntime does not. Sorted nodes stay."""
    nodes = list(model.graph.node)
    maker = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    needs = [{maker[name] for name in taken(node) if name in maker} for node in nodes]
    users: dict[int, list[int]] = {}
    for place, makers in enumerate(needs):
        for other in makers:
            users.setdefault(other, []).append(place)
    ready = [place for place, makers in enumerate(needs) if not makers]
    order = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for user in users.get(place, []):
            needs[user].discard(place)
            if not needs[user]:
                heapq.heappush(ready, user)
    assert len(order) == len(nodes), "a cycle, which the runtime would have refused"
    del model.graph.node[:]
    model.graph.node.extend(nodes[place] for place in order)


def weights_to_initializers(model: onnx.ModelProto) -> None:
    """Turn large constants into initializers of raw bytes, and sparse ones into dense ones: a weights file can hold them."""
    graph = model.graph
    for sparse in graph.sparse_initializer:  # onnx infers no shapes from them
        graph.initializer.append(numpy_helper.from_array(_dense(sparse), sparse.values.name))
    del graph.sparse_initializer[:]
    for node in [node for node in graph.node if node.op_type == "Constant" and node.domain in ("", "ai.onnx")]:
        (attribute,) = node.attribute
        if attribute.HasField("t") and attribute.t.data_type != TensorProto.STRING and attribute.t.ByteSize() >= EXTERNAL_BYTES:
            attribute.t.name = node.output[0]
            graph.initializer.append(attribute.t)
            graph.node.remove(node)
    for tensor in graph.initializer:
        if not tensor.raw_data and tensor.data_type != TensorProto.STRING and tensor.ByteSize() >= EXTERNAL_BYTES:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))


def _dense(sparse: onnx.SparseTensorProto) -> NDArray[Any]:
    values, places = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    whole = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim == 1:
        whole.reshape(-1)[places] = values
    else:
        whole[tuple(places.T)] = values
    return whole


def num_parameters(model: onnx.ModelProto) -> int:
    """The number of values in all initializers of a floating or 8-bit type."""
    kinds = (
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.BFLOAT16,
        TensorProto.DOUBLE,
        TensorProto.INT8,
        TensorProto.UINT8,
    )
    return sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer if tensor.data_type in kinds)
