"""ranks/split_names.py: blocks by our names and those of other trainers, and a division into parts of about the same time."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from bulkinfer.errors import UsageError
from bulkinfer.train.network.networks import NetworkOptions, build
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.ranks import split_names
from bulkinfer.train.ranks.split_names import best_borders, block_named, blocks_of, find_splits, seconds_of_blocks
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

EXAMPLE = torch.zeros(2, 3, 16, 16)


def network_of(name: str, **options: int) -> nn.Module:
    """Without values: names are all that matters."""
    with torch.device("meta"):
        return build(NetworkOptions(name, 10, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "given", "block"),
    [
        ("resnet50", "layer2.1", "layer2.1"),
        ("resnet50", "layer2", "layer2.0"),
        ("resnet50", "layer2/1/conv2", "layer2.1"),  # inside a block: its beginning
        ("resnet50", "layer3/3", "layer3.3"),
        ("resnet50", "b1/2/relu", "layer1.2"),  # TensorFlow 1
        ("resnet50", "b3/0/relu", "layer3.0"),
        ("efficientnet_b0", "block2a/SE", "blocks.1.0"),
        ("efficientnet_b0", "block2b", "blocks.1.1"),
        ("efficientnet_b0", "block6a", "blocks.5.0"),
        ("efficientnet_b0", "_blocks/1/_project_conv", "blocks.1.0"),  # efficientnet_pytorch numbers all of them
        ("efficientnet_b0", "_blocks/4/_bn1", "blocks.2.1"),
        ("efficientnet_b0", "_blocks/10", "blocks.4.2"),
        ("resnet50", "b9/0/relu", ""),
        ("resnet50", "layer22", ""),
        ("resnet50", "fc", ""),
        ("efficientnet_b0", "_blocks/16", ""),
    ],
)
def test_names(name: str, given: str, block: str) -> None:
    assert block_named(given, blocks_of(network_of(name))) == block


def test_names_of_a_network_with_other_input_channels() -> None:
    blocks = blocks_of(network_of("cifar_resnet8", input_channels=4))
    assert [block_named(given, blocks) for given in ("layer2.0", "b2/0/relu", "network.layer2.0")] == ["network.layer2.0"] * 3


def test_networks_without_residual_connections_have_layers() -> None:
    assert blocks_of(nn.Sequential(nn.Linear(1, 1), nn.ReLU())) == ["0", "1"]
    assert "features.3" in blocks_of(network_of("timm:vgg11"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pipeline_splits": ("layer9",)}, "--pipeline_splits: no block is called 'layer9': give --pipeline_splits layer2.0, "),
        ({"shards": 2}, "--shards 2 needs 1 --pipeline_splits, and there are 0: give --pipeline_splits layer2.0, which takes "),
        ({"shards": 2, "pipeline_splits": ("layer2.0", "layer3.0")}, "--shards 2 needs 1 --pipeline_splits, and there are 2: "),
        (
            {"pipeline_splits": ("layer3.0", "layer2.0")},
            "--pipeline_splits must be in the order of the network, each block once",
        ),
        ({"pipeline_splits": ("layer2.0", "layer2.0")}, "--pipeline_splits must be in the order of the network, each block "),
        ({"pipeline_splits": ("layer2.0", "layer2.0.conv2")}, "--pipeline_splits must be in the order of the network, each "),
        ({"shards": 9}, "the network has 3 blocks, too few for 9 stages: give --shards 3 or fewer"),
    ],
)
def test_splits_that_do_not_fit(options: dict[str, object], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_names, "seconds_of_blocks", lambda *_: [2.0, 1.0, 1.0])
    with pytest.raises(UsageError) as error:
        find_splits(network_of("cifar_resnet8"), TrainConfig(**options), EXAMPLE)  # type: ignore[arg-type]
    assert reason in str(error.value)


def test_what_the_plan_says() -> None:
    config = TrainConfig(pipeline_splits=("b2/0/relu", "layer3.0"))
    splits = find_splits(network_of("cifar_resnet8"), config, EXAMPLE)
    assert [str(split) for split in splits] == ["layer2.0 (given as b2/0/relu)", "layer3.0"]
    assert find_splits(network_of("cifar_resnet8"), TrainConfig(pipeline_splits=("none",)), EXAMPLE) == []


def test_blocks_are_timed() -> None:
    network = build(NetworkOptions("cifar_resnet8", 10))
    seconds = seconds_of_blocks(network, blocks_of(network), EXAMPLE)
    assert len(seconds) == 3
    assert min(seconds) > 0


def test_work_that_a_gpu_has_not_done_counts_for_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call returns at once; the clock moves on where somebody waits for the GPU."""
    clock, waiting = [0.0], [0.0]

    class Layer(nn.Module):
        def __init__(self, seconds: float) -> None:
            super().__init__()
            self.seconds = seconds

        def forward(self, inputs: object) -> object:
            waiting[0] += self.seconds
            return inputs

    def synchronize(device: torch.device) -> None:
        assert device == torch.device("cuda:1")
        clock[0], waiting[0] = clock[0] + waiting[0], 0.0

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(split_names, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    network = nn.Sequential(Layer(1.0), Layer(2.0), Layer(4.0), Layer(8.0))
    on_gpu = SimpleNamespace(device=torch.device("cuda:1"))
    assert seconds_of_blocks(network, ["1", "2"], on_gpu) == [1.0 + 2.0, 4.0 + 8.0]  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 8))
def test_the_slowest_part_is_as_fast_as_can_be(costs: list[int], parts: int) -> None:
    """Against all divisions."""
    parts = min(parts, len(costs))
    borders = best_borders(costs, parts)

    def slowest(borders: tuple[int, ...]) -> int:
        ends = [0, *borders, len(costs)]
        return max(sum(costs[one:other]) for one, other in itertools.pairwise(ends))

    assert list(borders) == sorted(set(borders))
    assert all(0 < border < len(costs) for border in borders)
    assert slowest(tuple(borders)) == min(slowest(each) for each in itertools.combinations(range(1, len(costs)), parts - 1))
