"""schedules.py: learning rates against numbers computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.train.options import SHAPES, WARM_UPS, TrainConfig
from bulkinfer.train.plan import Batches
from bulkinfer.train.update.schedules import Schedule, make_schedule
from hypothesis import given
from hypothesis import strategies as st


def schedule(shape: str, **options: Any) -> Schedule:
    """Ten epochs of ten updates, at most 2."""
    return Schedule(**{"peak": 2.0, "shape": shape, "total_steps": 100, "steps_per_epoch": 10, **options})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (schedule("constant"), {0: 2.0, 99: 2.0}),
        (schedule("cosine"), {0: 2.0, 50: 1.0, 25: 1 + math.sqrt(0.5), 75: 1 - math.sqrt(0.5)}),
        (schedule("cosine", end_factor=0.5), {0: 2.0, 50: 1.5, 100: 1.0}),
        (schedule("stepped", drops=(0.5, 0.75), decay=0.1), {0: 2.0, 49: 2.0, 50: 0.2, 74: 0.2, 75: 0.02, 99: 0.02}),
        (schedule("stepped", drops=(0.3,), decay=0.5), {29: 2.0, 30: 1.0}),
        (schedule("stepped", drops=(0.5, 0.75), multipliers=(1.0, 0.3, 0.2)), {49: 2.0, 50: 0.6, 74: 0.6, 75: 0.4}),
        (schedule("cosine", length_epochs=5.0), {0: 2.0, 25: 1.0, 50: 0.0, 99: 0.0}),
        (schedule("polynomial", power=1.0, end_factor=0.1, length_epochs=4.0), {20: 1.1, 40: 0.2, 80: 0.2}),
        (schedule("polynomial", power=1.0, updates_per_epoch=0.5), {0: 2.0, 19: 2.0, 20: 1.6}),
        (schedule("exponential", decay=0.5, decay_epochs=2.0), {0: 2.0, 20: 1.0, 40: 0.5, 10: 2 * math.sqrt(0.5)}),
        (schedule("polynomial", power=2.0), {0: 2.0, 50: 0.5, 90: 0.02}),
        (schedule("polynomial", power=1.0, end_factor=0.1), {50: 2 * 0.55, 100: 0.2}),
        (schedule("cosine", staircase=True), {0: 2.0, 9: 2.0, 10: 1 + math.cos(0.1 * math.pi), 59: 1.0, 50: 1.0}),
        (schedule("polynomial", power=1.0, updates_per_epoch=2), {0: 2.0, 4: 2.0, 5: 1.9, 9: 1.9, 10: 1.8}),
    ],
)
def test_rates(found: Schedule, expected: dict[int, float]) -> None:
    assert {done: found.rate(done) for done in expected} == pytest.approx(expected)


def test_warm_up_rises_and_shift_delays_the_schedule() -> None:
    shifted = schedule("cosine", warmup_epochs=2.0, warmup_mode="shift")
    assert [shifted.rate(done) for done in (0, 9, 19)] == pytest.approx([0.1, 1.0, 2.0])
    assert shifted.rate(20) == pytest.approx(2.0)
    assert shifted.rate(60) == pytest.approx(1.0), "half of the 80 updates after it"
    masked = schedule("cosine", warmup_epochs=2.0, warmup_mode="mask")
    assert masked.rate(9) == pytest.approx((1 + math.cos(0.09 * math.pi)) * 0.5)
    assert masked.rate(50) == pytest.approx(1.0), "the schedule ran meanwhile"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"lr_drops": ("146",)},
            "--lr_drops 146: give shares of the run, .*; a number of drops is for --lr_schedule exponential",
        ),
        ({"lr_drops": ("half",)}, "--lr_drops half: give shares of the run"),
        ({"lr_multipliers": ("1", "0.1")}, "--lr_multipliers 1 0.1: the drops at 0.5 0.75 divide the run into 3 parts"),
        ({"lr_multipliers": ("1", "2", "0.1")}, "--lr_multipliers 1 2 0.1: give parts of the peak"),
        ({"lr_end_rate": 0.5}, "--lr_end_rate 0.5 is above the peak of the rate: give one below 0.1"),
    ],
)
def test_schedules_that_cannot_be(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        make_schedule(TrainConfig(lr=0.1, **options), Batches(4, 1, 1), 100, 10)


def test_the_last_rate_itself() -> None:
    config = TrainConfig(base_learning_rate="-2", lr_schedule="polynomial", lr_end_rate=0.5, lr_power=1.0)
    found = make_schedule(config, Batches(8, 1, 1), 100, 10)
    assert [found.rate(done) for done in (0, 50, 100)] == pytest.approx([2.0, 1.25, 0.5])


@given(st.sampled_from(SHAPES), st.sampled_from(WARM_UPS), st.floats(0, 5), st.integers(0, 99), st.booleans())
def test_rates_are_within_bounds_and_functions_of_the_update_alone(
    shape: str, mode: str, warmup: float, done: int, staircase: bool
) -> None:
    options = {"drops": (0.5,), "warmup_epochs": warmup, "warmup_mode": mode, "staircase": staircase}
    assert 0 <= schedule(shape, **options).rate(done) <= 2.0 + 1e-12
    assert schedule(shape, **options).rate(done) == schedule(shape, **options).rate(done)
