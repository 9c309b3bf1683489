"""Full batches of one shape reach the runtime, whatever the pictures and tails; each picture's own row comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from tests import pictures
from tests.commands import records, run
from tests.foreign_graphs import PLAIN, SIDE, foreign_graph, recipe_file, save
from tests.forms import long, only_first
from tests.runtime_in_front import runtime_in_front

CHANNELS = 5
# notes the shape of every batch, and the resident size before it in pages
RECORDER = """
import json, onnxruntime
plain = onnxruntime.InferenceSession.run
def run(self, names, feed, *rest):
    size = int(open("/proc/self/statm").read().split()[1])
    with open({path!r}, "a") as file:
        file.write(json.dumps([[list(images.shape) for images in feed.values()], size]) + "\\n")
    return plain(self, names, feed, *rest)
onnxruntime.InferenceSession.run = run
"""


def kernel() -> np.ndarray:
    return np.random.default_rng(4).normal(0, 0.1, (CHANNELS, 3, 3, 3)).astype(np.float32)


def convolution(batch: int | str, *, weight_among_inputs: bool = False) -> onnx.ModelProto:
    """float32 batch x 3 x SIDE x SIDE -> convolution -> mean over the picture -> y, as IR 3 or newer wrote it."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["maps"]),
        helper.make_node("GlobalAveragePool", ["maps"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, SIDE, SIDE])]
    if weight_among_inputs:
        inputs.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [CHANNELS, 3, 3, 3]))
    graph = helper.make_graph(
        nodes, "convolution", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, CHANNELS])],
        [numpy_helper.from_array(kernel(), "w")],
    )  # fmt: skip
    version = 3 if weight_among_inputs else 8
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=version)


def by_hand(path: Path) -> np.ndarray:
    """The row of a picture that is SIDE x SIDE already, in numpy."""
    pixels = np.asarray(Image.open(path), np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (3, 3), axis=(0, 1))
    row: np.ndarray = np.einsum("ijcyx,kcyx->ijk", windows, kernel().astype(np.float64)).mean((0, 1))
    return row


