"""Graph files that cannot do: no graphs at all, made for another runtime, or with the batch frozen inside. By command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from bulkinfer import zoo
from bulkinfer.files.atomic import file_sha256
from onnx import TensorProto, helper, numpy_helper

from tests import pictures
from tests.commands import run, run_here
from tests.foreign_graphs import SIDE, foreign_graph, recipe_file, save
from tests.forms import only_first
from tests.models import tiny_graph, write_tiny_model
from tests.networks import NeedsOne, ReshapesToOne

NO_GRAPHS = {  # what lies where a graph should, and what each is called
    "pointer": (pictures.LFS_POINTER, "Git LFS pointer"),
    "page": (pictures.HTML_PAGE, "HTML page"),
    "empty": (b"", "is empty"),
    "half": (b"half", ""),
}


def refusal(command: str, *words: object, cwd: Path, code: int) -> str:
    """The one sentence of a command that must end with `code`."""
    done = run_here(command, *words, cwd=cwd)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr.startswith(f"{command}: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return str(done.stderr)


def refused_graph(graph: Path, home: Path, *words: object, code: int = 2) -> str:
    """What get_model says of a graph that it does not take; it leaves no graph behind."""
    told = refusal(
        "get_model", "--onnx", graph, "--name", "net", "--recipe", recipe_file(home), "--scores", "logits", *words,
        cwd=home, code=code,
    )  # fmt: skip
    assert not list(home.glob("models/**/*.onnx"))
    return told


def content(kind: str, whole: bytes) -> tuple[bytes, str]:
    data, words = NO_GRAPHS[kind]
    return (whole[: len(whole) // 2], words) if kind == "half" else (data, words)


@pytest.mark.parametrize("kind", NO_GRAPHS)
def test_b29_get_model_says_what_the_file_is_and_its_size(kind: str, tmp_path: Path) -> None:
    data, words = content(kind, foreign_graph(num_classes=1000).SerializeToString())
    (tmp_path / "m.onnx").write_bytes(data)
    told = refused_graph(tmp_path / "m.onnx", tmp_path)
    assert f"m.onnx ({len(data):,} bytes) " in told
    assert (words or "is only the beginning of an ONNX graph") in told


@pytest.mark.parametrize("kind", NO_GRAPHS)
def test_b29_infer_launch_says_what_lies_in_the_place_of_its_graph(kind: str, tmp_path: Path) -> None:
    """As in a clone of somebody's models without Git LFS, or a copy that broke off."""
    graph = write_tiny_model(tmp_path / "models") / "model_6.onnx"
    data, words = content(kind, graph.read_bytes())
    graph.write_bytes(data)
    pictures.write_files(tmp_path / "photos", {"a.png": pictures.encode(pictures.solid())})
    told = refusal("infer_launch", "--model_name", "tiny", "--data_dir", "photos", cwd=tmp_path, code=2)
    assert "model_6.onnx is not the graph of model_6.json (it is " in told
    assert (words or "cut short") in told
    assert f"{len(data):,} bytes" in told


def test_b29_infer_launch_says_what_lies_in_the_place_of_the_weights(tmp_path: Path) -> None:
    (write_tiny_model(tmp_path / "models") / "weights.bin").write_bytes(pictures.LFS_POINTER)
    told = refusal("infer_launch", "--model_name", "tiny", "--synthetic", cwd=tmp_path, code=2)
    assert f"weights.bin is not what card.json records (it is a Git LFS pointer of {len(pictures.LFS_POINTER)} bytes" in told


def newer(kind: str) -> onnx.ModelProto:
    """The tiny network, in one respect beyond every runtime there is."""
    model = tiny_graph(6)
    if kind == "ir":
        model.ir_version = 99
    elif kind == "opset":
        model.opset_import[0].version = 99
    else:
        model.opset_import.append(helper.make_opsetid("my.ops", 1))
        (last,) = [node for node in model.graph.node if node.output[0] == "logits"]
        last.output[0] = "before"
        model.graph.node.append(helper.make_node("Foo", ["before"], ["logits"], domain="my.ops"))
    return model


