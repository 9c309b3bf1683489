"""batch.py: each output of a graph is judged for itself, at a free batch and at a fixed one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.adoption import Home
from tests.foreign_graphs import foreign_graph

BOXES = np.float32([[[0, 0, 1, 1], [2, 2, 3, 3]]])


def detector(batch: int | str, *, threshold: float, nodes: Any = (), outputs: Any = ("det",)) -> onnx.ModelProto:
    """Two scores -> NonMaxSuppression over two boxes -> `det`, one row of 7 numbers for each that is found in the batch."""
    body = [
        helper.make_node("Sigmoid", ["y"], ["p"]),
        helper.make_node("Unsqueeze", ["p", "one"], ["found"]),
        helper.make_node("Shape", ["y"], ["size"]),
        helper.make_node("Slice", ["size", "zero", "one"], ["pictures"]),
        helper.make_node("Concat", ["pictures", "rest"], ["sizes"], axis=0),
        helper.make_node("Expand", ["boxes", "sizes"], ["all"]),
        helper.make_node("NonMaxSuppression", ["all", "found", "most", "iou", "threshold"], ["chosen"]),
        helper.make_node("Cast", ["chosen"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Gather", ["chosen", "pick"], ["places"], axis=1),
        helper.make_node("GatherND", ["all", "places"], ["corners"]),
        helper.make_node("Concat", ["numbers", "corners"], ["det"], axis=1),
        helper.make_node("Unsqueeze", ["det", "zero"], ["dets"]),
    ]
    constants = {
        "one": np.array([1]), "zero": np.array([0]), "rest": np.array([2, 4]), "boxes": BOXES, "most": np.array([10]),
        "iou": np.float32([0.5]), "threshold": np.float32([threshold]), "pick": np.array([0, 2]),
    }  # fmt: skip
    kept: dict[str, Any] = dict.fromkeys(outputs)
    return foreign_graph(batch, num_classes=2, nodes=[*body, *nodes], outputs=kept, constants=constants)


@pytest.mark.parametrize("threshold", [0.45, 0.05])
@pytest.mark.parametrize("graph_batch", ["N", 4])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_c01_detections_alone_are_refused_in_one_sentence(
    home: Home, threshold: float, graph_batch: Any, batch_size: int
) -> None:
    """At the lower threshold each picture has as many detections as any other."""
    told = home.refusal(detector(graph_batch, threshold=threshold), batch_size=batch_size, scores="none")
    assert told.startswith("--onnx: m.onnx has no output with one row per picture (det: it")
    assert not (home.folder / "models").exists()


@pytest.mark.parametrize("graph_batch", ["N", 1, 4])
@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("threshold", [0.45, 0.05])
def test_c01_detections_beside_a_fixed_output_are_left_out(
    home: Home, threshold: float, graph_batch: Any, batch_size: int
) -> None:
    model = detector(graph_batch, threshold=threshold, outputs=("dets", "y"))
    made = home.adopt(model, batch_size=batch_size, scores="logits", output_name="y")
    assert list(made.card.outputs) == ["y"]
    assert made.card.fixed_batch == 0
    assert any(line.startswith("output dets is left out: it") for line in home.said)
    assert "NonMaxSuppression" not in {node.op_type for node in onnx.load(made.graph).graph.node}


def test_c01_as_many_detections_as_pictures_by_coincidence_are_left_out(home: Home) -> None:
    """One detection in every picture that is tried: where one has two and the next has none, rows would go to neighbours."""
    model = detector("N", threshold=0.05, outputs=("det", "y"))
    for tensor in model.graph.initializer:
        if tensor.name == "boxes":  # both boxes are one: the better of them is kept
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.repeat(BOXES[:, :1], 2, axis=1), "boxes"))
        if tensor.name == "iou":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.float32([0.1]), "iou"))
    node = next(node for node in model.graph.node if node.op_type == "NonMaxSuppression")
    node.input[2] = "one"
    made = home.adopt(model, scores="logits", output_name="y")
    assert list(made.card.outputs) == ["y"]
    assert "output det is left out: its size depends on the picture (NonMaxSuppression)" in home.said


def test_c01_an_output_that_is_padded_to_one_size_is_kept(home: Home) -> None:
    """Its rows are those of the batch whatever is found, which the graph shows."""
    nodes = [
        helper.make_node("Compress", ["flat", "are_bright"], ["bright"], axis=0),
        helper.make_node("ReduceSum", ["bright"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["flat", "half"], ["are_bright"]),
        helper.make_node("Reshape", ["y", "minus"], ["flat"]),
        helper.make_node("Mul", ["sum", "nothing"], ["none"]),
        helper.make_node("Add", ["y", "none"], ["z"]),
    ]
    constants = {"minus": np.array([-1]), "half": np.float32(0.5), "nothing": np.float32(0)}
    made = home.adopt(foreign_graph(nodes=nodes, outputs={"z": None}, constants=constants), scores="logits")
    assert list(made.card.outputs) == ["z"]


@pytest.mark.parametrize("output_name", ["", "m"])
def test_c35_outputs_of_a_fixed_batch_are_judged_one_by_one(home: Home, output_name: str) -> None:
    """`m` has a row per picture, `kk` is the same for all, and each row of the square `t` has something of all pictures."""
    nodes = [
        helper.make_node("Reshape", ["mean", "four"], ["m"]),
        helper.make_node("Add", ["constant", "nil"], ["kk"]),
        helper.make_node("Slice", ["y", "zero", "size", "one"], ["square"]),
        helper.make_node("Transpose", ["square"], ["t"], perm=[1, 0]),
    ]
    constants = {
        "four": np.array([4, 3]), "constant": np.zeros((4, 7), np.float32), "nil": np.float32(1), "zero": np.array([0]),
        "size": np.array([4]), "one": np.array([1]),
    }  # fmt: skip
    model = foreign_graph(4, nodes=nodes, outputs={"m": None, "kk": None, "t": None}, constants=constants)
    flags: Any = {"scores": "logits", "output_name": output_name} if output_name else {"scores": "none"}
    told = home.refusal(model, **flags)
    assert told.endswith("; it can only be adopted with --batch_size 4")
    made = home.adopt(model, batch_size=4, **flags)
    assert (list(made.card.outputs), made.card.fixed_batch) == (["m", "kk"], 4)
    assert "output t is left out: other rows of the batch change the t of a picture" in home.said


def test_c35_an_output_that_no_batch_can_give_is_refused_at_once(home: Home) -> None:
    """The advice to take another batch would lead nowhere."""
    nodes = [
        helper.make_node("Slice", ["y", "zero", "size", "one"], ["square"]),
        helper.make_node("Transpose", ["square"], ["t"], perm=[1, 0]),
        helper.make_node("Reshape", ["mean", "four"], ["m"]),
    ]
    constants = {"four": np.array([4, 3]), "zero": np.array([0]), "size": np.array([4]), "one": np.array([1])}
    model = foreign_graph(4, nodes=nodes, outputs={"m": None, "t": None}, constants=constants)
    for batch_size in (4, 6):
        told = home.refusal(model, scores="logits", output_name="t", batch_size=batch_size)
        assert told == "--output_name: t cannot be used: other rows of the batch change the t of a picture"


def test_c35_a_free_batch_is_kept_where_a_fixed_one_gives_nothing_more(home: Home) -> None:
    nodes = [
        helper.make_node("Slice", ["y", "zero", "size", "one"], ["square"]),
        helper.make_node("Transpose", ["square"], ["t"], perm=[1, 0]),
    ]
    constants = {"zero": np.array([0]), "size": np.array([4]), "one": np.array([1])}
    model = foreign_graph(4, nodes=nodes, outputs={"y": None, "t": None}, constants=constants)
    made = home.adopt(model, scores="logits", output_name="y", batch_size=3)
    assert (list(made.card.outputs), made.card.fixed_batch) == (["y"], 0)
