"""train/freezing.py: what --train_only leaves alone, batch norm's averages included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bulkinfer.errors import UsageError
from bulkinfer.train.freezing import moving_norms, train_only
from torch import nn

from tests.training import trained, weights


def test_only_what_the_pattern_matches_is_trained() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    assert list(train_only(model, "^1")) == ["1.weight", "1.bias"]
    assert [parameter.requires_grad for parameter in model.parameters()] == [False, False, True, True]
    assert len(train_only(model, "")) == 4
    with pytest.raises(UsageError, match="matches no parameter: they are called 0"):
        train_only(model, "classifier")
    with pytest.raises(UsageError, match="is not a regular expression"):
        train_only(model, "(")


def test_norms_of_which_nothing_is_trained_use_their_averages() -> None:
    def moving(pattern: str) -> list[str]:
        model = nn.ModuleDict({"none": nn.BatchNorm2d(2), "bias": nn.BatchNorm2d(2), "whole": nn.BatchNorm2d(2)})
        train_only(model, pattern)
        found = set(moving_norms(model))
        return [name for name, norm in model.named_children() if norm in found]

    assert moving("bias.bias|whole") == ["bias", "whole"]
    assert moving("") == ["none", "bias", "whole"]


@pytest.mark.parametrize("recompute", [(), ("blocks",)])
def test_a_run_leaves_frozen_averages_alone(recompute: tuple[str, ...], tmp_path: Path) -> None:
    """Also over a validation in mid-run, after which training goes on, and where the blocks are computed again."""
    first = weights(trained(tmp_path, steps=2))
    options = {"validation": "during", "validation_epochs": 0.4, "steps": 5, "recompute": recompute}
    one = weights(
        trained(tmp_path, init_checkpoint=str(next((tmp_path / "logs").glob("cifar*"))), train_only="layer3|fc", **options)
    )
    names = {name for name in first if not name.startswith("optimiser.")}
    changed = {name for name in names if not torch.equal(first[name], one[name])}
    assert changed == {name for name in names if name.startswith(("layer3", "fc"))}
