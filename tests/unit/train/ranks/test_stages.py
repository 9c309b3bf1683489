"""ranks/stages.py: two stages, alone or in two replicas, make the updates of one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from bulkinfer.train.checkpoints.checkpoint import flatten_optimiser
from bulkinfer.train.network.networks import NetworkOptions, build
from bulkinfer.train.ranks.group import Ranks
from bulkinfer.train.ranks.shared_norm import share_statistics
from bulkinfer.train.ranks.stages import Stage, divide
from bulkinfer.train.update.loss import Part
from bulkinfer.train.update.optimisers import OptimiserOptions
from bulkinfer.train.update.step import Precision, run_step, targets_of
from bulkinfer.train.update.updating import Updater
from torch import nn

from tests.forms import long
from tests.made_once import made_once
from tests.rank_processes import run_ranks

MICRO = 4  # pictures of a micro batch of all replicas together
UPDATES = (4, 4, 2, 4, 4, 2)  # micro batches of each: the last one of an epoch is short
# norm, schedule, precision, recomputed modules, optimiser: each of their values at least once
CASES = (
    ("group", "gpipe", "32.32", (), "lars"),
    ("batch", "1f1b", "32.32", ("blocks",), "nesterov"),
    ("batch", "sequential", "16.32", (), "adamw"),
    ("batch", "gpipe", "16.16", (), "nesterov"),
)
RECOMPUTED, PLAIN = CASES[1], CASES[3]  # which keep the same but for what is recomputed
OF_REPLICAS = RECOMPUTED  # messages between replicas, for norms and gradients, among those between stages
SEEDS = ((1, 1), (1, 1), (2, 1), (1, 2))  # of torch's random numbers, for each of two stages
RATES = {"lars": 1.0, "nesterov": 0.05, "adamw": 0.001}


def network_of(norm: str) -> nn.Module:
    torch.manual_seed(0)
    network = build(NetworkOptions("cifar_resnet8", 10, norm=norm, norm_groups=4 if norm == "group" else 0))
    return network.to(memory_format=torch.channels_last)


def micro_batches(ranks: Ranks, count: int, random: torch.Generator, precision: Precision) -> Iterator[Part]:
    replica, size = ranks.world.replica, MICRO // ranks.world.replicas
    for _ in range(count):
        labels = torch.randint(0, 10, (MICRO,), generator=random)
        part = (torch.randn(MICRO, 3, 8, 8, generator=random).to(precision.input), targets_of(labels, 10, 0.1), labels)
        yield tuple(tensor[replica * size : (replica + 1) * size] for tensor in part)  # type: ignore[misc]


def train(ranks: Ranks, norm: str, schedule: str, bits: str, recompute: tuple[str, ...], name: str) -> dict[str, Any]:
    """What the updates leave, on this rank.

    "tensors": on the first rank weights, averages and the optimiser's state, on the others without the latter. "kept": how many
    numbers an update keeps for its backward passes, but for parameters. "faults": what came of two further updates, of batch
    norm in one replica of two stages.
    """
    precision, random = Precision(bits, "cpu"), torch.Generator().manual_seed(1)
    network = network_of(norm).to(precision.weights)
    if norm == "batch" and ranks.world.replicas > 1:
        share_statistics(network, ranks.make_group(ranks.world.replicas))
    stage = stage_of(network, ranks, schedule, recompute, precision)
    options = OptimiserOptions(name, l2=1e-4, weight_decay=0.01 if name == "adamw" else 0.0)
    updater = Updater(
        dict(network.named_parameters()), options, rounding_seed=0, own=None if stage is None else stage.parameters
    )
    own, kept = {tensor.data_ptr() for tensor in network.parameters()}, list[int]()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(0 if tensor.data_ptr() in own else tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        for step, count in enumerate(UPDATES):
            outcome = run_step(
                network, updater, micro_batches(ranks, count, random, precision), window_size=MICRO * count, step=step,
                rate=RATES[name], scale=4.0, precision=precision, ranks=ranks, stage=stage,
            )  # fmt: skip
            assert outcome.finite
    sums = torch.stack([outcome.loss, outcome.correct.float(), torch.tensor(float(outcome.count))])
    ranks.add([sums])
    state = [flatten_optimiser(updater.optimiser)]
    if stage is not None:
        stage.make_whole()
        state = stage.gather(state[0])
    tensors = {**network.state_dict(), **{key: value for tensors, _ in state for key, value in tensors.items()}}
    found = {"tensors": {"sums": sums, **{key: value.clone() for key, value in tensors.items()}}, "kept": sum(kept)}
    if stage is not None and norm == "batch" and ranks.world.replicas == 1:
        found["faults"] = faults(ranks, network, stage, updater, precision)
    return found


def stage_of(network: nn.Module, ranks: Ranks, schedule: str, recompute: tuple[str, ...], precision: Precision) -> Stage | None:
    if ranks.world.stages == 1:
        return None
    example = torch.zeros(MICRO // ranks.world.replicas, 3, 8, 8, dtype=precision.input)
    example = example.contiguous(memory_format=torch.channels_last)
    return divide(network, ["layer2.0"], example, ranks, precision.autocast, schedule=schedule, recompute=recompute)


def faults(ranks: Ranks, network: nn.Module, stage: Stage, updater: Updater, precision: Precision) -> list[Any]:
    """What all ranks know after an update that is not finite in the last stage, and one in which the first is to stop."""
    found = []
    for fault, code in ((True, 0), (False, 143)):
        before = [buffer.clone() for buffer in stage.buffers]
        parts = [(images, targets * (torch.inf if fault else 1), labels) for images, targets, labels in
                 micro_batches(ranks, 2, torch.Generator().manual_seed(1), precision)]  # fmt: skip
        outcome = run_step(
            network, updater, parts, window_size=8, step=len(UPDATES), rate=0.001, scale=1.0, precision=precision, ranks=ranks,
            stop=lambda code=code: code if ranks.world.is_first else 0, buffers=stage.buffers, stage=stage,
        )  # fmt: skip
        moved = any(not torch.equal(*pair) for pair in zip(before, stage.buffers, strict=True))
        found.append((outcome.finite, outcome.stop, moved))
    freed = sum(not tensor.untyped_storage().nbytes() for tensor in network.parameters())
    return [*found, freed]


def drops(ranks: Ranks) -> list[list[torch.Tensor]]:
    """Logits of four equal micro batches, by the seeds in SEEDS; none but in the last stage."""
    network = build(NetworkOptions("cifar_resnet8", 10, norm="none", dropout=0.3, block_survival=0.5))
    network.load_state_dict(network_of("none").state_dict())
    example = torch.randn(MICRO, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    stage = divide(network, ["layer3.0"], example, ranks, nullcontext, schedule="1f1b")
    found = []
    for seeds in SEEDS:
        logits: list[torch.Tensor] = []

        def loss(logits_NK: torch.Tensor, _answers: Any, logits: list[torch.Tensor] = logits) -> torch.Tensor:
            logits.append(logits_NK.detach().clone())
            return logits_NK.sum()

        torch.manual_seed(seeds[ranks.world.stage])
        stage.run([(example, example, example)] * 4, loss)  # type: ignore[arg-type]
        found.append(logits)
    return found


def everything(ranks: Ranks, folder: Path) -> None:
    cases = [OF_REPLICAS] if ranks.world.replicas > 1 else CASES
    found: dict[Any, Any] = {case: train(ranks, *case) for case in cases}
    if (ranks.world.stages, ranks.world.replicas) == (2, 1):
        found["drops"] = drops(ranks)
    torch.save(found, folder / f"{ranks.world.size}-{ranks.world.rank}")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By "ranks-rank" what each of them found, by case."""
    worlds = [(1, 1), (2, 2), (4, 2)]
    folder = made_once(tmp_path_factory, "stages", lambda folder: run_ranks(everything, worlds, folder))
    return {path.name: torch.load(path, weights_only=False) for path in folder.iterdir()}


