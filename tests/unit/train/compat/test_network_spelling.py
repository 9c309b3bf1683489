"""train/compat/network_spelling.py: names of networks as other trainers spell them."""

from __future__ import annotations

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.train.compat.network_spelling import spelled
from bulkinfer.train.network.network_names import TRAINABLE, find_trainable


@pytest.mark.parametrize(
    ("model", "size", "is_small", "name"),
    [
        ("resnet18", "", False, "resnet18"),
        ("efficientnet-b0", "", False, "efficientnet-b0"),
        ("cifar_resnet8", "", True, "cifar_resnet8"),
        ("x50", "", False, "resnext50"),
        ("B0", "", False, "efficientnet_b0"),
        ("50", "", False, "resnet50"),
        ("", "x50", False, "resnext50"),
        ("", "20", True, "cifar_resnet20"),
        ("", "20", False, "cifar_resnet20"),
        ("", "50", True, "resnet50"),
        ("", "14", True, "cifar_resnet14"),
        ("", "14", False, "resnet14"),
        ("resnet", "", False, "resnet18"),
        ("resnet", "", True, "cifar_resnet20"),
        ("resnet", "50", False, "resnet50"),
        ("ResNet", "29", True, "cifar_resnet29_bottleneck"),
        ("resnext", "101", False, "resnext101"),
        ("resnext", "29", True, "cifar_resnext29"),
        ("resnext", "", False, "resnext14"),
        ("efficientnet", "B4", False, "efficientnet_b4"),
        ("efficientnet", "4", False, "efficientnet_b4"),
        ("efficientnet", "cifar", True, "efficientnet_cifar"),
        ("efficientnet", "", False, "efficientnet_b0"),
        ("cifar_resnet", "56", True, "cifar_resnet56"),
        ("mobilenet", "", False, "mobilenet_v2"),
    ],
)
def test_spellings_of_other_trainers(model: str, size: str, is_small: bool, name: str) -> None:
    found = spelled(model, size, is_small)
    assert found == name
    assert find_trainable(found) in TRAINABLE


def test_an_unknown_name_comes_back_to_be_looked_up() -> None:
    assert spelled("resmet50") == "resmet50"


def test_a_size_that_the_family_has_not_is_answered_with_those_it_has() -> None:
    with pytest.raises(UsageError, match="--model_size 51: resnext comes as cifar_resnext11, cifar_resnext29, resnext14, "):
        spelled("resnext", "51")
    with pytest.raises(UsageError, match="--model_size b9: efficientnet comes as efficientnet_b0"):
        spelled(size="b9")


def test_a_size_beside_a_whole_name_is_refused() -> None:
    with pytest.raises(UsageError, match="--model_size 18: --model resnet50 has its size in its name"):
        spelled("resnet50", "18")
