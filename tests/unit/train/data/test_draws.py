"""train/data/draws.py: uniform numbers that depend on nothing but seed, epoch, sample and what they decide."""

from __future__ import annotations

import numpy as np
import pytest
from bulkinfer.train.data.draws import Draw, order, step_seed, uniform

SAMPLES = np.arange(50_000)


def test_draws_are_uniform() -> None:
    found = uniform(3, 7, SAMPLES, Draw.FLIP)
    assert found.min() >= 0
    assert found.max() < 1
    histogram = np.histogram(found, 20, (0, 1))[0]
    assert ((histogram - 2500) ** 2 / 2500).sum() < 50, "chi squared of 19 degrees: 50 is one in ten thousand"


def test_draws_of_one_sample_do_not_depend_on_the_others() -> None:
    """So batches, ranks and workers may cut the order as they like."""
    whole = uniform(0, 1, SAMPLES, Draw.CROP_X)
    some = np.array([7, 40_000, 3])
    assert (uniform(0, 1, some, Draw.CROP_X) == whole[some]).all()


@pytest.mark.parametrize(("seed", "epoch", "draw"), [(1, 1, Draw.CROP_X), (0, 2, Draw.CROP_X), (0, 1, Draw.CROP_Y)])
def test_seed_epoch_and_purpose_each_give_other_numbers(seed: int, epoch: int, draw: Draw) -> None:
    one, other = uniform(0, 1, SAMPLES, Draw.CROP_X), uniform(seed, epoch, SAMPLES, draw)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.02
    assert (one == other).sum() == 0


def test_neighbours_are_not_alike() -> None:
    found = uniform(0, 0, SAMPLES, Draw.AREA)
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.02


def test_numbers_stay_what_they_are() -> None:
    """A run must reproduce with a later version: these were computed once with arbitrary-precision integers."""

    def mix(value: int) -> int:
        mask = (1 << 64) - 1
        value = (value + 0x9E3779B97F4A7C15) & mask
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
        return value ^ (value >> 31)

    expected = [(mix(mix(mix(mix(11) ^ 5) ^ 2) ^ sample) >> 11) / 2**53 for sample in (0, 1, 123_456)]
    assert uniform(11, 5, np.array([0, 1, 123_456]), Draw.CROP_Y).tolist() == expected


def test_an_order_is_a_permutation_and_differs_by_epoch() -> None:
    first, second = order(0, 0, 1000), order(0, 1, 1000)
    assert sorted(first) == list(range(1000))
    assert (first != second).mean() > 0.9
    assert (order(0, 0, 1000) == first).all()
    assert (order(0, 0, 1000, shuffle=False) == np.arange(1000)).all()


def test_step_seeds_differ_by_step_and_rank() -> None:
    seeds = {step_seed(0, step, rank) for step in range(100) for rank in range(4)}
    assert len(seeds) == 400
    assert all(0 <= seed < 2**63 for seed in seeds)
