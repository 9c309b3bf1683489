"""cut.py: of a graph of several inputs, the outputs that need the pictures alone can be adopted."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.adoption import Home
from tests.foreign_graphs import foreign_graph


def clip(*outputs: str) -> onnx.ModelProto:
    """Pictures, token ids and a mask -> embeddings of both, and their products."""
    nodes = [
        helper.make_node("Identity", ["y"], ["image_embeds"]),
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        helper.make_node("Mul", ["tokens", "attention_mask"], ["masked"]),
        helper.make_node("ReduceMean", ["masked"], ["text_embeds"], axes=[1], keepdims=0),
        helper.make_node("Transpose", ["text_embeds"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["image_embeds", "turned"], ["logits_per_image"]),
    ]
    kept: dict[str, Any] = dict.fromkeys(outputs or ("logits_per_image", "text_embeds", "image_embeds"))
    model = foreign_graph(nodes=nodes, outputs=kept, constants={"table": np.ones((1000, 5), np.float32)}, input="pixel_values")
    model.graph.input.insert(0, helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["T", "L"]))
    model.graph.input.append(helper.make_tensor_value_info("attention_mask", TensorProto.FLOAT, ["T", "L", 1]))
    return model


@pytest.mark.parametrize("flags", [{"scores": "logits", "output_name": "image_embeds"}, {"scores": "none"}])
def test_c41_the_graph_is_cut_to_what_the_output_needs(home: Home, flags: dict[str, Any]) -> None:
    made = home.adopt(clip(), **flags)
    assert made.card.outputs == {"image_embeds": "logits" if "output_name" in flags else "values"}
    assert made.card.num_parameters == 15, "the table of the words is gone"
    kept = onnx.load(made.graph).graph
    assert [value.name for value in kept.input] == ["images"]
    assert "Gather" not in {node.op_type for node in kept.node}
    assert "output text_embeds is left out: it needs the inputs attention_mask, input_ids" in home.said
    assert any(
        line.startswith("output logits_per_image is left out: it needs the inputs attention_mask,") for line in home.said
    )


def test_c41_an_output_that_needs_more_is_named_with_those_that_do_not(home: Home) -> None:
    told = home.refusal(clip(), scores="logits", output_name="logits_per_image")
    assert told == (
        "--output_name: logits_per_image needs 3 inputs (attention_mask float32 [T, L, 1], input_ids int64 [T, L], "
        "pixel_values float32 [N, 3, 8, 8]), and only pictures can be fed; with pictures alone there are image_embeds"
    )
    assert "there is no output 'nothing'; there are image_embeds" in home.refusal(
        clip(), scores="logits", output_name="nothing"
    )
    told = home.refusal(clip(), scores="logits", output_name="text_embeds")
    assert "--output_name: text_embeds needs 2 inputs (attention_mask float32 [T, L, 1], input_ids int64 [T, L])" in told


def test_c41_a_graph_of_which_nothing_can_be_used_says_which_inputs_it_needs(home: Home) -> None:
    told = home.refusal(clip("logits_per_image"), scores="logits")
    assert "m.onnx needs 3 inputs (input_ids int64 [T, L], pixel_values float32 [N, 3, 8, 8], attention_mask" in told


def test_c41_an_input_that_nothing_needs_is_no_obstacle(home: Home) -> None:
    model = foreign_graph()
    model.graph.input.append(helper.make_tensor_value_info("unused", TensorProto.FLOAT, [1]))
    assert list(home.adopt(model, scores="logits").card.outputs) == ["y"]
