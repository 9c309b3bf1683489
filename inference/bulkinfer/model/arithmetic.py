"""How much a network computes, counted from its graph; and a graph that does nothing but compute, to measure against.

Counted are convolutions and matrix products, which are nearly all of it: a multiplication and an addition are two operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bulkinfer.errors import first_line
from bulkinfer.files.guarded import read_bytes

_MOST_BYTES = 2 << 30  # of a graph without its weights
SIDE = 1024  # of the square matrix of the graph of products
_PRODUCTS = 8  # in a row: input and output are then small beside the work
_Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What one picture costs a network: operations, and numbers moved if every layer's came from memory.

    Those are what layers read and write of the picture, and its share of the weights, which a batch reads once.
    """

    operations: float
    numbers: float


def count_work(graph: Path) -> Work:
    """The work of a graph of fixed batch. Raises ValueError if the size of a layer is not known from the graph."""
    try:
        model = onnx.shape_inference.infer_shapes(onnx.ModelProto.FromString(read_bytes(graph, _MOST_BYTES)))
    except onnx.shape_inference.InferenceError as error:
        raise ValueError(f"its sizes are not known ({first_line(error)})") from error
    shapes: dict[str, _Shape] = {each.name: tuple(each.dims) for each in model.graph.initializer}
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        shapes[value.name] = tuple(size.dim_value for size in value.type.tensor_type.shape.dim)
    operations, moved, weights = 0.0, 0, set[str]()
    for node in model.graph.node:
        if (count := _COUNTS.get(node.op_type)) is None:
            continue
        first, second = (0, 3) if node.op_type.startswith("QLinear") else (0, 1)
        data, factor, output = (_known(shapes, name) for name in (node.input[first], node.input[second], node.output[0]))
        operations += 2 * count(data, factor, output)
        moved += math.prod(data) + math.prod(output)
        weights.add(node.input[second])
    batch = _known(shapes, model.graph.input[0].name)[0]
    return Work(operations / batch, (moved + sum(math.prod(shapes[name]) for name in weights)) / batch)


def _known(shapes: dict[str, _Shape], name: str) -> _Shape:
    if not all(shape := shapes.get(name, (0,))):
        raise ValueError(f"the size of {name} is not known")
    return shape


def _convolution(_data: _Shape, weights: _Shape, output: _Shape) -> float:
    """Every value of the output sums as many products as a filter has weights."""
    return math.prod(output) * math.prod(weights[1:])


def _transposed(data: _Shape, weights: _Shape, _output: _Shape) -> float:
    """Every value of the input is multiplied by the weights that belong to its channel."""
    return math.prod(data) * math.prod(weights[1:])


def _product(data: _Shape, factor: _Shape, output: _Shape) -> float:
    """Every value of the output sums as many products as the inner side is long.

    That side is in both factors, whichever way they lie, and not in the output: MK * KN / MN = K * K.
    """
    inner = math.prod(data) * math.prod(factor[-2:]) / (math.prod(data[:-2]) * math.prod(output[-2:]))
    return math.prod(output) * math.sqrt(inner)


_COUNTS: dict[str, Callable[[_Shape, _Shape, _Shape], float]] = {
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv"), _convolution),
    "ConvTranspose": _transposed,
    **dict.fromkeys(("Gemm", "MatMul", "MatMulInteger", "QLinearMatMul"), _product),
}


def write_products(path: Path, precision: str, *, rows: int, halves: bool) -> None:
    """Write a graph of matrix products in a row: `x`, float32 rows x SIDE, to `y`, rows x 1.

    In int8 it has the marks of quantisation. With `halves`, its weights are float16: the precision needs a graph of its own.
    """
    weights = np.random.default_rng(0).normal(0, SIDE**-0.5, (SIDE, SIDE)).astype(np.float16 if halves else np.float32)
    kind = TensorProto.FLOAT16 if halves else TensorProto.FLOAT
    constants = [numpy_helper.from_array(weights, "weights")]
    nodes = [helper.make_node("Cast", ["x"], ["value_0"], to=kind)]
    factor = "weights"
    if precision == "int8":
        scale, steps = np.abs(weights).max() / 127, np.float32(0.05)
        constants = [
            numpy_helper.from_array(np.round(weights / scale).astype(np.int8), "weights"),
            *(
                numpy_helper.from_array(np.array(value, np.float32), name)
                for name, value in (("scale", scale), ("step", steps))
            ),
            *(numpy_helper.from_array(np.array(0, np.int8), name) for name in ("zero", "zero_of_step")),
        ]
        nodes.append(helper.make_node("DequantizeLinear", ["weights", "scale", "zero"], ["factor"]))
        factor = "factor"
    for number in range(_PRODUCTS):
        value = f"value_{number}"
        if precision == "int8":
            nodes.append(helper.make_node("QuantizeLinear", [value, "step", "zero_of_step"], [f"{value}_int"]))
            nodes.append(helper.make_node("DequantizeLinear", [f"{value}_int", "step", "zero_of_step"], [f"{value}_back"]))
            value = f"{value}_back"
        nodes.append(helper.make_node("MatMul", [value, factor], [f"value_{number + 1}"]))
    nodes.append(helper.make_node("ReduceMax", [f"value_{_PRODUCTS}", "axes"], ["last"], keepdims=1))
    nodes.append(helper.make_node("Cast", ["last"], ["y"], to=TensorProto.FLOAT))
    constants.append(numpy_helper.from_array(np.array([1], np.int64), "axes"))
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 1])],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(path))


OPERATIONS_PER_ROW = 2.0 * SIDE * SIDE * _PRODUCTS
