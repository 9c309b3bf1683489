"""Variants of the tiny network of models.py that behave badly on one marker picture: white."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.models import SIZE, tiny_graph

MARKER = (255, 255, 255)


def _is_marker(brighter_than: float = 0.999) -> list[onnx.NodeProto]:
    """`marked`: int64 N x 1, 1 for a picture of such a mean (by default a white one), else 0."""
    threshold = numpy_helper.from_array(np.array(brighter_than, np.float32))
    axis = numpy_helper.from_array(np.array([1], np.int64))
    return [
        helper.make_node("Constant", [], ["threshold"], value=threshold),
        helper.make_node("Constant", [], ["channels"], value=axis),
        helper.make_node("ReduceMin", ["mean", "channels"], ["darkest"], keepdims=1),
        helper.make_node("Greater", ["darkest", "threshold"], ["is_marked"]),
        helper.make_node("Cast", ["is_marked"], ["marked"], to=TensorProto.INT64),
    ]


def always_raises(batch_size: int) -> onnx.ModelProto:
    """Every run fails, also on zeros."""
    return raises_on_marker(batch_size, brighter_than=-1.0)


def raises_on_marker(batch_size: int, brighter_than: float = 0.999) -> onnx.ModelProto:
    """A white picture makes the whole run fail: its index is out of the range of a Gather."""
    table = numpy_helper.from_array(np.zeros(1, np.float32))
    extra = [
        *_is_marker(brighter_than),
        helper.make_node("Constant", [], ["table"], value=table),
        helper.make_node("Gather", ["table", "marked"], ["nothing"]),
        helper.make_node("Add", ["mean", "nothing"], ["embedding"]),
    ]
    return tiny_graph(batch_size, extra)


def overflows_on_marker(batch_size: int) -> onnx.ModelProto:
    """A white picture is divided by zero: its embedding is infinite, its logits are infinite or NaN."""
    extra = [
        *_is_marker(),
        helper.make_node("Not", ["is_marked"], ["is_plain"]),
        helper.make_node("Cast", ["is_plain"], ["divisor"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["mean", "divisor"], ["embedding"]),
    ]
    return tiny_graph(batch_size, extra)


def grows_on(batch_size: int, colour: tuple[int, int, int]) -> onnx.ModelProto:
    """A batch with a picture of this colour has an embedding of six values, where the graph declares three."""
    values = {"wanted": np.array(colour, np.float32) / 255, "near": np.array(0.001, np.float32), "channels": np.array([1])}
    values |= {"first": np.array([0]), "three": np.array([3]), "all": np.array([0, 1])}
    nodes = [
        *[helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value)) for name, value in values.items()],
        helper.make_node("Sub", ["mean", "wanted"], ["away"]),
        helper.make_node("Abs", ["away"], ["distance"]),
        helper.make_node("ReduceMax", ["distance", "channels"], ["farthest"], keepdims=1),
        helper.make_node("Less", ["farthest", "near"], ["is_wanted"]),
        helper.make_node("Cast", ["is_wanted"], ["counted"], to=TensorProto.INT64),
        helper.make_node("ReduceMax", ["counted", "all"], ["any"], keepdims=0),
        helper.make_node("Mul", ["any", "three"], ["more"]),
        helper.make_node("Add", ["more", "three"], ["end"]),
        helper.make_node("Concat", ["mean", "mean"], ["twice"], axis=1),
        helper.make_node("Slice", ["twice", "first", "end", "channels"], ["embedding"]),
    ]
    graph = tiny_graph(batch_size, nodes)
    (product,) = (node for node in graph.graph.node if node.op_type == "MatMul")
    product.input[0] = "mean"
    return graph


def save(graph: onnx.ModelProto, folder: Path) -> str:
    """Write a graph; returns its path as the runtime takes it."""
    onnx.save(graph, folder / "model.onnx")
    return str(folder / "model.onnx")


def solid_batch(*colours: tuple[int, int, int]) -> np.ndarray:
    """Pictures of one colour each, N x SIZE x SIZE x 3."""
    pixels = np.array(colours, np.uint8)[:, None, None, :]
    return np.ascontiguousarray(np.broadcast_to(pixels, (len(colours), SIZE, SIZE, 3)))
