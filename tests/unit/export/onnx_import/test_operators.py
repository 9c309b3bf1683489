"""operators.py: what is random and what depends on content is known from the graph, wherever it hides."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from bulkinfer import zoo
from bulkinfer.export.onnx_import.operators import random_operator, sized_by_content
from onnx import TensorProto, helper, numpy_helper

from tests.adoption import Home
from tests.foreign_graphs import SIDE, foreign_graph

SCALARS = {"ratio": np.float32(0.01), "live": np.array(True), "dead": np.array(False), "nil": np.float32(0)}


def with_nodes(*nodes: Any, **constants: Any) -> onnx.ModelProto:
    """The last node makes `z`, the only output."""
    model = foreign_graph(nodes=[*nodes], outputs={"z": None}, constants=constants)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in SCALARS.items())
    return model


def branch(name: str, operator: str, **attributes: Any) -> onnx.GraphProto:
    """A branch of an If: its one node takes y."""
    value = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(operator, ["y"], [name], **attributes)], name, [], [value])


def in_a_subgraph(operator: str, **attributes: Any) -> onnx.ModelProto:
    return with_nodes(
        helper.make_node("If", ["dead"], ["z"], then_branch=branch("a", operator, **attributes), else_branch=branch("b", "Neg"))
    )


def in_a_function(operator: str, inputs: tuple[str, ...] = ("a",), depth: int = 2) -> onnx.ModelProto:
    """Functions that call each other, the innermost with this operator; the mode of a Dropout comes from outside."""
    model = with_nodes(helper.make_node(f"f{depth}", ["y", "ratio", "live"], ["z"], domain="mine"))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    for level in range(depth + 1):
        node = helper.make_node(operator, inputs, ["r"])
        if level:
            node = helper.make_node(f"f{level - 1}", ["a", "p", "mode"], ["r"], domain="mine")
        model.functions.append(helper.make_function("mine", f"f{level}", ["a", "p", "mode"], ["r"], [node], imports))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    return model


RANDOM = {
    "Dropout": with_nodes(helper.make_node("Dropout", ["y", "ratio", "live"], ["z"])),
    "Dropout of a mode that is computed": with_nodes(
        helper.make_node("Not", ["dead"], ["mode"]), helper.make_node("Dropout", ["y", "ratio", "mode"], ["z"])
    ),
    "Dropout of the usual ratio": with_nodes(helper.make_node("Dropout", ["y", "", "live"], ["z"])),
    "RandomNormalLike": with_nodes(
        helper.make_node("RandomNormalLike", ["y"], ["n"], scale=1e-3), helper.make_node("Add", ["y", "n"], ["z"])
    ),
    "RandomNormal": with_nodes(
        helper.make_node("RandomNormal", [], ["n"], shape=[5], scale=1e-9), helper.make_node("Add", ["y", "n"], ["z"])
    ),
    "RandomUniform": with_nodes(
        helper.make_node("RandomUniform", [], ["n"], shape=[5], high=1e-3, seed=1.0), helper.make_node("Add", ["y", "n"], ["z"])
    ),
    "RandomUniformLike": in_a_subgraph("RandomUniformLike"),
    "Bernoulli": with_nodes(helper.make_node("Sigmoid", ["y"], ["p"]), helper.make_node("Bernoulli", ["p"], ["z"])),
    "Multinomial": with_nodes(
        helper.make_node("Multinomial", ["y"], ["m"], sample_size=5), helper.make_node("Cast", ["m"], ["z"], to=1)
    ),
    "RandomNormalLike in functions": in_a_function("RandomNormalLike"),
    "Dropout in functions": in_a_function("Dropout", ("a", "p", "mode")),
}


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("name", [*RANDOM])
def test_c28_random_graphs_are_refused_by_their_operator(home: Home, name: str, batch_size: int) -> None:
    told = home.refusal(RANDOM[name], batch_size=batch_size, scores="logits")
    assert told == (
        f"--onnx: m.onnx draws random numbers in every run (operator {name.split()[0]}): export the network for inference "
        "(in torch: after model.eval())"
    )


NOT_RANDOM = {
    "a Dropout without a mode": with_nodes(helper.make_node("Dropout", ["y", "ratio"], ["z"])),
    "a Dropout that is off": with_nodes(helper.make_node("Dropout", ["y", "ratio", "dead"], ["z"])),
    "a Dropout of ratio 0": with_nodes(helper.make_node("Dropout", ["y", "nil", "live"], ["z"])),
    "a mode from a Constant": with_nodes(
        helper.make_node("Constant", [], ["off"], value=numpy_helper.from_array(np.array(False))),
        helper.make_node("Identity", ["off"], ["mode"]),
        helper.make_node("Dropout", ["y", "ratio", "mode"], ["z"]),
    ),
    "what no output needs": with_nodes(
        helper.make_node("RandomNormalLike", ["y"], ["n"]), helper.make_node("Neg", ["y"], ["z"])
    ),
}


@pytest.mark.parametrize("name", [*NOT_RANDOM])
def test_c28_what_is_not_random_is_taken(home: Home, name: str) -> None:
    assert list(home.adopt(NOT_RANDOM[name], scores="logits").card.outputs) == ["z"]


def test_c28_functions_that_call_a_function_twice_are_searched_once() -> None:
    """Sixty levels of two calls each would be a search without end."""
    model = in_a_function("Neg", depth=60)
    for function in model.functions:
        if function.node[0].domain == "mine":
            again = helper.make_node(function.node[0].op_type, ["r", "p", "mode"], ["s"], domain="mine")
            function.node.append(again)
    assert random_operator(model) == ""


@pytest.mark.parametrize("seed", range(3))
def test_c28_a_network_that_torch_exported_in_training(home: Home, seed: int) -> None:
    """So small a ratio seldom shows in a few runs."""
    torch.manual_seed(seed)
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Dropout(0.01)
    network = torch.nn.Sequential(*layers, torch.nn.Linear(8, 5)).train()
    with zoo.quiet():
        torch.onnx.export(
            network, (torch.zeros(1, 3, SIDE, SIDE),), str(home.folder / "m.onnx"), dynamo=False,
            training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
        )  # fmt: skip
    told = home.refusal(onnx.load(home.folder / "m.onnx"), scores="logits", batch_size=1)
    assert "draws random numbers in every run (operator Dropout)" in told


def test_c01_what_an_operator_sizes_by_content() -> None:
    nodes = [
        helper.make_node("Greater", ["y", "nil"], ["mask"]),
        helper.make_node("NonZero", ["mask"], ["places"]),
        helper.make_node("Cast", ["places"], ["z"], to=TensorProto.FLOAT),
        helper.make_node("Shape", ["y"], ["shape"]),
        helper.make_node("NonZero", ["shape"], ["sizes"]),  # of the shape alone, which does not depend on the picture
        helper.make_node("Cast", ["sizes"], ["of_shape"], to=TensorProto.FLOAT),
    ]
    model = foreign_graph(nodes=nodes, outputs={"y": None, "z": None, "of_shape": None}, constants={"nil": np.float32(0)})
    assert sized_by_content(model) == {"z": "NonZero"}
    assert sized_by_content(in_a_subgraph("NonZero")) == {"z": "NonZero"}
    assert sized_by_content(in_a_function("NonZero")) == {"z": "NonZero"}
