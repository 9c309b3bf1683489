"""Foreign graphs as they are: damaged files by their kind, weights beside them, the picture input among others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export.onnx_import.graph import (
    Foreign,
    open_foreign,
    precision,
    run,
    run_each,
    source_feed,
)
from bulkinfer.export.onnx_import.inputs import find_input
from onnx import TensorProto, helper

from tests.foreign_graphs import PLAIN, SCALED, SIDE, foreign_graph, head, recipe_of, save

PIXELS = np.random.default_rng(3).integers(0, 256, (4, SIDE, SIDE, 3), np.uint8)


def opened(model: onnx.ModelProto, folder: Path, recipe: dict[str, Any] = SCALED, kind: str = "uint8") -> Foreign:
    return open_foreign(save(model, folder), recipe_of(recipe), kind)


# -- the picture input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16"])
@pytest.mark.parametrize("batch", ["N", 4])
def test_an_input_is_recognised_and_fed(layout: str, dtype: str, batch: int | str, tmp_path: Path) -> None:
    recipe = PLAIN if dtype == "uint8" else SCALED
    foreign = opened(foreign_graph(batch, layout, dtype), tmp_path, recipe)
    assert (foreign.picture.layout, foreign.picture.dtype) == (layout, dtype)
    assert foreign.picture.batch == (batch if isinstance(batch, int) else 0)
    assert precision(foreign) == ("fp16" if dtype == "float16" else "fp32")
    found = run_each(foreign.session, foreign.feed(PIXELS), foreign.picture.batch, ["y"])["y"]
    values = PIXELS / 255.0
    if dtype != "uint8":
        values = (values - SCALED["mean"]) / SCALED["std"]
    np.testing.assert_allclose(found, values.mean((1, 2)) @ head(), atol=5e-3 if dtype == "float16" else 1e-5)


def test_a_graph_that_rounds_to_8_bits_is_known_by_its_operators(tmp_path: Path) -> None:
    constants = {"scale": np.float32(0.01), "zero": np.uint8(128)}
    nodes = [
        helper.make_node("QuantizeLinear", ["y", "scale", "zero"], ["quantised"]),
        helper.make_node("DequantizeLinear", ["quantised", "scale", "zero"], ["z"]),
    ]
    model = foreign_graph(nodes=nodes, outputs={"z": None}, constants=constants)
    assert precision(opened(model, tmp_path)) == "int8"


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_bgr_pictures_are_fed_in_their_order(layout: str) -> None:
    solid = np.broadcast_to(np.uint8([200, 100, 50]), (1, SIDE, SIDE, 3))
    channel = layout.index("C")
    for dtype in ("uint8", "float32"):
        fed = source_feed(solid, recipe_of({**PLAIN, "channels": "BGR"}), dtype, layout)
        assert fed.dtype == dtype
        assert [int(fed.take(i, axis=channel).max()) for i in range(3)] == [50, 100, 200]


def test_b32_weights_listed_as_inputs_are_taken_off_the_list() -> None:
    model = foreign_graph()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 5]))
    assert find_input(model, "m.onnx").name == "x"
    assert [value.name for value in model.graph.input] == ["x"]


def test_another_input_without_a_value_is_named() -> None:
    model = foreign_graph(nodes=[helper.make_node("Mul", ["y", "gain"], ["z"])], outputs={"z": None})
    model.graph.input.append(helper.make_tensor_value_info("gain", TensorProto.FLOAT, [1]))
    with pytest.raises(UsageError, match=r"needs 2 inputs \(x float32 \[N, 3, 8, 8\], gain float32 \[1\]\); all but the pict"):
        find_input(model, "m.onnx")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32([2]), "gain"))
    assert find_input(model, "m.onnx").name == "x"


@pytest.mark.parametrize(("dtype", "shape", "told"), [
    (TensorProto.DOUBLE, [1, 3, 8, 8], r"takes float64 \[1, 3, 8, 8\] as x; uint8, float32, float16 can be fed"),
    (TensorProto.INT64, [1, 3, 8, 8], r"takes int64 \[1, 3, 8, 8\]"),
    (TensorProto.FLOAT, [1, 1, 8, 8], "no pictures of 3 channels"),
    (TensorProto.FLOAT, [1, 4, 8, 8], "no pictures of 3 channels"),
    (TensorProto.FLOAT, [1, 3, 2, 8, 8], "no pictures of 3 channels"),
    (TensorProto.FLOAT, ["N", 192], "no pictures of 3 channels"),
])  # fmt: skip
def test_inputs_that_are_no_pictures(dtype: int, shape: list[Any], told: str) -> None:
    model = foreign_graph()
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", dtype, shape))
    with pytest.raises(UsageError, match=told):
        find_input(model, "m.onnx")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_layout_that_the_shape_leaves_open_is_the_one_that_runs(layout: str, tmp_path: Path) -> None:
    model = foreign_graph(layout=layout)
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "a", "b", "c"]))
    assert opened(model, tmp_path).picture.layout == layout
    model.graph.node[-1].CopyFrom(helper.make_node("Flatten", ["x"], ["y"]))
    with pytest.raises(UsageError, match="does not say where its 3 channels are: give its channel dimension the size 3"):
        opened(model, tmp_path)


@pytest.mark.parametrize(("changes", "recipe", "kind", "told"), [
    ({}, {**SCALED, "height": 16, "width": 16}, "uint8", r"--recipe makes pictures of 16 x 16 .* takes \['N', 3, 8, 8\]"),
    ({"dtype": "uint8"}, SCALED, "uint8", "--recipe scales the values, but m.onnx takes uint8 pictures as they are"),
    ({"dtype": "uint8"}, PLAIN, "float32", "--input float32: m.onnx takes uint8"),
    ({"opset": 6}, SCALED, "uint8", "has opset 6; the oldest that is supported is 7"),
])  # fmt: skip
def test_what_the_recipe_cannot_feed(changes: Any, recipe: Any, kind: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        opened(foreign_graph(**changes), tmp_path, recipe, kind)


def test_a_run_that_fails_is_told_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    foreign = opened(foreign_graph(4), tmp_path)
    with pytest.raises(RunError, match="the graph does not run on a batch of 3: ") as caught:
        run(foreign.session, foreign.feed(PIXELS[:3]), ["y"])
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""
