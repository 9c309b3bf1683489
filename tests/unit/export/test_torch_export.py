"""Torch network -> graph: normalisation inside, names and shapes, what is recorded, and what is refused."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from bulkinfer.errors import RunError
from bulkinfer.export.torch_export import export_network
from bulkinfer.model import batch_graph
from bulkinfer.model.card import read_card, read_sidecar
from bulkinfer.model.graph_checks import Golden, check_graph, golden_images, network_input, read_golden, write_golden
from onnx import TensorProto, helper, numpy_helper

from tests.forms import long
from tests.networks import (
    BGR,
    HALVES,
    Convolutions,
    LooksAtNeighbours,
    Mean,
    NeedsOne,
    Pair,
    ReshapesToOne,
    published,
    run,
)


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder that tests may read, not change."""
    return published(Convolutions(), tmp_path_factory.mktemp("models") / "net")


def test_b62_channel_values_of_a_bgr_recipe_are_those_computed_by_hand(tmp_path: Path) -> None:
    folder = published(Mean(), tmp_path / "net", BGR, batch_size=2)
    solid = np.broadcast_to(np.array([200, 100, 50], np.uint8), (2, 8, 8, 3)).copy()
    outputs = run(folder / "model_2.onnx", solid)
    assert np.allclose(outputs["embedding"], [[-54, -17, 72]] * 2)
    assert np.allclose(outputs["logits"], [[-108, -34, 144]] * 2)


def test_b62_a_float_input_is_not_normalised_again(tmp_path: Path) -> None:
    folder = published(Mean(), tmp_path / "net", HALVES, "float32", batch_size=2)
    outputs = run(folder / "model_2.onnx", np.full((2, 3, 8, 8), 0.25, np.float32))
    assert np.allclose(outputs["embedding"], 0.25)
    assert read_sidecar(folder / "model_2.onnx").inputs == {"images": [2, 3, 8, 8]}


def test_b62_half_half_recipe_maps_black_and_white_to_minus_one_and_one() -> None:
    images = np.stack([np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8)])
    inputs = network_input(images, HALVES)
    assert inputs.shape == (2, 3, 8, 8)
    assert inputs.dtype == np.float32
    assert (inputs[0] == -1).all()
    assert (inputs[1] == 1).all()


def test_an_output_of_n_c_1_1_is_flattened_and_without_a_linear_layer_there_is_no_embedding(convolutions: Path) -> None:
    sidecar = read_sidecar(convolutions / "model_6.onnx")
    assert sidecar.outputs == {"logits": [6, 5]}
    assert sidecar.inputs == {"images": [6, 8, 8, 3]}
    assert read_sidecar(convolutions / "model.onnx").inputs == {"images": ["batch", 8, 8, 3]}
    images = np.random.default_rng(5).integers(0, 256, (6, 8, 8, 3), np.uint8)
    with torch.inference_mode():
        expected = Convolutions().eval()(torch.from_numpy(images / 127.5 - 1).permute(0, 3, 1, 2).float()).reshape(6, 5).numpy()
    assert np.abs(run(convolutions / "model_6.onnx", images)["logits"] - expected).max() < 1e-5


def test_golden_outputs_and_parity_are_recorded(convolutions: Path) -> None:
    golden = read_golden(convolutions / "golden.npz")
    assert golden.images_NHWC.shape == (4, 8, 8, 3)
    assert len({image.tobytes() for image in golden.images_NHWC}) == 4
    parity = read_sidecar(convolutions / "model_6.onnx").parity["logits"]
    assert parity["max_abs_value"] == pytest.approx(np.abs(golden.outputs["logits"]).max())
    assert 0 <= parity["max_abs_difference"] <= 1e-4 * parity["max_abs_value"]


