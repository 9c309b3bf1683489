"""arithmetic.py: operations counted by hand, and the graph of products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from bulkinfer.model.arithmetic import OPERATIONS_PER_ROW, SIDE, count_work, write_products
from onnx import TensorProto, helper, numpy_helper


def saved(nodes: list[onnx.NodeProto], shape: list[Any], output: list[Any], folder: Path, **weights: tuple[int, ...]) -> Path:
    constants = [numpy_helper.from_array(np.ones(size, np.float32), name) for name, size in weights.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(folder / "g.onnx"))
    return folder / "g.onnx"


def test_layers_by_hand(tmp_path: Path) -> None:
    """Batch 2; a convolution in two groups, one that is transposed, a matrix with its transpose."""
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["v"], group=2, pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("ConvTranspose", ["v", "b"], ["w"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["w"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "c"], ["y"], transB=1),
    ]
    path = saved(nodes, [2, 4, 8, 8], [2, 10], tmp_path, a=(6, 2, 3, 3), b=(6, 5, 2, 2), c=(10, 5))
    found = count_work(path)
    products = (6 * 4 * 4) * (2 * 3 * 3) + (6 * 4 * 4) * (5 * 2 * 2) + 10 * 5
    assert found.operations == pytest.approx(2 * products)
    values = (4 * 8 * 8 + 6 * 4 * 4) + (6 * 4 * 4 + 5 * 8 * 8) + (5 + 10)
    weights = 6 * 2 * 3 * 3 + 6 * 5 * 2 * 2 + 10 * 5
    assert found.numbers == pytest.approx(values + weights / 2)


def test_products_of_many_matrices(tmp_path: Path) -> None:
    path = saved([helper.make_node("MatMul", ["x", "a"], ["y"])], [2, 3, 4, 7], [2, 3, 4, 9], tmp_path, a=(7, 9))
    assert count_work(path).operations == pytest.approx(2 * 3 * 4 * 9 * 7)


def test_a_size_that_the_graph_leaves_open_is_not_counted(tmp_path: Path) -> None:
    path = saved([helper.make_node("MatMul", ["x", "a"], ["y"])], ["n", 7], ["n", 9], tmp_path, a=(7, 9))
    with pytest.raises(ValueError, match="the size of x is not known"):
        count_work(path)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_graph_of_products_runs_and_its_work_is_what_it_says(precision: str, tmp_path: Path) -> None:
    path = tmp_path / "products.onnx"
    write_products(path, precision, rows=4, halves=False)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (found,) = session.run(["y"], {"x": np.ones((4, SIDE), np.float32)})
    assert found.shape == (4, 1)
    assert np.isfinite(found).all()
    if precision == "fp32":
        assert count_work(path).operations == pytest.approx(OPERATIONS_PER_ROW)
