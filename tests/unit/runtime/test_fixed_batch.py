"""fixed_batch.py: any number of pictures through batches of one size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import ShapeError
from bulkinfer.runtime.fixed_batch import FixedBatch
from numpy.typing import NDArray

Array = NDArray[Any]
SIZE = 4


class Recorder:
    """A network whose outputs are a picture's mean and its corner; keeps every batch that it was given."""

    def __init__(self) -> None:
        self.batches: list[Array] = []

    def __call__(self, images: Array) -> dict[str, Array]:
        assert images.shape == (SIZE, 2, 2, 3)
        self.batches.append(images.copy())
        return {"mean": images.mean(axis=(1, 2), dtype=np.float32), "corner": images[:, :1, 0, 0].astype(np.float32)}


def pictures(count: int) -> Array:
    return np.random.default_rng(count).integers(1, 256, (count, 2, 2, 3), np.uint8)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("options", [{}, {"padding": None}, {"per_run": 1}, {"per_run": 3, "spread": True}, {"padding": 9}])
def test_any_number_of_pictures_gives_a_row_each(count: int, options: dict[str, Any]) -> None:
    network, images = Recorder(), pictures(count)
    found = FixedBatch(network, SIZE, **options).run(images)
    expected = {"mean": images.mean(axis=(1, 2), dtype=np.float32), "corner": images[:, :1, 0, 0].astype(np.float32)}
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
        assert found[name].dtype == np.float32
    per_run = options.get("per_run", SIZE)
    assert len(network.batches) == max(1, -(-count // per_run)), "no pictures: one run tells the shapes"


def test_free_slots_hold_what_was_asked_for() -> None:
    images, one = pictures(2), np.full((1, 2, 2, 3), 77, np.uint8)
    for padding, expected in ((0, np.zeros_like(one)), (one, one), (None, images[-1:])):
        network = Recorder()
        FixedBatch(network, SIZE, padding=padding).run(images)
        np.testing.assert_array_equal(network.batches[0], np.concatenate([images, expected, expected]))


def test_spread_pictures_reach_both_ends_of_the_batch() -> None:
    network, images = Recorder(), pictures(5)
    FixedBatch(network, SIZE, per_run=2, spread=True).run(images)
    taken = [[slot for slot in range(SIZE) if batch[slot].any()] for batch in network.batches]
    assert taken == [[0, 3], [0, 3], [0]]


def test_full_batches_are_not_copied() -> None:
    images, fed = pictures(2 * SIZE), []

    def run_batch(batch: Array) -> dict[str, Array]:
        fed.append(batch)
        return {}

    assert FixedBatch(run_batch, SIZE).run(images) == {}
    assert all(np.shares_memory(batch, images) for batch in fed)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_picture_with_any_output_that_is_not_finite_is_masked(bad: float) -> None:
    images = pictures(6)

    def run_batch(batch: Array) -> dict[str, Array]:
        found = Recorder()(batch)
        found["corner"][(batch == images[5]).all(axis=(1, 2, 3))] = bad
        return found

    network = FixedBatch(run_batch, SIZE)
    means = network.finite_values(images, ["mean"])
    assert means.shape == (6, 3)
    assert np.isnan(means[5]).all()
    np.testing.assert_array_equal(means[:5], images[:5].mean(axis=(1, 2), dtype=np.float32))
    both = network.finite_values(images, ["corner", "mean"])
    np.testing.assert_array_equal(both[:5], np.concatenate([images[:5, 0, 0, :1], means[:5]], axis=1))
    assert np.isnan(both[5]).all()


def test_what_the_network_raises_comes_through() -> None:
    def run_batch(batch: Array) -> dict[str, Array]:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        FixedBatch(run_batch, SIZE).run(pictures(1))


def test_c01_a_row_whose_size_changes_is_one_sentence() -> None:
    """The size of such an output depends on the picture; joining its parts, or taking its rows, would be a traceback."""
    grows = FixedBatch(lambda images: {"y": np.zeros((SIZE, int(images.max())))}, SIZE)
    with pytest.raises(ShapeError, match=r"the size of y depends on the picture: rows of \[1\], then rows of \[2\]"):
        grows.run(np.repeat(np.uint8([1, 2]), SIZE).reshape(-1, 1))
    short = FixedBatch(lambda images: {"y": np.zeros((2, 7))}, SIZE, spread=True)
    with pytest.raises(ShapeError, match=r"y has the shape \[2, 7\] for a batch of 4"):
        short.run(np.zeros((SIZE, 1)))