def test_b28_versions_are_conservative_and_nothing_tells_of_this_machine(convolutions: Path) -> None:
    for path in (convolutions / "model.onnx", convolutions / "model_6.onnx"):
        model = onnx.load(path, load_external_data=False)
        assert model.ir_version <= 9
        assert [(opset.domain, opset.version <= 18) for opset in model.opset_import] == [("", True)]
        data = path.read_bytes()
        for trace in (
            rb"\.py",
            rb"site-packages",
            rb"torch",
            rb"stack_trace",
            rb"/(tmp|opt|root|home|usr)/",
            rb"(/[\w.-]{2,}){2}",
        ):
            assert not re.search(trace, data), trace
        assert not model.metadata_props
        assert all(not node.metadata_props and not node.doc_string for node in model.graph.node)


def test_weights_lie_in_one_file_named_by_content(convolutions: Path) -> None:
    card = read_card(convolutions / "card.json")
    weights = convolutions / card.external_data
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert card.external_data_sha256 == digest
    assert card.external_data == f"weights-{digest[:16]}.bin"
    names = {entry.name for entry in convolutions.iterdir()}
    assert names == {"card.json", "golden.npz", "model.onnx", "model.json", "model_6.onnx", "model_6.json", weights.name}


def test_the_same_weights_give_the_same_bytes_in_another_folder(convolutions: Path, tmp_path: Path) -> None:
    other = published(Convolutions(), tmp_path / "elsewhere" / "net")
    for entry in convolutions.iterdir():
        assert (other / entry.name).read_bytes() == entry.read_bytes(), entry.name


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (LooksAtNeighbours(), "other rows of the batch change the logits of a picture"),
        (ReshapesToOne(), "must be the batch"),
        (NeedsOne(), "cannot export the network with a free batch"),
        (Pair(), "gives a tuple where one row of class values per picture is needed"),
        (torch.nn.Flatten(0), r"a tensor of shape \[192\]"),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 8])
def test_b26_networks_that_fix_or_mix_their_batch_are_refused(
    batch_size: int, network: torch.nn.Module, words: str, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=words) as error:
        published(network, tmp_path / "net", batch_size=batch_size)
    assert "\n" not in str(error.value)
    assert list((tmp_path / "net").iterdir()) == []


def test_weights_that_give_no_numbers_are_refused() -> None:
    network = Mean()
    network.head.weight.data[0, 0] = float("nan")
    with pytest.raises(RunError, match="not finite"):
        export_network(network.eval(), HALVES, "uint8")


def graph_with(nodes: list[Any], constants: dict[str, np.ndarray], batch: int | str, path: Path) -> Path:
    """images (uint8 N x 8 x 8 x 3) -> mean -> `nodes` -> logits, declared as N x 3."""
    first = [
        helper.make_node("Cast", ["images"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["float", "axes"], ["mean"], keepdims=0),
    ]
    constants = {"axes": np.array([1, 2]), **constants}
    graph = helper.make_graph(
        first + nodes, "hand_made",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, [batch, 8, 8, 3])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 3])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


def golden_means() -> Golden:
    images = golden_images(HALVES)
    return Golden(images, {"logits": images.astype(np.float32).mean((1, 2))})


def test_b26_a_header_that_lies_about_the_batch_is_refused(tmp_path: Path) -> None:
    reshape = [helper.make_node("Reshape", ["mean", "one"], ["flat"]), helper.make_node("Identity", ["flat"], ["logits"])]
    graph = graph_with(reshape, {"one": np.array([1, -1])}, "batch", tmp_path / "m.onnx")
    with pytest.raises(RunError, match=r"m\.onnx: output logits has shape \[1, .*must be the batch \(free\)"):
        check_graph(graph, "m.onnx", 0, golden_means(), HALVES)
    with pytest.raises(RunError, match="fixes its batch inside: at batch 4"):
        batch_graph.fix_batch(graph.read_bytes(), 4)