@pytest.mark.usefixtures("openvino")  # with the processor alone there is nothing to measure, and workers find it
@pytest.mark.parametrize(("kind", "reason"), only_first([
    ("ir", "its IR version is 99, this onnxruntime takes up to "),
    ("opset", "its opset of ai.onnx is 99, this onnxruntime takes up to "),
    ("operator", "it needs the operator Foo of my.ops, which this onnxruntime does not have "),
]))  # fmt: skip
def test_b28_a_folder_for_a_newer_runtime_is_one_line_from_three_workers(kind: str, reason: str, tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "models", graph=newer(kind))
    pictures.write_files(tmp_path / "photos", {f"{n}.png": pictures.encode(pictures.solid()) for n in range(30)})
    words = ("--model_name", "tiny", "--data_dir", "photos", "--num_devices", 3)
    measured = refusal("infer_launch", *words, cwd=tmp_path, code=2)  # auto finds it before any worker starts
    assert reason in measured
    assert not list(tmp_path.glob("logs/*"))
    told = refusal("infer_launch", *words, "--device", "cpu", cwd=tmp_path, code=2)
    assert "/models/tiny/model_6.onnx: " in told
    assert reason in told
    logs = [path.read_text() for path in tmp_path.glob("logs/*/worker-*.log")]
    assert logs
    assert "Traceback" not in "".join(logs)
    assert not list(tmp_path.glob("logs/*/results/part-*"))


def merging_graph(batch: int | str) -> onnx.ModelProto:
    """batch x 3 x SIDE x SIDE -> batch x 4, through a reshape to [1, -1]; the header goes on saying batch x 4."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["mean", "w"], ["four"]),
        helper.make_node("Reshape", ["four", "one"], ["merged"]),
        helper.make_node("Identity", ["merged"], ["y"]),
    ]
    constants = {"w": np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32), "one": np.array([1, -1])}
    graph = helper.make_graph(
        nodes, "merging",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("batch", "batch_size", "told"), [
    ("N", 4, "fixes or mixes its batch inside (output y: it has 1 rows for a batch of 3)"),
    (4, 4, "has no output with one row per picture"),
    (4, 1, "has no output with one row per picture"),
])  # fmt: skip
def test_b26_a_header_that_hides_merged_samples_is_refused(
    batch: int | str, batch_size: int, told: str, tmp_path: Path
) -> None:
    assert told in refused_graph(save(merging_graph(batch), tmp_path), tmp_path, "--batch_size", batch_size)


def test_b26_where_one_picture_alone_is_right_it_is_taken_one_at_a_time(tmp_path: Path) -> None:
    graph = save(merging_graph("N"), tmp_path)
    words = ("--onnx", graph, "--name", "net", "--recipe", recipe_file(tmp_path), "--scores", "logits", "--batch_size", 1)
    done = run("get_model", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "batch: 1 only, fixed inside the graph" in done.stdout
    assert [path.name for path in (tmp_path / "models" / "net").glob("*.onnx")] == ["model_1.onnx"]


def exported(network: torch.nn.Module, batch: int, path: Path) -> Path:
    """By torch's older exporter, which freezes the batch of the example and says nothing."""
    with zoo.quiet():
        example = (torch.zeros(batch, 3, 8, 8),)
        torch.onnx.export(network.eval(), example, str(path), dynamo=False, input_names=["x"], output_names=["y"])
    return path


@pytest.mark.parametrize(("network", "example_batch", "told"), [
    (NeedsOne(), 1, "it can only be adopted with --batch_size 1"),
    (ReshapesToOne(), 1, "it can only be adopted with --batch_size 1"),
    (ReshapesToOne(), 8, "has no output with one row per picture"),
])  # fmt: skip
def test_b26_a_batch_that_the_exporter_froze_is_not_passed_off_as_another(
    network: torch.nn.Module, example_batch: int, told: str, tmp_path: Path
) -> None:
    graph = exported(network, example_batch, tmp_path / "m.onnx")
    assert told in refused_graph(graph, tmp_path, "--batch_size", 6)


@pytest.mark.parametrize("network", [NeedsOne(), ReshapesToOne()])
def test_b26_it_is_taken_at_the_batch_that_it_was_frozen_at(network: torch.nn.Module, tmp_path: Path) -> None:
    graph = exported(network, 1, tmp_path / "m.onnx")
    words = ("--onnx", graph, "--name", "net", "--recipe", recipe_file(tmp_path), "--scores", "logits", "--batch_size", 1)
    done = run("get_model", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    sidecar: dict[str, Any] = json.loads((tmp_path / "models" / "net" / "model_1.json").read_text())
    assert (sidecar["inputs"], sidecar["outputs"]) == ({"images": [1, 8, 8, 3]}, {"y": [1, 3]})
    assert sidecar["sha256"] == file_sha256(tmp_path / "models" / "net" / "model_1.onnx")
