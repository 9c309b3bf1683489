"""ranks/group.py: two connected processes make the updates and validations of one, and stop together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bulkinfer.train.checkpoints.checkpoint import flatten_optimiser
from bulkinfer.train.data.samples import CachedSamples
from bulkinfer.train.network.networks import NetworkOptions, build
from bulkinfer.train.ranks.group import Ranks
from bulkinfer.train.ranks.shared_norm import share_statistics
from bulkinfer.train.update.optimisers import OptimiserOptions, gather_state
from bulkinfer.train.update.step import Precision, run_step, targets_of
from bulkinfer.train.update.updating import Updater
from bulkinfer.train.validation.scores import evaluate
from torch import nn

from tests.forms import long
from tests.made_once import made_once
from tests.rank_processes import run_ranks

FP32, BF16 = Precision("32.32", "cpu"), Precision("16.16", "cpu")
RATES = {"sgd": 0.1, "nesterov": 0.1, "lars": 1.0, "rmsprop_tf": 0.003}
# norm, optimiser, sharded
CASES = [("batch", "nesterov", False), *(("group", name, is_sharded) for name in RATES for is_sharded in (False, True))]
GLOBAL = 8
SHARES = ((4, 4), (5, 1), (0, 3))  # pictures of two ranks in a pass


def small_network(norm: str) -> nn.Module:
    torch.manual_seed(0)
    return build(NetworkOptions("cifar_resnet8", 10, norm=norm, norm_groups=4 if norm == "group" else 0))


def batch(random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    labels = torch.randint(0, 10, (GLOBAL,), generator=random)
    return torch.randn(GLOBAL, 3, 8, 8, generator=random), targets_of(labels, 10, 0.1), labels


def train(ranks: Ranks, norm: str, name: str, *, is_sharded: bool, precision: Precision = FP32) -> dict[str, Any]:
    """Weights and the optimiser's state after five updates of 8 samples, which the ranks share."""
    network, random = small_network(norm).to(precision.weights), torch.Generator().manual_seed(1)
    if norm == "batch" and ranks.are_many:
        share_statistics(network, ranks.make_group(2))
    updater = Updater(
        dict(network.named_parameters()), OptimiserOptions(name, l2=1e-4), rounding_seed=0,
        is_sharded=is_sharded and ranks.are_many,
    )  # fmt: skip
    own = slice(ranks.world.rank * GLOBAL // ranks.world.size, (ranks.world.rank + 1) * GLOBAL // ranks.world.size)
    for step in range(5):
        images, targets, labels = (tensor[own] for tensor in batch(random))
        part = (images.to(precision.input), targets, labels)
        run_step(network, updater, [part], window_size=GLOBAL, step=step, rate=RATES[name], scale=1.0, precision=precision,
                 ranks=ranks)  # fmt: skip
    gather_state(updater.optimiser)
    return {**network.state_dict(), **(flatten_optimiser(updater.optimiser)[0] if ranks.world.is_first else {})}


def shared_norm(ranks: Ranks, sizes: tuple[int, int]) -> list[torch.Tensor]:
    """Outputs, gradients and averages of a batch norm over pictures of which the ranks have so many each.

    They are far from 0, as the pixels of a bright picture are. One process has all of them.
    """
    norm = nn.BatchNorm2d(3)
    images = (100 + torch.randn(sum(sizes), 3, 4, 4, generator=torch.Generator().manual_seed(1))).requires_grad_()
    weights = torch.randn(images.shape, generator=torch.Generator().manual_seed(2))
    if ranks.are_many:
        share_statistics(norm, ranks.make_group(2))
        images, weights = (tensor.detach().split(sizes)[ranks.world.rank] for tensor in (images, weights))
        images.requires_grad_()
    for _ in range(2):
        outputs = norm(images)
        (outputs * weights).sum().backward()
    assert images.grad is not None
    assert norm.weight.grad is not None
    assert norm.bias.grad is not None
    ranks.add([norm.weight.grad, norm.bias.grad])
    return [outputs.detach(), images.grad, norm.weight.grad, norm.bias.grad, *norm.buffers()]


def validate(ranks: Ranks) -> tuple[dict[str, Any], np.ndarray]:
    """The row and the confusion of a validation of 21 pictures in batches of 4: three for each rank, the last one shorter."""
    random = np.random.default_rng(0)
    network = small_network("none")
    network.register_buffer("average", torch.full((1,), float(ranks.world.rank)))
    samples = CachedSamples(torch.from_numpy(random.integers(0, 256, (21, 8, 8, 3), np.uint8)), random.integers(0, 10, 21),
                            tuple("abcdefghij"))  # fmt: skip
    mean, std = torch.full((3,), 0.5), torch.full((3,), 0.25)
    scores = evaluate(network, samples, batch_size=4, precision=FP32, mean=mean, std=std, ranks=ranks)
    assert network.get_buffer("average").tolist() == [0.0], "all ranks validate the averages of the first"
    return {name: f"{value:.9g}" for name, value in scores.as_row().items()}, scores.confusion


def update(ranks: Ranks, *, fault_of: int = -1, stop_of: int = -1) -> tuple[bool, int, bool]:
    """Whether the update of a network was made, the exit code that ends the run, and whether the weights changed."""
    network = small_network("group")
    before = [parameter.detach().clone() for parameter in network.parameters()]
    images, targets, labels = batch(torch.Generator().manual_seed(1))
    if ranks.world.rank == fault_of:
        images[0, 0, 0, 0] = torch.inf
    outcome = run_step(
        network, Updater(dict(network.named_parameters()), OptimiserOptions("sgd")), [(images, targets, labels)],
        window_size=2 * GLOBAL, step=0, rate=0.1, scale=1.0, precision=FP32, ranks=ranks,
        stop=lambda: 143 if ranks.world.rank == stop_of else 0,
    )  # fmt: skip
    changed = any(not torch.equal(one, other) for one, other in zip(before, network.parameters(), strict=True))
    return outcome.finite, outcome.stop, changed


def everything(ranks: Ranks, folder: Path) -> None:
    """What the tests look at, from each rank in a file; connecting takes longer than all of it."""
    cases = CASES if ranks.are_many else [case for case in CASES if not case[2]]
    sharded = (False, True) if ranks.are_many else ()
    found = {
        "trained": {case: train(ranks, case[0], case[1], is_sharded=case[2]) for case in cases},
        "in 16 bits": [train(ranks, "group", "nesterov", is_sharded=shards, precision=BF16) for shards in sharded],
        "validated": validate(ranks),
        "shared norm": {sizes: shared_norm(ranks, sizes) for sizes in SHARES},
        "gathered": ranks.gather(f"rank {ranks.world.rank}"),
        "largest": ranks.largest(5 - ranks.world.rank),
        "fault": update(ranks, fault_of=1),
        "stop": update(ranks, stop_of=1),
        "neither": update(ranks),
    }
    torch.save(found, folder / f"{ranks.world.size}-{ranks.world.rank}")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By "ranks-rank" what each of them found."""
    folder = made_once(tmp_path_factory, "ranks", lambda folder: run_ranks(everything, [(1, 1), (2, 1)], folder))
    return {path.name: torch.load(path, weights_only=False) for path in folder.iterdir()}


@long
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}" + "-sharded" * case[2])
def test_two_ranks_are_one_process(case: tuple[str, str, bool], found: dict[str, Any]) -> None:
    """To 1e-5 after five updates: weights, and the optimiser's state, also if each rank keeps a part of it."""
    one = found["1-0"]["trained"][(*case[:2], False)]
    first, second = (found[name]["trained"][case] for name in ("2-0", "2-1"))
    assert one.keys() == first.keys()
    for name, value in one.items():
        assert first[name].numpy() == pytest.approx(value.numpy(), abs=1e-5), name
    assert all(torch.equal(value, first[name]) for name, value in second.items()), "the ranks have the same bits"
    whole = found["2-0"]["trained"][(*case[:2], False)]
    assert all(torch.equal(value, whole[name]) for name, value in first.items()), "sharded or not"


@long
@pytest.mark.parametrize("sizes", SHARES)
def test_shared_statistics_are_those_of_all_pictures(sizes: tuple[int, int], found: dict[str, Any]) -> None:
    """Outputs, gradients and averages, also if a rank has no pictures."""
    one, first, second = (found[name]["shared norm"][sizes] for name in ("1-0", "2-0", "2-1"))
    of_pictures = [torch.cat(pair) for pair in zip(first[:2], second[:2], strict=True)]
    for pair in zip(one, [*of_pictures, *first[2:]], strict=True):
        assert pair[1].numpy() == pytest.approx(pair[0].numpy(), rel=1e-4, abs=1e-4)
    assert all(torch.equal(*pair) for pair in zip(first[2:], second[2:], strict=True))


@long
def test_sixteen_bits_are_the_same_on_all_ranks(found: dict[str, Any]) -> None:
    """Sums of gradients in float32 and draws of the rounding, sharded or not."""
    (first, sharded), (other, other_sharded) = (found[name]["in 16 bits"] for name in ("2-0", "2-1"))
    assert all(value.dtype == torch.bfloat16 for value in other.values())
    for name, value in first.items():
        assert torch.equal(value, sharded[name]), name
        assert name not in other or (torch.equal(value, other[name]) and torch.equal(value, other_sharded[name])), name


@long
def test_ranks_validate_in_turns(found: dict[str, Any]) -> None:
    """All of them have the row of one process, byte by byte but for the times, and its confusion."""
    (row, confusion), *others = (found[name]["validated"] for name in ("1-0", "2-0", "2-1"))
    times = {"images_per_sec", "seconds"}
    for other, other_confusion in others:
        assert {name: text for name, text in other.items() if name not in times} == {
            name: text for name, text in row.items() if name not in times
        }
        assert np.array_equal(other_confusion, confusion)
    assert confusion.sum() == 21


@long
def test_ranks_agree(found: dict[str, Any]) -> None:
    for name in ("2-0", "2-1"):
        rank = found[name]
        assert rank["gathered"] == ["rank 0", "rank 1"]
        assert rank["largest"] == 5
        assert rank["fault"] == (False, 0, False), "a gradient that is not finite on one of them"
        assert rank["stop"] == (True, 143, True), "one of them is to stop: after the update"
        assert rank["neither"] == (True, 0, True)
