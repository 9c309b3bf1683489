"""recompute.py: the same gradients and the same averages of batch norm as without."""

from __future__ import annotations

import pytest
import torch
from bulkinfer.errors import UsageError
from bulkinfer.train.network.freezing import freeze
from bulkinfer.train.network.networks import NetworkOptions, build
from bulkinfer.train.network.recompute import recompute
from torch import nn


def gradients(
    patterns: tuple[str, ...], *, train_only: str = "", **options: float
) -> tuple[list[str], dict[str, torch.Tensor]]:
    """What two forward and backward passes leave: gradients and buffers."""
    torch.manual_seed(0)
    network = build(NetworkOptions("cifar_resnet8", 10, **options))  # type: ignore[arg-type]
    freeze(network, train_only=train_only)
    wrapped = recompute(network, patterns)
    torch.manual_seed(1)
    images = torch.randn(4, 3, 8, 8)
    for _ in range(2):
        network(images).square().sum().backward()
    found = {name: parameter.grad for name, parameter in network.named_parameters() if parameter.grad is not None}
    return wrapped, {**found, **dict(network.named_buffers())}


def counts(found: dict[str, torch.Tensor]) -> dict[str, int]:
    """How many batches each batch norm has counted."""
    return {name: int(value) for name, value in found.items() if name.endswith("num_batches_tracked")}


@pytest.mark.parametrize("options", [{}, {"dropout": 0.3, "block_survival": 0.7}])
@pytest.mark.parametrize("patterns", [("blocks",), ("layer1", r"layer3\.0"), (r"layer\d",), (r"layer2\..*", "layer2")])
def test_nothing_changes_but_memory(patterns: tuple[str, ...], options: dict[str, float]) -> None:
    (_, plain), (wrapped, found) = gradients((), **options), gradients(patterns, **options)
    assert wrapped
    assert plain.keys() == found.keys(), "names stay as they are"
    assert set(counts(found).values()) == {2}
    assert all(torch.equal(plain[name], value) for name, value in found.items())


def test_frozen_norms_in_recomputed_blocks_keep_their_averages() -> None:
    """All norms are frozen, but for those of the last block, and the convolutions around them are trained."""
    trained = r"conv|fc|layer3.*bn"
    (_, plain), (_, found) = gradients((), train_only=trained), gradients(("blocks",), train_only=trained)
    assert {name: count for name, count in counts(found).items() if count != 2 * name.startswith("layer3.")} == {}
    assert plain.keys() == found.keys()
    assert [name for name, value in plain.items() if not torch.equal(value, found[name])] == []


def test_the_passes_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    passes: list[str] = []
    for name, layer in network.named_children():
        layer.register_forward_hook(lambda *_, name=name: passes.append(name))
    assert recompute(network, ("0",)) == ["0"]
    network(torch.ones(1, 2)).sum().backward()
    assert passes.count("1") == 1
    network.eval()
    with torch.no_grad():
        network(torch.ones(1, 2))


@pytest.mark.parametrize(
    ("pattern", "reason"), [("layer9", "matches no module: the outermost are"), ("(", "not a regular expression")]
)
def test_patterns_that_are_none(pattern: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        recompute(build(NetworkOptions("cifar_resnet8", 10)), (pattern,))
