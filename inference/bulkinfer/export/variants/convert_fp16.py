"""A graph in fp32 -> the same graph in fp16, by onnxruntime; and a graph in fp32 that rounds like the one in fp16.

onnxruntime's cpu provider runs a graph in fp16 as if it were in fp32: it removes the rounding between the nodes, and with it
every overflow. So its results on a processor say nothing about a device that computes in fp16.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bulkinfer.errors import RunError, first_line
from bulkinfer.export.onnx_import.rewrite import sort_nodes
from bulkinfer.model.graph_file import IR_VERSION, make_reproducible, pack

_LARGEST = float(np.finfo(np.float16).max)


def too_large_for_fp16(model: onnx.ModelProto) -> dict[str, float]:
    """Nodes with a constant that fp16 cannot hold: node name -> largest absolute value among its finite ones."""
    constants = {tensor.name: _largest(tensor) for tensor in model.graph.initializer}
    found = {}
    for node in model.graph.node:
        largest = max((constants.get(name, 0.0) for name in node.input), default=0.0)
        largest = max(largest, *map(_largest, _constants_inside(node)), 0.0)
        if largest > _LARGEST:
            found[node.name] = largest
    return found


def _largest(tensor: onnx.TensorProto) -> float:
    """The largest absolute value among the finite values of a float32 tensor; 0 for other types."""
    if tensor.data_type != TensorProto.FLOAT:
        return 0.0
    values = np.abs(numpy_helper.to_array(tensor))
    return float(np.max(values, initial=0, where=np.isfinite(values)))


def _constants_inside(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    """Tensors in the attributes of a node, and in its subgraphs."""
    for attribute in node.attribute:
        yield from (attribute.t, *attribute.tensors)
        for graph in (attribute.g, *attribute.graphs):
            yield from graph.initializer
            for inner in graph.node:
                yield from _constants_inside(inner)


def kept_in_fp32(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes that stay in fp32: constants too large for fp16, or operators that onnxruntime does not convert."""
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST

    too_large = too_large_for_fp16(model)
    return [node.name for node in model.graph.node if node.name in too_large or node.op_type in DEFAULT_OP_BLOCK_LIST]


def to_fp16(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` (a result of simplify.simplified) in fp16; inputs and outputs keep their types.

    Casts surround the nodes of kept_in_fp32. Raises RunError if onnxruntime cannot convert it.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    try:
        found: onnx.ModelProto = convert_float_to_float16(
            copied, keep_io_types=True, disable_shape_infer=True, node_block_list=kept_in_fp32(model)
        )
    except Exception as error:  # the classes that it raises are not documented
        raise RunError(f"onnxruntime cannot convert the graph to fp16: {first_line(error)}") from error
    sort_nodes(found)  # onnxruntime appends the casts
    pack(found)
    make_reproducible(found, max(IR_VERSION, found.ir_version))
    return found


def rounded_like_fp16(model: onnx.ModelProto, half: onnx.ModelProto) -> onnx.ModelProto:
    """A graph that computes what `half` = to_fp16(model) computes on a device: fp32 arithmetic, values rounded to fp16.

    It is `model` with every constant that is fp16 in `half` and every float32 value rounded. Values that are too large become
    infinite. Subgraphs are not rounded.
    """
    found = onnx.ModelProto()
    found.CopyFrom(model)
    graph = found.graph
    halves = {tensor.name: tensor for tensor in half.graph.initializer if tensor.data_type == TensorProto.FLOAT16}
    for tensor in graph.initializer:
        if tensor.name in halves:
            values = numpy_helper.to_array(halves[tensor.name]).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    floats = {
        value.name
        for value in (*graph.value_info, *graph.output, *graph.input)
        if value.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    taken = {value.name: f"{value.name}_rounded" for value in graph.input if value.name in floats}
    casts = [cast for name, to in taken.items() for cast in _rounding(name, to)]
    for node in graph.node:
        node.input[:] = [taken.get(name, name) for name in node.input]
        for place, name in enumerate(node.output):
            if name in floats:
                node.output[place] = f"{name}_exact"
                casts += _rounding(node.output[place], name)
    graph.node.extend(casts)
    sort_nodes(found)
    make_reproducible(found, max(IR_VERSION, found.ir_version))
    return found


def _rounding(name: str, to: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Cast", [name], [f"{to}_half"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", [f"{to}_half"], [to], to=TensorProto.FLOAT),
    ]
