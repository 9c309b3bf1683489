"""quantize.py: what is tried in which order, and what stays in fp32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bulkinfer.errors import RunError
from bulkinfer.export.variants.activation_ranges import batches, collect
from bulkinfer.export.variants.quantize import Candidate, candidates, quantized, tensors_to_watch
from bulkinfer.export.variants.simplify import simplified
from bulkinfer.model.graph_checks import cpu_session

from tests.foreign_graphs import SIDE, deep_graph, save

IMAGES = np.random.default_rng(0).normal(0, 1, (20, 3, SIDE, SIDE)).astype(np.float32)


def model_of(folder: Path) -> onnx.ModelProto:
    return simplified(save(deep_graph(gain=1.0), folder), folder)


def made(folder: Path, candidate: Candidate) -> onnx.ModelProto:
    model = model_of(folder)
    return quantized(model, collect(model, tensors_to_watch(model), batches(IMAGES, 0), folder), candidate)


def quantised_layers(model: onnx.ModelProto) -> str:
    """One letter for each layer, in order: q if its weights are int8, f if they are as they were."""
    weights = {tensor.name for tensor in model.graph.initializer}
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    return "".join("f" if layer.input[1] in weights else "q" for layer in layers)


@pytest.mark.parametrize(("first", "last", "layers"), [(0, 0, "qqqqq"), (0, 1, "qqqqf"), (1, 1, "fqqqf"), (2, 1, "ffqqf")])
def test_ends_stay_in_fp32(tmp_path: Path, first: int, last: int, layers: str) -> None:
    graph = made(tmp_path, Candidate(100, first, last))
    assert quantised_layers(graph) == layers
    onnx.checker.check_model(graph)


@pytest.mark.parametrize("percentile", [100.0, 99.99])
def test_the_graph_in_int8_gives_nearly_the_same(tmp_path: Path, percentile: float) -> None:
    (expected,) = cpu_session(str(save(deep_graph(gain=1.0), tmp_path))).run(None, {"x": IMAGES})
    (found,) = cpu_session(made(tmp_path, Candidate(percentile, 0, 0)).SerializeToString()).run(None, {"x": IMAGES})
    assert 0 < np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


def test_weights_have_a_scale_per_channel(tmp_path: Path) -> None:
    graph = made(tmp_path, Candidate(100, 0, 0))
    scales = {tensor.name: tensor.dims for tensor in graph.graph.initializer}
    assert [list(scales[f"w{number}_scale"]) for number in range(4)] == [[8]] * 4


def test_the_same_pictures_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = (made(tmp_path, Candidate(99.99, 1, 1)).SerializeToString(deterministic=True) for _ in range(2))
    assert one == two
    assert str(tmp_path).encode() not in one


def test_steps_keep_ever_more_in_fp32_and_never_most(tmp_path: Path) -> None:
    steps = [{(candidate.first, candidate.last) for candidate in step} for step in candidates(model_of(tmp_path))]
    assert steps == [{(0, 0)}, {(0, 1)}, {(1, 1)}]


def test_candidates_say_what_they_are() -> None:
    assert str(Candidate(100.0, 0, 0)) == "minmax"
    assert str(Candidate(99.99, 2, 1)) == "percentile 99.99, first 2 and last 1 in fp32"


def test_what_onnxruntime_cannot_quantise_is_one_sentence(tmp_path: Path) -> None:
    model = model_of(tmp_path)
    with pytest.raises(RunError, match=r"^onnxruntime cannot quantise the graph: "):
        quantized(model, {}, Candidate(100, 0, 0))
