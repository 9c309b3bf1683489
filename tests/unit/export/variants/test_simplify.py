"""simplify.py: what the makers of variants start from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bulkinfer.errors import RunError
from bulkinfer.export.variants import simplify
from bulkinfer.export.variants.simplify import simplified
from bulkinfer.model.graph_checks import cpu_session
from onnx import helper, numpy_helper

from tests.foreign_graphs import SIDE, deep_graph, save

IMAGES = np.random.default_rng(0).normal(0, 1, (4, 3, SIDE, SIDE)).astype(np.float32)


def test_weights_are_inside_nodes_have_names_and_every_tensor_a_type(tmp_path: Path) -> None:
    path = save(deep_graph(), tmp_path, save_as_external_data=True, size_threshold=0, location="weights.bin")
    model = simplified(path, tmp_path)
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    typed = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    assert {name for node in model.graph.node for name in node.output} == typed


def test_a_batch_norm_goes_into_its_convolution(tmp_path: Path) -> None:
    model = deep_graph()
    values = {name: np.full(8, value, np.float32) for name, value in {"s": 2, "o": 1, "m": 0.5, "v": 4}.items()}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    model.graph.node.insert(1, helper.make_node("BatchNormalization", ["c0", "s", "o", "m", "v"], ["n0"]))
    model.graph.node[2].input[0] = "n0"
    found = simplified(save(model, tmp_path), tmp_path)
    assert "BatchNormalization" not in [node.op_type for node in found.graph.node]
    expected, given = (cpu_session(one.SerializeToString()).run(None, {"x": IMAGES})[0] for one in (model, found))
    np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-4)


def test_old_graphs_get_a_newer_opset(tmp_path: Path) -> None:
    found = simplified(save(deep_graph(opset=11), tmp_path), tmp_path)
    assert [entry.version for entry in found.opset_import if not entry.domain] == [13]


def test_a_graph_that_onnx_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_words: object) -> None:
        raise RuntimeError("no adapter\nat all")

    monkeypatch.setattr(simplify.onnx.version_converter, "convert_version", refuse)
    with pytest.raises(RunError, match=r"^m\.onnx: onnx cannot bring it to opset 13: no adapter$"):
        simplified(save(deep_graph(opset=11), tmp_path), tmp_path)
