"""ranks/stages.py: two stages, alone or in two replicas, make the updates of one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
from tests.rank_processes import run_ranks

MICRO = 4  # pictures of a micro batch of all replicas together
UPDATES = (4, 4, 2, 4, 4, 2, 4, 4, 4, 4)  # micro batches of each: the last one of an epoch is short
# norm, schedule, precision, recomputed modules, optimiser
CASES = (
    ("group", "gpipe", "32.32", (), "lars"),
    ("batch", "1f1b", "32.32", (), "nesterov"),
    ("batch", "gpipe", "32.32", ("blocks",), "nesterov"),
    ("batch", "sequential", "16.32", (), "adamw"),
    ("batch", "1f1b", "16.16", (), "nesterov"),
)
OF_REPLICAS = CASES[:3]
RATES = {"lars": 1.0, "nesterov": 0.05, "adamw": 0.001}


def network_of(norm: str, name: str = "cifar_resnet8") -> nn.Module:
    torch.manual_seed(0)
    network = build(NetworkOptions(name, 10, norm=norm, norm_groups=4 if norm == "group" else 0))
    return network.to(memory_format=torch.channels_last)


def micro_batches(ranks: Ranks, count: int, random: torch.Generator, precision: Precision) -> Iterator[Part]:
    replica, size = ranks.world.replica, MICRO // ranks.world.replicas
    for _ in range(count):
        labels = torch.randint(0, 10, (MICRO,), generator=random)
        part = (torch.randn(MICRO, 3, 8, 8, generator=random).to(precision.input), targets_of(labels, 10, 0.1), labels)
        yield tuple(tensor[replica * size : (replica + 1) * size] for tensor in part)  # type: ignore[misc]


def train(ranks: Ranks, norm: str, schedule: str, bits: str, recompute: tuple[str, ...], name: str) -> dict[str, Any]:
    """Weights, averages and the optimiser's state after the updates, on the first rank."""
    precision, random = Precision(bits, "cpu"), torch.Generator().manual_seed(1)
    network = network_of(norm).to(precision.weights)
    if norm == "batch" and ranks.world.replicas > 1:
        share_statistics(network, ranks.make_group(ranks.world.replicas))
    stage = stage_of(network, ranks, schedule, recompute, precision)
    options = OptimiserOptions(name, l2=1e-4, weight_decay=0.01 if name == "adamw" else 0.0)
    updater = Updater(
        dict(network.named_parameters()), options, rounding_seed=0, own=None if stage is None else stage.parameters
    )
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
    return {"sums": sums, **network.state_dict(), **{key: value for tensors, _ in state for key, value in tensors.items()}}


