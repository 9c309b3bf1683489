"""train/plan_text.py: what the plan says of norm, rate and optimiser, and when batch norm's averages come too late."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.train.data.opening import with_data_found
from bulkinfer.train.defaults import with_defaults
from bulkinfer.train.plan_text import slow_averages
from bulkinfer.train.ranks.group import ALONE
from bulkinfer.train.ranks.world import World
from bulkinfer.train.setup import set_up
from torch import nn

from tests.training import assert_same_weights, config_of, trained


def plan(home: Path, **options: Any) -> dict[str, str]:
    return set_up(with_defaults(with_data_found(config_of(home, **options))), World(), ALONE)[1]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (
            {"model": ""},
            {
                "network": "cifar_resnet20 (default), 269,722 parameters, input 8x8",
                "norm": "batch (default), momentum 0.1, epsilon 1e-05",
                "rate": "cosine, 0.1 (default) at its peak, first 0.1, last 0.001704",
                "optimiser": "nesterov (default), momentum 0.9, L2 0.0005 (default)",
            },
        ),
        (
            {"norm": "group", "optimizer": "adamw", "weight_decay": 0.1},
            {
                "network": "cifar_resnet8, 75,290 parameters, input 8x8",
                "norm": "group, 16 groups, epsilon 1e-05",
                "rate": "cosine, 0.003 (default) at its peak, first 0.003, last 5.111e-05",
                "optimiser": "adamw, weight decay 0.1",
            },
        ),
        (
            {"norm": "group", "norm_channels_per_group": 4, "norm_eps": 0.5, "optimizer": "lars", "lr": 2.0, "l2": 0.0005},
            {
                "norm": "group, 4 channels per group, epsilon 0.5",
                "rate": "cosine, 2 at its peak, first 2, last 0.03407",
                "optimiser": "lars, momentum 0.9, L2 0.0005",
            },
        ),
        (
            {"norm": "none", "base_learning_rate": "-5"},
            {"norm": "none", "rate": "cosine, 0.25 at its peak, first 0.25, last 0.004259"},
        ),
        ({"precision": "16.16"}, {"precision": "16.16 (bfloat16) on cpu, stochastic rounding (default)"}),
        (
            {"micro_batch_size": 3, "gradient_accumulation": 4, "pipeline_splits": ("b2/0/relu",), "pipeline_schedule": "1f1b"},
            {
                "stages": "2, by 1f1b; they begin with the input, layer2.0 (given as b2/0/relu)",
                "ranks": "replicas 1 x stages 2 = 2 processes, started here, or by torchrun --nproc_per_node 2 --no_python in "
                "front of the command",
                "length": "12 updates, 3 an epoch, without 4 pictures that make no whole micro batches",
            },
        ),
        (
            {"precision": "16.16", "stochastic_rounding": "off"},
            {"precision": "16.16 (bfloat16) on cpu, rounding to the nearest"},
        ),
        ({"model": "timm:resnet10t", "image_size": 32}, {"norm": "those that timm gives the network"}),
    ],
)  # fmt: skip
def test_choices_and_defaults(options: dict[str, Any], lines: dict[str, str], tmp_path: Path) -> None:
    found = plan(tmp_path, **options)
    assert {name: found[name] for name in lines} == lines


def test_averages_that_come_too_late(tmp_path: Path) -> None:
    """12 updates leave 0.9^12 of what batch norm's averages were, 40 leave 1.5 %."""
    assert plan(tmp_path)["warning"].startswith("batch norm's averages still keep 28 % of their first values after 12 batches")
    assert plan(tmp_path, norm_momentum=0.3).keys() == plan(tmp_path, steps=40).keys() == plan(tmp_path, norm="group").keys()
    assert "warning" not in plan(tmp_path, steps=40)
    assert "warning" not in plan(tmp_path, steps=6, gradient_accumulation=5, micro_batch_size=8), "30 batches"
    assert "warning" not in plan(tmp_path, train_only="fc"), "no average moves"
    assert plan(tmp_path, train_only="layer3|fc")["warning"]


def test_a_batch_of_more_pictures_than_there_are(tmp_path: Path) -> None:
    """An update takes all 40, and an epoch is one update."""
    found = plan(tmp_path, micro_batch_size=64, steps=60)
    assert found["warning"].startswith("the global batch of 64 is larger than the 40 training pictures: an update takes all")
    assert found["length"] == "60 updates, 1 an epoch"
    run = trained(tmp_path, micro_batch_size=64, steps=2, logs_per_epoch=1.0, norm="group", norm_groups=4)
    as_many = trained(tmp_path, micro_batch_size=40, steps=2, logs_per_epoch=1.0, norm="group", norm_groups=4)
    assert_same_weights(run, as_many)


@pytest.mark.parametrize("count", [1, 12, 28, 180, 298])
def test_the_momentum_that_is_advised_is_enough(count: int) -> None:
    sentence = slow_averages(nn.BatchNorm2d(1, momentum=0.01), count)
    advised = float(sentence.rpartition(" ")[2])
    assert not slow_averages(nn.BatchNorm2d(1, momentum=advised), count)
    assert (1 - advised) ** count <= 0.05
    assert not slow_averages(nn.BatchNorm2d(1, momentum=0.01), math.ceil(math.log(0.05) / math.log(0.99)))
    assert slow_averages(nn.BatchNorm2d(1, momentum=0.01), count, is_of_timm=True).endswith("train longer")
