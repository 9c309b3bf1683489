"""freezing.py: what --train_only and --train_from leave alone, batch norm's averages included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bulkinfer.errors import UsageError
from bulkinfer.train.network.freezing import freeze, moving_norms
from bulkinfer.train.network.networks import NetworkOptions, build
from torch import nn

from tests.training import trained, weights


def test_only_what_the_pattern_matches_is_trained() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    assert list(freeze(model, train_only="^1")) == ["1.weight", "1.bias"]
    assert [parameter.requires_grad for parameter in model.parameters()] == [False, False, True, True]
    assert len(freeze(model, train_only="")) == 4
    with pytest.raises(UsageError, match="matches no parameter: they are called 0"):
        freeze(model, train_only="classifier")
    with pytest.raises(UsageError, match="is not a regular expression"):
        freeze(model, train_only="(")


def test_what_lies_before_a_layer_is_frozen() -> None:
    def trained_from(layer: str, **options: str) -> list[str]:
        return list(freeze(build(NetworkOptions("cifar_resnet8", 10)), train_from=layer, **options))

    everything = trained_from("")
    assert trained_from("layer3") == [name for name in everything if name.startswith(("layer3.", "fc."))]
    assert trained_from("layer2/0/conv2") == everything[everything.index("layer2.0.conv2.weight") :]
    assert trained_from("fc") == ["fc.weight", "fc.bias"]
    assert trained_from("layer2", train_only="weight$")[0] == "layer2.0.conv1.weight"
    with pytest.raises(
        UsageError, match=r"no layer has this name \(did you mean layer3\?\): give one of stem, .*, layer1, layer1\.0, "
    ):
        trained_from("layer4")
    with pytest.raises(
        UsageError, match="--train_from fc beside --train_only 'conv1' leaves nothing to train: name an earlier"
    ):
        trained_from("fc", train_only="conv1")


def test_norms_of_which_nothing_is_trained_use_their_averages() -> None:
    def moving(pattern: str) -> list[str]:
        model = nn.ModuleDict({"none": nn.BatchNorm2d(2), "bias": nn.BatchNorm2d(2), "whole": nn.BatchNorm2d(2)})
        freeze(model, train_only=pattern)
        found = set(moving_norms(model))
        return [name for name, norm in model.named_children() if norm in found]

    assert moving("bias.bias|whole") == ["bias", "whole"]
    assert moving("") == ["none", "bias", "whole"]


@pytest.mark.parametrize("recompute", [(), ("blocks",)])
def test_a_run_leaves_frozen_averages_alone(recompute: tuple[str, ...], tmp_path: Path) -> None:
    """Also over a validation in mid-run, after which training goes on, and where the blocks are computed again."""
    first = weights(trained(tmp_path, steps=2))
    options = {"validation": "during", "validation_epochs": 0.4, "steps": 5, "recompute": recompute}
    start = str(next((tmp_path / "logs").glob("cifar*")))
    one = weights(trained(tmp_path, init_checkpoint=start, train_only="layer3|fc", **options))
    other = weights(trained(tmp_path, init_checkpoint=start, train_from="layer3", **options))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    names = {name for name in first if not name.startswith("optimiser.")}
    changed = {name for name in names if not torch.equal(first[name], one[name])}
    assert changed == {name for name in names if name.startswith(("layer3", "fc"))}