def write_pictures(folder: Path, count: int, cut: str = "") -> list[str]:
    """Pictures of noise, SIDE x SIDE, one of them cut off; returns the names of the good ones."""
    names = [f"{number:02d}.png" for number in range(count)]
    for number, name in enumerate(names):
        data = pictures.encode(pictures.noise(SIDE, SIDE, number))
        pictures.write_files(folder, {name: data[: len(data) // 2] if name == cut else data})
    return [name for name in names if name != cut]


def adopt(model: onnx.ModelProto, home: Path, *words: object) -> None:
    """Into models/net; nothing may be printed to stderr."""
    graph, recipe = save(model, home), recipe_file(home, PLAIN)
    words = ("--onnx", graph, "--name", "net", "--recipe", recipe, "--scores", "logits", *words)
    done = run("get_model", *words, cwd=home)
    assert (done.returncode, done.stderr) == (0, "")


def launch(home: Path, *words: object, code: int = 0, env: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Rows by key; nothing may be printed to stderr."""
    words = ("--model_name", "net", "--device", "cpu", "--save", "topk,y", "--output", "out", "--overwrite", *words)
    done = run("infer_launch", *words, cwd=home, env=env)
    assert (done.returncode, done.stderr) == (code, ""), (done.stdout, done.stderr)
    return records(home / "out")


@pytest.mark.parametrize(
    ("count", "cut"), only_first([(10, "09.png"), (10, ""), (1, ""), (4, ""), (5, ""), (10, "08.png"), (5, "04.png")])
)
def test_b25_a_graph_of_batch_four_gives_the_rows_of_batch_one(count: int, cut: str, tmp_path: Path) -> None:
    """With a corrupt picture in the tail as well: beside a good one, behind it, and alone."""
    good = write_pictures(tmp_path / "photos", count, cut)
    found = {}
    for batch in (4, 1):
        adopt(convolution(batch), tmp_path, "--batch_size", batch)
        words = ("--data_dir", "photos", "--device", "cpu", "--batch_size", batch, "--batches_per_step", 2, "--num_devices", 1)
        found[batch] = launch(tmp_path, *words, code=3 if cut else 0)
        assert len(found[batch]) == count
        assert [name for name, row in found[batch].items() if row["status"] == "error"] == [cut] * bool(cut)
    for name in good:
        np.testing.assert_allclose(found[4][name]["y"], found[1][name]["y"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(found[4][name]["y"], by_hand(tmp_path / "photos" / name), rtol=0, atol=1e-3)


@long
def test_b32_a_weight_among_the_inputs_costs_no_warning_in_any_worker(tmp_path: Path) -> None:
    good = write_pictures(tmp_path / "photos", 20)
    adopt(convolution("N", weight_among_inputs=True), tmp_path, "--batch_size", 2)
    found = launch(tmp_path, "--data_dir", "photos", "--batch_size", 2, "--batches_per_step", 1, "--num_devices", 3)
    for name in good:
        np.testing.assert_allclose(found[name]["y"], by_hand(tmp_path / "photos" / name), rtol=0, atol=1e-3)
    logs = list(tmp_path.glob("logs/latest/worker-*.log"))
    assert len(logs) == 3
    for log in logs:
        assert "nitializer" not in log.read_text()
        assert "arning" not in log.read_text()


def recorded(home: Path, *words: object) -> tuple[dict[str, Any], list[tuple[list[list[int]], int]]]:
    """The rows of a launch with one worker, and what its runtime was fed: shapes of the inputs and resident pages."""
    env = runtime_in_front(home / "front", after=RECORDER.format(path=str(home / "fed.jsonl")))
    found = launch(home, "--num_devices", 1, "--streams", 1, *words, env=env)
    return found, [tuple(json.loads(line)) for line in (home / "fed.jsonl").read_text().splitlines()]


def test_b38_only_one_shape_is_fed_whatever_the_pictures_and_the_tails(tmp_path: Path) -> None:
    """Pictures of 46 sizes in two partitions of 23: batches of 16, 7, 16 and 7 records."""
    for number in range(46):
        data = pictures.encode(pictures.noise(20 + 7 * number, 200 - 3 * number, number))
        pictures.write_files(tmp_path / "photos", {f"{number:02d}.png": data})
    adopt(foreign_graph("N", "NHWC", "uint8"), tmp_path, "--batch_size", 16)
    done = run("partition_dataset", "--data_dir", "photos", "--partitions", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, fed = recorded(tmp_path, "--batch_size", 16, "--batches_per_step", 2)
    assert [row["status"] for row in found.values()] == ["ok"] * 46
    assert {json.dumps(shapes) for shapes, _ in fed} == {json.dumps([[16, SIDE, SIDE, 3]])}
    assert len(fed) >= 4


@long
def test_b38_memory_is_flat_over_five_hundred_batches(tmp_path: Path) -> None:
    """Pictures of twenty sizes, each many times."""
    for number in range(1000):
        link = tmp_path / "photos" / f"{number:04d}.png"
        if number < 20:
            pictures.write_files(link.parent, {link.name: pictures.encode(pictures.noise(10 + 9 * number, 150 - 5 * number))})
        else:
            link.symlink_to(f"{number % 20:04d}.png")
    adopt(foreign_graph("N", "NHWC", "uint8"), tmp_path, "--batch_size", 2)
    found, fed = recorded(tmp_path, "--data_dir", "photos", "--batch_size", 2, "--batches_per_step", 250)
    assert len(found) == 1000
    assert len(fed) >= 500
    assert {json.dumps(shapes) for shapes, _ in fed} == {json.dumps([[2, SIDE, SIDE, 3]])}
    pages = [size for _, size in fed]
    grown_bytes = (max(pages[450:]) - max(pages[:50])) * 4096
    assert grown_bytes < 16e6, f"{grown_bytes / 1e6:.1f} MB"