def test_b26_a_header_that_no_shape_inference_can_convict_is_refused_after_running(tmp_path: Path) -> None:
    hidden = [  # the shape [1, -1] is computed from the pictures
        helper.make_node("Mul", ["mean", "zero"], ["zeros"]),
        helper.make_node("ReduceMax", ["zeros"], ["nothing"], keepdims=0),
        helper.make_node("Cast", ["nothing"], ["offset"], to=TensorProto.INT64),
        helper.make_node("Add", ["one", "offset"], ["shape"]),
        helper.make_node("Reshape", ["mean", "shape"], ["logits"]),
    ]
    graph = graph_with(hidden, {"one": np.array([1, -1]), "zero": np.float32([0])}, "batch", tmp_path / "m.onnx")
    with pytest.raises(RunError, match=r"m\.onnx: logits has 1 rows for a batch of 5"):
        check_graph(graph, "m.onnx", 0, golden_means(), HALVES)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 5, 16])
def test_b26_honest_graphs_pass_at_any_batch_size(batch_size: int, tmp_path: Path) -> None:
    identity = [helper.make_node("Identity", ["mean"], ["logits"])]
    graph = graph_with(identity, {}, "batch", tmp_path / "m.onnx")
    graph.write_bytes(batch_graph.fix_batch(graph.read_bytes(), batch_size))
    sidecar = check_graph(graph, "m.onnx", batch_size, golden_means(), HALVES)
    assert (sidecar.batch_size, sidecar.outputs) == (batch_size, {"logits": [batch_size, 3]})
    with pytest.raises(RunError, match="must be the batch"):
        check_graph(graph, "m.onnx", batch_size + 1, golden_means(), HALVES)


def test_b26_a_graph_that_differs_from_its_source_is_refused(tmp_path: Path) -> None:
    graph = graph_with([helper.make_node("Identity", ["mean"], ["logits"])], {}, 6, tmp_path / "m.onnx")
    golden = golden_means()
    golden.outputs["logits"][2, 1] *= 1.001
    with pytest.raises(RunError, match=r"logits differs from the source network by 0\.\d+ where its largest value is"):
        check_graph(graph, "m.onnx", 6, golden, HALVES)


def test_golden_files_survive_a_round_trip(tmp_path: Path) -> None:
    golden = golden_means()
    write_golden(tmp_path / "golden.npz", golden)
    read = read_golden(tmp_path / "golden.npz")
    assert np.array_equal(read.images_NHWC, golden.images_NHWC)
    assert np.array_equal(read.outputs["logits"], golden.outputs["logits"])


def test_c47_a_network_without_classes_gives_an_embedding_alone() -> None:
    export = export_network(Convolutions().eval(), HALVES, "uint8", has_classes=False)
    assert {name: values.shape for name, values in export.golden.outputs.items()} == {"embedding": (4, 5)}
    model = onnx.ModelProto.FromString(export.graph)
    assert [output.name for output in model.graph.output] == ["embedding"]
    with pytest.raises(RunError, match=r"the network gives a tuple where one row of features per picture is needed"):
        export_network(Pair().eval(), HALVES, "uint8", has_classes=False)


def test_c47_a_size_that_the_network_does_not_take_is_one_sentence() -> None:
    with pytest.raises(RunError, match="the network does not run on pictures of 4 x 4 pixels: ") as caught:
        export_network(Convolutions().eval(), replace(HALVES, height=4, width=4), "uint8")
    assert "\n" not in str(caught.value)


@long
def test_an_export_leaves_nothing_in_the_temporary_folder(tmp_path: Path) -> None:
    """In a process of its own: torch makes its folder once."""
    code = """
import torch
from bulkinfer.export.torch_export import export_network
from tests.networks import HALVES, Convolutions
export_network(Convolutions().eval(), HALVES, "uint8")
"""
    environment = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    subprocess.run(
        [sys.executable, "-c", code], env={**environment, "TMPDIR": str(tmp_path)}, check=True, cwd=Path(__file__).parents[3]
    )
    assert not list(tmp_path.iterdir())
