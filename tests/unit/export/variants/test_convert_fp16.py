"""convert_fp16.py: a graph in fp16, and the graph that computes what it computes where fp16 is more than a way of storing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bulkinfer.errors import RunError
from bulkinfer.export.variants.convert_fp16 import kept_in_fp32, rounded_like_fp16, to_fp16, too_large_for_fp16
from bulkinfer.export.variants.simplify import simplified
from bulkinfer.model.graph_checks import cpu_session
from onnx import TensorProto, helper, numpy_helper

from tests.foreign_graphs import SIDE, deep_graph, save

IMAGES = np.random.default_rng(0).normal(0, 1, (20, 3, SIDE, SIDE)).astype(np.float32)


def model_of(folder: Path, **options: Any) -> onnx.ModelProto:
    return simplified(save(deep_graph(**options), folder), folder)


def computed(model: onnx.ModelProto, images: np.ndarray = IMAGES) -> np.ndarray:
    session = cpu_session(model.SerializeToString())
    return np.asarray(session.run(None, {session.get_inputs()[0].name: images})[0])


def graph_of(nodes: list[onnx.NodeProto], constants: dict[str, Any], shape: tuple[int, ...] = (2,)) -> onnx.ModelProto:
    """x -> nodes -> y, both float32; nodes are named as simplify names them."""
    for number, node in enumerate(nodes):
        node.name = f"node_{number}"
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def test_everything_between_the_ends_is_in_fp16(tmp_path: Path) -> None:
    half = to_fp16(model_of(tmp_path))
    onnx.checker.check_model(half, full_check=True)
    assert {tensor.data_type for tensor in half.graph.initializer} == {TensorProto.FLOAT16}
    ends = [value.type.tensor_type.elem_type for value in (*half.graph.input, *half.graph.output)]
    assert ends == [TensorProto.FLOAT] * 2
    assert [node.op_type for node in half.graph.node].count("Cast") == 2
    assert all(tensor.HasField("raw_data") for tensor in half.graph.initializer)


def test_a_uint8_input_stays(tmp_path: Path) -> None:
    model = graph_of([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], {})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    assert to_fp16(model).graph.input[0].type.tensor_type.elem_type == TensorProto.UINT8


def test_both_graphs_give_nearly_the_same_as_fp32(tmp_path: Path) -> None:
    model = model_of(tmp_path)
    half = to_fp16(model)
    exact, stored, found = computed(model), computed(half), computed(rounded_like_fp16(model, half))
    for values in (stored, found):
        assert 0 < np.abs(values - exact).max() < 4e-3 * np.abs(exact).max()
    assert (found.astype(np.float16) == found).all(), "every value is one of fp16"


def test_every_value_is_rounded_once() -> None:
    """In numpy: the same three operations, each result stored in fp16."""
    nodes = [helper.make_node("Mul", ["x", "a"], ["u"]), helper.make_node("Add", ["u", "b"], ["v"]),
             helper.make_node("Mul", ["v", "u"], ["y"])]  # fmt: skip
    a, b = np.float32([1 / 3]), np.float32([7.77])
    model = graph_of(nodes, {"a": a, "b": b}, shape=(1000,))
    x = np.random.default_rng(3).normal(0, 10, 1000).astype(np.float32)
    u = (x.astype(np.float16).astype(np.float32) * a.astype(np.float16).astype(np.float32)).astype(np.float16)
    v = (u.astype(np.float32) + b.astype(np.float16).astype(np.float32)).astype(np.float16)
    y = (v.astype(np.float32) * u.astype(np.float32)).astype(np.float16)
    assert (computed(rounded_like_fp16(model, to_fp16(model)), x) == y.astype(np.float32)).all()


def test_what_does_not_fit_between_two_nodes_is_infinite_there_and_not_on_the_cpu_provider() -> None:
    """Why there is a second graph to judge by."""
    nodes = [helper.make_node("Mul", ["x", "large"], ["u"]), helper.make_node("Mul", ["u", "small"], ["y"])]
    model = graph_of(nodes, {"large": np.float32([1000]), "small": np.float32([0.001])})
    x = np.float32([1, 100])
    half = to_fp16(model)
    np.testing.assert_allclose(computed(half, x), x, rtol=2e-3)
    found = computed(rounded_like_fp16(model, half), x)
    np.testing.assert_allclose(found[0], 1, rtol=2e-3)
    assert np.isinf(found[1])


def test_constants_beyond_fp16_keep_their_nodes_in_fp32() -> None:
    nodes = [helper.make_node("Mul", ["x", "small"], ["u"]), helper.make_node("Mul", ["u", "large"], ["v"]),
             helper.make_node("Add", ["v", "limit"], ["y"])]  # fmt: skip
    constants = {"small": np.float32([1e-6]), "large": np.float32([-1e6]), "limit": np.float32([65504])}
    model = graph_of(nodes, constants)
    assert too_large_for_fp16(model) == {"node_1": 1e6}
    half = to_fp16(model)
    kept = {tensor.name: tensor.data_type for tensor in half.graph.initializer}
    assert kept == {"small": TensorProto.FLOAT16, "large": TensorProto.FLOAT, "limit": TensorProto.FLOAT16}
    x = np.float32([1, -8])
    for graph in (half, rounded_like_fp16(model, half)):
        np.testing.assert_allclose(computed(graph, x), 65504 - x, rtol=1e-3)


def test_a_constant_that_two_nodes_share_keeps_both() -> None:
    nodes = [helper.make_node("Mul", ["x", "large"], ["u"]), helper.make_node("Div", ["u", "large"], ["y"])]
    model = graph_of(nodes, {"large": np.float32([1e5])})
    assert set(too_large_for_fp16(model)) == {"node_0", "node_1"}
    assert [tensor.data_type for tensor in to_fp16(model).graph.initializer] == [TensorProto.FLOAT]


def test_constants_are_found_in_attributes_and_subgraphs_and_infinities_are_what_they_are() -> None:
    constant = helper.make_node("Constant", [], ["inside"], value=numpy_helper.from_array(np.float32([1e9, 0])))
    inner = helper.make_graph([constant], "inner", [], [helper.make_tensor_value_info("inside", TensorProto.FLOAT, [2])])
    branch = helper.make_node("If", ["true"], ["u"], then_branch=inner, else_branch=inner)
    nodes = [branch, helper.make_node("Add", ["x", "u"], ["v"]), helper.make_node("Min", ["v", "infinite"], ["y"])]
    model = graph_of(nodes, {"true": np.array(True), "infinite": np.float32([np.inf])})
    assert too_large_for_fp16(model) == {"node_0": 1e9}
    assert kept_in_fp32(model) == ["node_0", "node_2"], "Min is one that the converter leaves alone"
    np.testing.assert_array_equal(computed(rounded_like_fp16(model, to_fp16(model)), np.float32([1, 2])), [np.inf, 2])


def test_a_graph_that_the_converter_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_words: Any, **_options: Any) -> None:
        raise ValueError("no such thing\nwith details")

    monkeypatch.setattr("onnxruntime.transformers.float16.convert_float_to_float16", refuse)
    with pytest.raises(RunError, match=r"^onnxruntime cannot convert the graph to fp16: no such thing$"):
        to_fp16(model_of(tmp_path))


def test_the_same_network_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = (to_fp16(model_of(tmp_path)).SerializeToString(deterministic=True) for _ in range(2))
    assert one == two
    assert str(tmp_path).encode() not in one