def stage_of(network: nn.Module, ranks: Ranks, schedule: str, recompute: tuple[str, ...], precision: Precision) -> Stage | None:
    if ranks.world.stages == 1:
        return None
    example = torch.zeros(MICRO // ranks.world.replicas, 3, 8, 8, dtype=precision.input)
    example = example.contiguous(memory_format=torch.channels_last)
    return divide(network, ["layer2.0"], example, ranks, precision.autocast, schedule=schedule, recompute=recompute)


def numbers_kept(ranks: Ranks, recompute: tuple[str, ...]) -> int:
    """How many numbers an update keeps for its backward passes, but for parameters."""
    network = network_of("batch", "cifar_resnet14")
    stage = stage_of(network, ranks, "1f1b", recompute, Precision("32.32", "cpu"))
    own, kept = {tensor.data_ptr() for tensor in network.parameters()}, list[int]()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(0 if tensor.data_ptr() in own else tensor.numel())
        return tensor

    updater = Updater(dict(network.named_parameters()), OptimiserOptions("sgd"), own=stage.parameters if stage else None)
    parts = micro_batches(ranks, 2, torch.Generator().manual_seed(1), Precision("32.32", "cpu"))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run_step(network, updater, parts, window_size=8, step=0, rate=0.1, scale=1.0, precision=Precision("32.32", "cpu"),
                 ranks=ranks, stage=stage)  # fmt: skip
    return sum(kept)


def faults(ranks: Ranks) -> list[Any]:
    """What all ranks know after an update that is not finite in the last stage, and one in which the first is to stop."""
    network, precision = network_of("batch"), Precision("32.32", "cpu")
    stage = stage_of(network, ranks, "gpipe", (), precision)
    assert stage is not None
    updater = Updater(dict(network.named_parameters()), OptimiserOptions("sgd"), own=stage.parameters)
    found = []
    for fault, code in ((True, 0), (False, 143)):
        before = [buffer.clone() for buffer in stage.buffers]
        parts = [(images, targets * (torch.inf if fault else 1), labels) for images, targets, labels in
                 micro_batches(ranks, 2, torch.Generator().manual_seed(1), precision)]  # fmt: skip
        outcome = run_step(
            network, updater, parts, window_size=8, step=0, rate=0.1, scale=1.0, precision=precision, ranks=ranks,
            stop=lambda code=code: code if ranks.world.is_first else 0, buffers=stage.buffers, stage=stage,
        )  # fmt: skip
        moved = any(not torch.equal(*pair) for pair in zip(before, stage.buffers, strict=True))
        found.append((outcome.finite, outcome.stop, moved))
    freed = sum(not tensor.untyped_storage().nbytes() for tensor in network.parameters())
    return [*found, freed]


def everything(ranks: Ranks, folder: Path) -> None:
    with single_threaded():
        cases = OF_REPLICAS if ranks.world.replicas > 1 else CASES
        found: dict[str, Any] = {"trained": {case: train(ranks, *case) for case in cases}}
        if ranks.world.size == 2:
            found["kept"] = [numbers_kept(ranks, recompute) for recompute in ((), ("blocks",))]
            found["faults"] = faults(ranks)
    torch.save(found, folder / f"{ranks.world.size}-{ranks.world.rank}")


@contextmanager
def single_threaded() -> Iterator[None]:
    """As the ranks compute: sums have the same order then."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By "ranks-rank" what each of them found."""
    folder = tmp_path_factory.mktemp("stages")
    for size, stages in ((1, 1), (2, 2), (4, 2)):
        run_ranks(everything, size, folder, stages=stages)
    return {path.name: torch.load(path, weights_only=False) for path in folder.iterdir()}


@long
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:3])))
def test_two_stages_are_one_process_bit_for_bit(case: tuple[Any, ...], found: dict[str, Any]) -> None:
    """Weights, averages of batch norm, the optimiser's state, and the sums of the last update."""
    one, two = (found[name]["trained"][case] for name in ("1-0", "2-0"))
    assert one.keys() == two.keys()
    assert [name for name, value in one.items() if not torch.equal(value, two[name])] == []
    other = found["2-1"]["trained"][case]
    assert all(torch.equal(other[name], value) for name, value in two.items() if name in other), "the network is whole there"


@long
@pytest.mark.parametrize("case", OF_REPLICAS, ids=lambda case: "-".join(map(str, case[:3])))
def test_two_replicas_of_two_stages_are_one_process(case: tuple[Any, ...], found: dict[str, Any]) -> None:
    """To 1e-5, with group norm, and with batch norm whose statistics are those of both replicas."""
    one, four = (found[name]["trained"][case] for name in ("1-0", "4-0"))
    assert one.keys() == four.keys()
    for name, value in one.items():
        assert four[name].numpy() == pytest.approx(value.numpy(), abs=1e-5, rel=1e-5), name


@long
def test_recomputation_keeps_less(found: dict[str, Any]) -> None:
    kept, recomputed = found["2-0"]["kept"]
    assert recomputed < 0.4 * kept


@long
def test_stages_agree(found: dict[str, Any]) -> None:
    """On gradients that are not finite, with which the averages of batch norm do not move either, and on the end of a run."""
    for name in ("2-0", "2-1"):
        fault, stop, freed = found[name]["faults"]
        assert fault == (False, 0, False)
        assert stop == (True, 143, True)
        assert freed > 0
