"""What a picture is when it reaches a network: values and pixels by hand, through get_model and infer_launch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import PIL
import pyarrow.parquet as pq
import pytest
from bulkinfer.results.job_file import job_path
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from tests import pictures
from tests.commands import records, run
from tests.foreign_graphs import PLAIN, recipe_file
from tests.forms import only_first

COLOUR = (200, 100, 50)
BGR = {**PLAIN, "channels": "BGR", "mean": [104, 117, 128]}
HALVES = {**PLAIN, "value_range": [0, 1], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
# COLOUR in the order and range of each recipe. Caffe's BN-Inception: B, G, R from 0 to 255 less 104, 117, 128. Inception v3:
# R, G, B from 0 to 1, then (value - 0.5) / 0.5, which is value / 127.5 - 1 of a byte.
BY_HAND: dict[str, tuple[Any, int, tuple[float, float, float]]] = {
    "bgr": (BGR, 8, (-54.0, -17.0, 72.0)),
    "halves": (HALVES, 8, (0.5686275, -0.2156863, -0.6078431)),
    "bninception": ("bninception", 224, (-54.0, -17.0, 72.0)),
    "inceptionv3": ("inceptionv3", 299, (0.5686275, -0.2156863, -0.6078431)),
    "cafferesnet101": ("cafferesnet101", 224, (-52.9801, -15.9465, 77.2283)),
}


def identity(side: int) -> onnx.ModelProto:
    """float32 N x 3 x side x side -> first: the first pixel; worst: how far any other is from it, once per channel."""
    nodes = [
        helper.make_node("Slice", ["x", "zero", "one", "axes"], ["corner"]),
        helper.make_node("Flatten", ["corner"], ["first"]),
        helper.make_node("Sub", ["x", "corner"], ["apart"]),
        helper.make_node("Abs", ["apart"], ["far"]),
        helper.make_node("ReduceMax", ["far"], ["worst"], axes=[2, 3], keepdims=0),
    ]
    constants = {"zero": np.array([0, 0]), "one": np.array([1, 1]), "axes": np.array([2, 3])}
    graph = helper.make_graph(
        nodes, "identity", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, side, side])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in ("first", "worst")],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def whole_picture(side: int) -> onnx.ModelProto:
    """uint8 N x side x side x 3 -> pixels: the same numbers as floats."""
    nodes = [helper.make_node("Cast", ["x"], ["pixels"], to=TensorProto.FLOAT)]
    graph = helper.make_graph(
        nodes, "whole_picture", [helper.make_tensor_value_info("x", TensorProto.UINT8, ["N", side, side, 3])],
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["N", side, side, 3])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def rows_of(home: Path, model: onnx.ModelProto, recipe: Any, *words: object, save: str) -> dict[str, dict[str, Any]]:
    """Rows of the pictures in home/photos through `model`, fed by `recipe`: a network of the list, or the keys themselves."""
    onnx.save(model, home / "m.onnx")
    given = recipe if isinstance(recipe, str) else recipe_file(home, recipe)
    words = ("--onnx", "m.onnx", "--name", "net", "--recipe", given, "--scores", "none", "--batch_size", 2, *words)
    done = run("get_model", *words, cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    words = ("--model_name", "net", "--data_dir", "photos", "--batch_size", 2, "--batches_per_step", 1, "--output", "out")
    done = run("infer_launch", *words, "--device", "cpu", "--save", *save.split(), cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    return records(home / "out")


@pytest.mark.parametrize("kind", ["uint8", "float32"])
@pytest.mark.parametrize("name", only_first(BY_HAND, 2))
def test_b62_channel_values_are_those_computed_by_hand(name: str, kind: str, tmp_path: Path) -> None:
    """uint8: the graph normalises. float32: the worker does."""
    recipe, side, expected = BY_HAND[name]
    picture = pictures.encode(Image.new("RGB", (500, 400), COLOUR))
    pictures.write_files(tmp_path / "photos", {"a.png": picture})
    found = rows_of(tmp_path, identity(side), recipe, "--input", kind, save="first worst")["a.png"]
    assert found["first"] == pytest.approx(expected, rel=2e-6, abs=2e-5)
    assert found["worst"] == [0, 0, 0]
    graph = onnx.load(tmp_path / "models" / "net" / "model_2.onnx")
    shape = [dim.dim_value for dim in graph.graph.input[0].type.tensor_type.shape.dim]
    assert shape == ([2, side, side, 3] if kind == "uint8" else [2, 3, side, side])


@pytest.mark.parametrize(("words", "told"), [
    ((), "needs --name NAME and --recipe"),
    (("--recipe", "inceptionv33"), "is neither a JSON file nor a network of get_model --list"),
    (("--recipe", "part.json"), "lacks mean, std"),
])  # fmt: skip
def test_b62_without_a_whole_recipe_nothing_is_guessed(words: tuple[str, ...], told: str, tmp_path: Path) -> None:
    onnx.save(identity(8), tmp_path / "m.onnx")
    part = {name: value for name, value in PLAIN.items() if name not in ("mean", "std")}
    (tmp_path / "part.json").write_text(json.dumps(part))
    done = run("get_model", "--onnx", "m.onnx", "--name", "net", "--scores", "none", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "models").exists()


def test_b64_pixels_are_those_of_pillow_with_antialiasing(tmp_path: Path) -> None:
    """Noise of 900 x 700, where every shortcut shows; also as JPEG, which could be decoded small."""
    side = 224
    files = {f"a.{format.lower()}": pictures.encode(pictures.noise(900, 700), format) for format in ("PNG", "JPEG")}
    pictures.write_files(tmp_path / "photos", files)
    found = rows_of(tmp_path, whole_picture(side), {**PLAIN, "height": side, "width": side, "resize_size": side}, save="pixels")
    for name in files:
        image = Image.open(tmp_path / "photos" / name)
        expected = np.asarray(image.resize((side, side), Image.Resampling.BILINEAR), np.float64)
        pixels = np.array(found[name]["pixels"]).reshape(side, side, 3)
        assert np.abs(pixels - expected).max() <= 1
        assert np.abs(pixels - expected).mean() < 0.01
    for path in (tmp_path / "out").glob("part-*.parquet"):
        versions = json.loads(pq.read_metadata(path).metadata[b"bulkinfer"])["versions"]
        assert versions["Pillow"] == PIL.__version__
    for facts in (job_path(tmp_path / "out"), tmp_path / "logs" / "latest" / "_job.json"):
        assert json.loads(facts.read_text())["versions"]["Pillow"] == PIL.__version__
