"""train/plan.py: the batch algebra, windows of an epoch, shares of replicas, and when things are due."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.train.plan import (
    Batches,
    Epochs,
    is_due,
    micro_batches,
    micro_batches_of,
    share,
    solve,
    total_steps,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("given_numbers", "found"),
    [
        ((0, 0, 1, 0), (128, 1, 1)),
        ((8, 0, 1, 0), (8, 1, 1)),
        ((8, 4, 2, 0), (8, 4, 2)),
        ((8, 4, 2, 64), (8, 4, 2)),
        ((8, 0, 2, 64), (8, 4, 2)),
        ((0, 4, 2, 64), (8, 4, 2)),
        ((8, 4, 0, 64), (8, 4, 2)),
        ((0, 0, 1, 64), (64, 1, 1)),
        ((0, 0, 1, 1024), (128, 8, 1)),
        ((0, 0, 2, 1000), (125, 4, 2)),
    ],
)
def test_three_numbers_give_the_fourth(given_numbers: tuple[int, ...], found: tuple[int, int, int]) -> None:
    assert solve(*given_numbers, default_micro_batch=128) == Batches(*found)


@pytest.mark.parametrize("numbers", [(8, 4, 2, 65), (8, 4, 2, 128), (7, 0, 1, 64), (0, 3, 2, 64), (8, 0, 16, 64)])
def test_numbers_that_contradict_each_other_are_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=f"do not make --global_batch_size {numbers[3]}"):
        solve(*numbers, default_micro_batch=128)


def test_updates_that_count_as_an_epoch_leave_the_samples_as_they_are() -> None:
    plain, counted = Epochs(100, 8, 60), Epochs(100, 8, 60, updates_per_epoch=5)
    assert (plain.steps_per_epoch, counted.steps_per_epoch) == (13, 5)
    assert [counted.window(step) for step in range(60)] == [plain.window(step) for step in range(60)]
    assert [counted.pass_of(step) for step in (0, 12, 13)] == [0, 0, 1]
    assert counted.pictures(26) == 200


@given(st.integers(2, 500), st.integers(1, 64), st.integers(1, 3))
def test_every_sample_of_an_epoch_is_in_one_window(num_samples: int, global_batch: int, epochs: int) -> None:
    per_epoch = Epochs(num_samples, global_batch, 1).steps_per_pass
    plan = Epochs(num_samples, global_batch, per_epoch * epochs)
    for epoch in range(epochs):
        steps = range(epoch * per_epoch, (epoch + 1) * per_epoch)
        assert {plan.pass_of(step) for step in steps} == {epoch}
        taken = [n for step in steps for n in range(*plan.window(step))]
        assert [plan.pictures(step + 1) - plan.pictures(step) for step in steps] == [
            end - start for start, end in map(plan.window, steps)
        ]
        assert taken == list(range(num_samples))
    sizes = [end - start for start, end in map(plan.window, range(per_epoch))]
    assert global_batch == 1 or min(sizes) > 1, "batch norm has no variance over one"
    assert all(size == global_batch for size in sizes[:-1])
    assert sizes[-1] <= global_batch + 1


@given(st.integers(0, 1000), st.integers(0, 200), st.integers(1, 7), st.integers(2, 32))
def test_replicas_and_micro_batches_share_a_window_out(start: int, size: int, replicas: int, micro: int) -> None:
    shares = [share(start, start + size, rank, replicas) for rank in range(replicas)]
    assert [n for one, other in shares for n in range(one, other)] == list(range(start, start + size))
    assert max(b - a for a, b in shares) - min(b - a for a, b in shares) <= 1
    for one, other in shares:
        pieces = micro_batches(one, other, micro)
        assert [n for a, b in pieces for n in range(a, b)] == list(range(one, other))
        assert all(b - a <= micro + (micro == 2) for a, b in pieces)
        assert len(pieces) < 2 or min(b - a for a, b in pieces) > 1


@given(st.integers(1, 500), st.integers(1, 8), st.integers(1, 9), st.integers(1, 4))
def test_stages_take_whole_micro_batches(num_samples: int, unit: int, accumulation: int, least: int) -> None:
    """Each pass takes the first samples of its order; the last update is whole micro batches, and not too few of them."""
    least = min(least, accumulation)
    plan = Epochs(num_samples, unit * accumulation, 2, unit=unit, least=least)
    if not plan.steps_per_pass:
        assert num_samples < unit * least
        return
    windows = [plan.window(step) for step in range(plan.steps_per_pass)]
    assert [n for start, end in windows for n in range(start, end)] == list(range(plan.samples_per_pass))
    assert all(end - start == unit * accumulation for start, end in windows[:-1])
    assert (windows[-1][1] - windows[-1][0]) % unit == 0
    assert windows[-1][1] - windows[-1][0] >= unit * least
    assert num_samples - plan.samples_per_pass < unit * least
    assert plan.pictures(plan.steps_per_pass) == plan.samples_per_pass


@given(st.integers(0, 1000), st.integers(0, 200), st.sampled_from([(1, 1), (4, 1), (4, 2), (6, 3), (4, 4)]), st.integers(2, 32))
def test_replicas_that_share_statistics_make_the_same_passes(
    start: int, size: int, replicas_and_span: tuple[int, int], micro: int
) -> None:
    """Together they are one replica with the micro batches of all of them."""
    replicas, span = replicas_and_span
    of = [
        micro_batches_of(start, start + size, micro_batch=micro, replica=replica, replicas=replicas, span=span)
        for replica in range(replicas)
    ]
    for first in range(0, replicas, span):
        group = of[first : first + span]
        together = [
            (pieces[0][0], pieces[-1][1]) for pieces in zip(*group, strict=True)
            if all(one[1] == other[0] for one, other in pairwise(pieces))
        ]  # fmt: skip
        assert together == micro_batches(*share(start, start + size, first // span, replicas // span), micro * span)
    assert sum(b - a for pieces in of for a, b in pieces) == size


def test_thirteen_pictures_in_micro_batches_of_four() -> None:
    assert micro_batches(0, 13, 4) == [(0, 4), (4, 8), (8, 11), (11, 13)]


def test_length_by_updates_or_epochs() -> None:
    assert total_steps(0.0, 7, 10) == 7
    assert total_steps(2.5, 0, 10) == 25
    assert total_steps(0.25, 0, 10) == 3
    assert total_steps(3.0, 0, 10) == 30


@pytest.mark.parametrize(
    ("interval", "offset", "updates"),
    [
        (5.0, 0.0, [5, 10, 15, 20]),
        (2.5, 0.0, [3, 5, 8, 10, 13, 15, 18, 20]),
        (5.0, 7.0, [12, 17]),
        (40.0, 0.0, []),
        (math.inf, 0, []),
    ],
)
def test_when_things_are_due(interval: float, offset: float, updates: list[int]) -> None:
    assert [done for done in range(1, 21) if is_due(done, interval, offset)] == updates


@given(st.integers(1, 1000), st.integers(1, 50))
def test_a_whole_share_of_an_epoch_is_hit_to_the_update(steps_per_epoch: int, per_epoch: int) -> None:
    interval = steps_per_epoch / per_epoch
    hits = [done for done in range(1, 3 * steps_per_epoch + 1) if is_due(done, interval)]
    assert len(hits) == min(3 * per_epoch, 3 * steps_per_epoch)
    assert hits[-1] == 3 * steps_per_epoch
