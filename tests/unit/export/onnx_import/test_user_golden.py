"""The user's own inputs and outputs: which files, which forms, and what a difference says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export.onnx_import.graph import Foreign, open_foreign
from bulkinfer.export.onnx_import.outputs import observe, plan_outputs
from bulkinfer.export.onnx_import.user_golden import UserGolden, check_user_golden, read_user_golden
from onnx import helper

from tests.foreign_graphs import SCALED, SIDE, foreign_graph, head, recipe_of, save

PIXELS = np.random.default_rng(3).integers(0, 256, (3, SIDE, SIDE, 3), np.uint8)
SCALED_PIXELS = ((PIXELS / 255 - SCALED["mean"]) / SCALED["std"]).transpose(0, 3, 1, 2).astype(np.float32)
EXPECTED = SCALED_PIXELS.mean((2, 3)) @ head()


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return open_foreign(save(foreign_graph(), tmp_path_factory.mktemp("graph")), recipe_of(), "uint8")


def check(foreign: Foreign, **arrays: Any) -> str:
    outputs = plan_outputs(observe([(1, {"y": EXPECTED[:1]}), (3, {"y": EXPECTED})]), "y")
    return check_user_golden(foreign, UserGolden("mine.npz", arrays), outputs, "y")


def test_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=PIXELS, y=EXPECTED)
    np.save(tmp_path / "b_input.npy", PIXELS)
    np.save(tmp_path / "b_output.npy", EXPECTED)
    (tmp_path / "notes.txt").write_text("nothing")
    first, second = read_user_golden(tmp_path)
    assert (first.name, set(first.arrays)) == ("a.npz", {"x", "y"})
    assert (second.name, set(second.arrays)) == ("b_input.npy", {"input", "output"})
    assert np.array_equal(second.arrays["output"], EXPECTED)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="absent is no folder"):
        read_user_golden(tmp_path / "absent")
    with pytest.raises(UsageError, match=r"holds neither \*\.npz nor pairs of \*_input\.npy and \*_output\.npy"):
        read_user_golden(tmp_path)
    (tmp_path / "a_input.npy").write_bytes(b"none")
    with pytest.raises(UsageError, match=r"a_input\.npy has no a_output\.npy beside it"):
        read_user_golden(tmp_path)
    (tmp_path / "a_output.npy").write_bytes(b"none")
    with pytest.raises(UsageError, match=r"a_input\.npy is no file of arrays that can be read"):
        read_user_golden(tmp_path)


def test_a_pipe_among_the_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(UsageError, match=r"a\.npz is a pipe or a device"):
        read_user_golden(tmp_path)


def test_pictures_and_the_graphs_own_input(foreign: Foreign) -> None:
    for arrays in ({"input": PIXELS, "output": EXPECTED}, {"images": PIXELS, "y": EXPECTED},
                   {"x": SCALED_PIXELS, "y": EXPECTED}, {"x": SCALED_PIXELS, "y": EXPECTED.astype(np.float64)}):  # fmt: skip
        assert check(foreign, **arrays).startswith("agrees: ")


def test_a_wrong_recipe_shows_in_8_bits_too(tmp_path: Path) -> None:
    """Golden outputs made with the channels turned, or another mean and std: the graph's own rounding hides neither."""
    constants = {"scale": np.float32(0.02), "zero": np.uint8(128)}
    nodes = [
        helper.make_node("QuantizeLinear", ["y", "scale", "zero"], ["quantised"]),
        helper.make_node("DequantizeLinear", ["quantised", "scale", "zero"], ["z"]),
    ]
    graph = foreign_graph(nodes=nodes, outputs={"z": None}, constants=constants)
    foreign = open_foreign(save(graph, tmp_path), recipe_of(), "uint8")
    outputs = plan_outputs(observe([(1, {"z": EXPECTED[:1]}), (3, {"z": EXPECTED})]), "z")
    exact = np.clip(np.round(EXPECTED / 0.02), -128, 127) * 0.02
    told = check_user_golden(foreign, UserGolden("mine.npz", {"input": PIXELS, "z": exact}), outputs, "z")
    assert told.startswith("agrees: z within ")
    assert "(allowed " in told
    turned = ((PIXELS[..., ::-1] / 255 - SCALED["mean"]) / SCALED["std"]).mean((1, 2)) @ head()
    halves = ((PIXELS / 255 - 0.5) / 0.5).mean((1, 2)) @ head()
    for wrong in (turned, halves):
        with pytest.raises(RunError, match="z differs by"):
            check_user_golden(foreign, UserGolden("mine.npz", {"input": PIXELS, "z": wrong}), outputs, "z")


def test_a_difference_is_refused(foreign: Foreign) -> None:
    with pytest.raises(
        RunError, match=r"--golden mine\.npz: y differs by 0\.1 from the output of the graph .* another recipe or graph"
    ):
        check(foreign, input=PIXELS, y=EXPECTED + 0.1)
    with pytest.raises(RunError, match="y differs by nan"):
        check(foreign, input=PIXELS, y=EXPECTED * np.nan)
    with pytest.raises(RunError, match="y differs"):
        check(foreign, input=PIXELS[..., ::-1], y=EXPECTED)


@pytest.mark.parametrize(("arrays", "told"), [
    ({"y": EXPECTED}, "it has no input: an array called x, input or images"),
    ({"x": PIXELS}, "it has no outputs; the graph has y"),
    ({"x": PIXELS, "z": EXPECTED}, "it has unknown outputs z; the graph has y"),
    ({"x": PIXELS[:, :4], "y": EXPECTED}, r"its input is uint8 \[3, 4, 8, 3\]; prepared pictures \(uint8, N x 8 x 8 x 3"),
    ({"x": SCALED_PIXELS.astype(np.float64), "y": EXPECTED}, r"its input is float64 \[3, 3, 8, 8\]"),
    ({"x": PIXELS[:0], "y": EXPECTED[:0]}, "its input holds no pictures"),
    ({"x": PIXELS, "y": np.full((3, 5), "a")}, "y is <U1: real numbers are needed"),
    ({"x": PIXELS, "y": EXPECTED.astype(complex)}, "y is complex128: real numbers are needed"),
    ({"x": PIXELS, "y": EXPECTED[:2]}, r"y is \[2, 5\], the graph gives \[3, 5\]"),
])  # fmt: skip
def test_arrays_that_do_not_fit(foreign: Foreign, arrays: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=rf"^--golden mine\.npz: {told}"):
        check(foreign, **arrays)