@long
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:3])))
def test_two_stages_are_one_process_bit_for_bit(case: tuple[Any, ...], found: dict[str, Any]) -> None:
    """Weights, averages of batch norm, the optimiser's state, and the sums of the last update."""
    one, two, other = (found[name][case]["tensors"] for name in ("1-0", "2-0", "2-1"))
    assert one.keys() == two.keys()
    assert [name for name, value in one.items() if not torch.equal(value, two[name])] == []
    assert all(torch.equal(other[name], value) for name, value in two.items() if name in other), "the network is whole there"


@long
def test_two_replicas_of_two_stages_are_one_process(found: dict[str, Any]) -> None:
    """To 1e-5, with batch norm whose statistics are those of both replicas."""
    one, four = (found[name][OF_REPLICAS]["tensors"] for name in ("1-0", "4-0"))
    assert one.keys() == four.keys()
    for name, value in one.items():
        assert four[name].numpy() == pytest.approx(value.numpy(), abs=1e-5, rel=1e-5), name


@long
def test_recomputation_keeps_less(found: dict[str, Any]) -> None:
    for rank in ("2-0", "2-1"):
        assert found[rank][RECOMPUTED]["kept"] < 0.5 * found[rank][PLAIN]["kept"]


@long
@pytest.mark.parametrize("case", CASES[1:], ids=lambda case: "-".join(map(str, case[:3])))
def test_stages_agree(case: tuple[Any, ...], found: dict[str, Any]) -> None:
    """On gradients that are not finite, with which the averages of batch norm do not move either, and on the end of a run."""
    for name in ("2-0", "2-1"):
        fault, stop, freed = found[name][case]["faults"]
        assert fault == (False, 0, False)
        assert stop == (True, 143, True)
        assert freed > 0


@long
def test_each_stage_drops_by_its_seed(found: dict[str, Any]) -> None:
    """Blocks, and values before the classifier: others in each micro batch, the same ones again with the same seed."""
    assert found["2-0"]["drops"] == [[], [], [], []]
    first, again, *others = found["2-1"]["drops"]
    assert [len(logits) for logits in (first, again, *others)] == [4, 4, 4, 4]
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert not any(torch.equal(one, other) for one, other in pairwise(first))
    for logits in others:
        assert not all(torch.equal(one, other) for one, other in zip(first, logits, strict=True))
