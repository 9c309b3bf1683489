"""activation_ranges.py: extremes, percentiles and memory that does not grow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bulkinfer.errors import UsageError
from bulkinfer.export.variants.activation_ranges import TensorRange, batches, collect
from onnx import shape_inference

from tests.graphs import solid_batch
from tests.models import tiny_graph


def test_extremes_are_exact_whatever_the_order() -> None:
    values = TensorRange()
    for part in (np.array([1.5, -2.0]), np.array([1000.25]), np.array([[0.0, -0.125]])):
        values.add(part.astype(np.float32), 1)
    assert values.percentile(100) == (-2.0, 1000.25)


@pytest.mark.parametrize("order", [1, -1])
def test_percentiles_are_those_of_all_values_however_the_range_grew(order: int) -> None:
    random = np.random.default_rng(0)
    parts = [random.normal(0, scale, 20_000).astype(np.float32) for scale in (0.5, 1, 2, 4, 8)]
    found = TensorRange()
    for part in parts[::order]:
        found.add(part, 1)
    low, high = found.percentile(99)
    expected = np.percentile(np.concatenate(parts), [0.5, 99.5])
    assert (low, high) == pytest.approx(tuple(expected), abs=0.05)


def test_a_rare_giant_is_cut_off_by_percentiles_only() -> None:
    values = TensorRange()
    values.add(np.linspace(0, 1, 60_000, dtype=np.float32), 1)
    values.add(np.array([50.0], np.float32), 1)
    assert values.percentile(100)[1] == 50.0
    assert values.percentile(99.9)[1] == pytest.approx(1.0, abs=0.02)
    assert values.percentile(99.9)[0] >= 0


def test_a_tensor_of_zeros_has_a_range() -> None:
    values = TensorRange()
    values.add(np.zeros(5, np.float32), 1)
    assert values.percentile(99.99) == (0.0, 0.0)


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(UsageError, match="not finite on the calibration pictures"):
        TensorRange().add(np.array([1.0, np.inf], np.float32), 1)


def test_the_tensors_of_a_graph_are_seen(tmp_path: Path) -> None:
    graph = shape_inference.infer_shapes(tiny_graph(2))
    images = solid_batch((255, 0, 0), (0, 0, 51), (0, 255, 0))
    ranges = collect(graph, ["unit", "embedding"], batches(images, 2), tmp_path)
    assert ranges["unit"].percentile(100) == (0.0, 1.0)
    assert ranges["embedding"].percentile(100) == (0.0, 1.0)


def test_batches_are_small_or_full() -> None:
    images = np.arange(1200 * 4, dtype=np.uint8).reshape(1200, 2, 2, 1)
    assert [len(part) for part in batches(images[:5], 2)] == [2, 2, 2]
    assert (np.concatenate(list(batches(images[:5], 2)))[5] == images[4]).all()
    large = np.zeros((3, 600, 600, 3), np.uint8)
    assert [len(part) for part in batches(large, 0)] == [1, 1, 1]
    assert (np.concatenate(list(batches(images, 0))) == images).all()
