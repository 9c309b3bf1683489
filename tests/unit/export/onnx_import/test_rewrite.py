"""Rewriting foreign graphs: every kind of input behind ours, outputs under other names, weights where they can be moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from bulkinfer.export.onnx_import.graph import open_model, run, source_feed
from bulkinfer.export.onnx_import.inputs import find_input
from bulkinfer.export.onnx_import.rewrite import (
    GraphOutput,
    feed_pictures,
    first_dimensions,
    keep_outputs,
    num_parameters,
    set_batch,
    sort_nodes,
    value_names,
    weights_to_initializers,
)
from onnx import TensorProto, helper, numpy_helper

from tests.foreign_graphs import PLAIN, SCALED, SIDE, foreign_graph, recipe_of

PIXELS = np.random.default_rng(3).integers(0, 256, (4, SIDE, SIDE, 3), np.uint8)


def dims_of(value: onnx.ValueInfoProto) -> list[Any]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def rewritten(model: onnx.ModelProto, recipe: dict[str, Any], kind: str, outputs: list[GraphOutput], batch: int = 0) -> Any:
    """A session on the graph as it would be published."""
    picture = find_input(model, "m")
    set_batch(model, picture, recipe_of(recipe), batch)
    keep_outputs(model, outputs)
    feed_pictures(model, picture, recipe_of(recipe), kind)
    onnx.checker.check_model(model, full_check=True)
    return open_model(model, "m")


@pytest.mark.parametrize("name", ["x", "images"])
@pytest.mark.parametrize("kind", ["uint8", "float32"])
@pytest.mark.parametrize("channels", ["RGB", "BGR"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16"])
def test_pictures_give_what_the_graph_gives_when_it_is_fed_plainly(
    dtype: str, layout: str, channels: str, kind: str, name: str
) -> None:
    if (dtype, kind) == ("uint8", "float32"):
        return  # refused before
    recipe = {**(PLAIN if dtype == "uint8" else SCALED), "channels": channels}
    model = foreign_graph(4, layout, dtype, input=name)
    feed = source_feed(PIXELS, recipe_of(recipe), dtype, layout)
    (expected,) = run(open_model(model, "m"), feed, ["y"])
    session = rewritten(model, recipe, kind, [GraphOutput("y", "y", (5,), (5,), str(expected.dtype))])
    (value,) = session.get_inputs()
    assert value.shape == (["batch", SIDE, SIDE, 3] if kind == "uint8" else ["batch", 3, SIDE, SIDE])
    assert value.type == ("tensor(uint8)" if kind == "uint8" else "tensor(float)")
    ours = PIXELS if kind == "uint8" else source_feed(PIXELS, recipe_of(recipe), "float32", "NCHW")
    (found,) = run(session, ours, ["y"])
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, atol=5e-3 if dtype == "float16" else 2e-6)


def test_a_graph_that_takes_our_input_is_left_alone() -> None:
    for kind, model, recipe in (("uint8", foreign_graph("N", "NHWC", "uint8"), PLAIN), ("float32", foreign_graph(), SCALED)):
        nodes = len(model.graph.node)
        picture = find_input(model, "m")
        set_batch(model, picture, recipe_of(recipe), 0)
        feed_pictures(model, picture, recipe_of(recipe), kind)
        assert (model.graph.input[0].name, len(model.graph.node)) == ("x", nodes)


def test_a_value_called_images_keeps_its_name() -> None:
    model = foreign_graph(nodes=[helper.make_node("Neg", ["y"], ["images"])], outputs={"images": None})
    session = rewritten(model, SCALED, "uint8", [GraphOutput("images", "z", (5,), (5,), "float32")])
    assert session.get_inputs()[0].name == "bulkinfer_images"
    assert run(session, PIXELS, ["z"])[0].shape == (4, 5)


def test_outputs_are_cast_flattened_and_renamed() -> None:
    nodes = [
        helper.make_node("ArgMax", ["y"], ["best"], axis=1, keepdims=0),
        helper.make_node("Cast", ["y"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Greater", ["y", "zero"], ["positive"]),
        helper.make_node("Neg", ["y"], ["scores"]),
        helper.make_node("Mul", ["wide", "wide"], ["inner"]),
    ]
    kinds = {"best": TensorProto.INT64, "wide": TensorProto.DOUBLE, "positive": TensorProto.BOOL, "scores": None, "y": None}
    model = foreign_graph(nodes=nodes, outputs=kinds, constants={"zero": np.float32(0)})
    (y,) = run(open_model(model, "m"), source_feed(PIXELS, recipe_of(), "float32", "NCHW"), ["y"])
    session = rewritten(model, SCALED, "uint8", [
        GraphOutput("best", "best", (), (1,), "int64"), GraphOutput("wide", "wide", (5,), (5,), "float64"),
        GraphOutput("positive", "positive", (5,), (5,), "bool"), GraphOutput("scores", "output_scores", (5,), (5,), "float32"),
    ])  # fmt: skip
    assert [(output.name, output.shape) for output in session.get_outputs()] == [
        ("best", ["batch", 1]), ("wide", ["batch", 5]), ("positive", ["batch", 5]), ("output_scores", ["batch", 5]),
    ]  # fmt: skip
    found = run(session, PIXELS, ["best", "wide", "positive", "output_scores"])
    for values, expected in zip(found, (y.argmax(1)[:, None], y, y > 0, -y), strict=True):
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, expected, atol=2e-6)


def test_a_new_name_that_another_value_has() -> None:
    nodes = [
        helper.make_node("Neg", ["y"], ["a/b"]),
        helper.make_node("Abs", ["y"], ["a_b"]),
        helper.make_node("Relu", ["a_b"], ["output_key"]),
        helper.make_node("Neg", ["output_key"], ["key"]),
    ]
    model = foreign_graph(nodes=nodes, outputs=dict.fromkeys(["y", "a/b", "a_b", "output_key", "key"]))
    session = rewritten(model, SCALED, "uint8", [GraphOutput(old, new, (5,), (5,), "float32") for old, new in (
        ("y", "y"), ("a/b", "a_b"), ("a_b", "output_a_b"), ("output_key", "output_output_key"), ("key", "output_key"),
    )])  # fmt: skip
    y, *others = run(session, PIXELS, ["y", "a_b", "output_a_b", "output_output_key", "output_key"])
    for values, expected in zip(others, (-y, np.abs(y), np.abs(y), -np.abs(y)), strict=True):
        assert np.array_equal(values, expected)


@pytest.mark.parametrize("places", [np.array([1, 7]), np.array([[0, 1], [1, 2]])])
def test_sparse_weights_become_dense(places: np.ndarray) -> None:
    model = foreign_graph(num_classes=5)
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([2, 3]), "s"), numpy_helper.from_array(places, "at"), [3, 5]
    )
    model.graph.sparse_initializer.append(sparse)
    weights_to_initializers(model)
    expected = np.zeros((3, 5), np.float32)
    expected[0, 1], expected[1, 2] = 2, 3
    assert not model.graph.sparse_initializer
    assert np.array_equal(numpy_helper.to_array(model.graph.initializer[-1]), expected)


def test_names_are_changed_inside_subgraphs_too() -> None:
    branch = helper.make_graph(
        [helper.make_node("Neg", ["y"], ["negated"])], "then", [],
        [helper.make_tensor_value_info("negated", TensorProto.FLOAT, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Identity", ["y"], ["same"])], "else", [],
        [helper.make_tensor_value_info("same", TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [helper.make_node("If", ["yes"], ["z"], then_branch=branch, else_branch=other)]
    model = foreign_graph("N", "NCHW", nodes=nodes, outputs={"y": None, "z": None}, constants={"yes": np.array(True)})
    assert {"negated", "same", "yes", "x"} <= value_names(model)
    reshaped = GraphOutput("y", "y", (5,), (5, 1), "float32")
    session = rewritten(model, SCALED, "uint8", [reshaped, GraphOutput("z", "z", (5,), (5,), "float32")])
    y, z = run(session, PIXELS, ["y", "z"])
    assert y.shape == (4, 5, 1)
    assert np.array_equal(y[..., 0], -z)


def test_b26_an_output_whose_batch_does_not_follow_is_seen() -> None:
    nodes = [helper.make_node("Reshape", ["mean", "shape"], ["z"])]
    model = foreign_graph(6, nodes=nodes, outputs={"y": None, "z": None}, constants={"shape": np.array([6, -1])})
    set_batch(model, find_input(model, "m"), recipe_of(), 0)
    assert first_dimensions(model)["z"] == 6
    assert dims_of(model.graph.input[0]) == ["batch", 3, SIDE, SIDE]


def test_nodes_in_any_order_are_sorted_and_sorted_ones_stay() -> None:
    nodes = [
        helper.make_node("Neg", ["y"], ["a"]),
        helper.make_node("Abs", ["mean"], ["b"]),
        helper.make_node("Neg", ["a"], ["z"]),
    ]
    model = foreign_graph(nodes=nodes, outputs={"z": None, "b": None})
    before = [node.output[0] for node in model.graph.node]
    sort_nodes(model)
    assert [node.output[0] for node in model.graph.node] == before
    turned = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(turned)
    sort_nodes(model)
    after = [node.output[0] for node in model.graph.node]
    assert sorted(after) == sorted(before)
    assert after.index("mean") < after.index("y") < after.index("a") < after.index("z")
    assert after.index("mean") < after.index("b")


def test_weights_become_raw_initializers() -> None:
    weight = np.random.default_rng(1).normal(size=(5, 300)).astype(np.float32)
    tensor = helper.make_tensor("", TensorProto.FLOAT, [5, 300], weight.ravel())  # as numbers, not as raw bytes
    constant = helper.make_node("Constant", [], ["w2"], value=tensor)
    small = helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(np.float32(1)))
    used = [helper.make_node("MatMul", ["y", "w2"], ["long"]), helper.make_node("Add", ["long", "one"], ["z"])]
    model = foreign_graph(nodes=[constant, small, *used], outputs={"z": None})
    feed = np.ones((2, 3, SIDE, SIDE), np.float32)
    (before,) = run(open_model(model, "m"), feed, ["z"])
    weights_to_initializers(model)
    assert [node.op_type for node in model.graph.node].count("Constant") == 1
    (moved,) = [tensor for tensor in model.graph.initializer if tensor.name == "w2"]
    assert np.array_equal(np.frombuffer(moved.raw_data, np.float32).reshape(5, 300), weight)
    assert np.array_equal(run(open_model(model, "m"), feed, ["z"])[0], before)
    assert num_parameters(model) == 15 + 1500
