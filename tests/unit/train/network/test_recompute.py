"""recompute.py: the same gradients and the same averages of batch norm as without."""

from __future__ import annotations

import pytest
import torch
from bulkinfer.errors import UsageError
from bulkinfer.train.network.networks import NetworkOptions, build
from bulkinfer.train.network.recompute import recompute
from torch import nn


def gradients(patterns: tuple[str, ...], **options: float) -> tuple[list[str], dict[str, torch.Tensor]]:
    """What two forward and backward passes leave: gradients and buffers."""
    torch.manual_seed(0)
    network = build(NetworkOptions("cifar_resnet8", 10, **options))  # type: ignore[arg-type]
    wrapped = recompute(network, patterns)
    torch.manual_seed(1)
    images = torch.randn(4, 3, 8, 8)
    for _ in range(2):
        network(images).square().sum().backward()
    found = {name: parameter.grad for name, parameter in network.named_parameters()}
    return wrapped, {**found, **dict(network.named_buffers())}  # type: ignore[dict-item]


@pytest.mark.parametrize("options", [{}, {"dropout": 0.3, "block_survival": 0.7}])
@pytest.mark.parametrize("patterns", [("blocks",), ("layer1", r"layer3\.0"), (r"layer\d",), (r"layer2\..*", "layer2")])
def test_nothing_changes_but_memory(patterns: tuple[str, ...], options: dict[str, float]) -> None:
    (_, plain), (wrapped, found) = gradients((), **options), gradients(patterns, **options)
    assert wrapped
    assert plain.keys() == found.keys(), "names stay as they are"
    assert {name: int(value) for name, value in found.items() if "num_batches" in name}
    assert all(torch.equal(plain[name], value) for name, value in found.items())


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
