"""MobileNet v2 and v3, from torchvision's classes, which take any norm, also in v3 with its two activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


def build(
    *,
    architecture: str,
    num_classes: int,
    input_channels: int,
    norm_layer: Callable[..., nn.Module],
    zero_gamma: bool,
    dropout: float = 0.2,
) -> nn.Module:
    """The network with torchvision's initialisation; float32 N x input_channels x H x W -> N x num_classes logits."""
    from torchvision import models  # not on top: importing it changes the environment

    builder = getattr(models, architecture)
    network: Any = builder(weights=None, num_classes=num_classes, norm_layer=norm_layer, dropout=dropout)
    if input_channels != 3:
        network.features[0][0] = _stem(network.features[0][0], input_channels)
    if zero_gamma:
        _zero_gamma(network.features)
    built: nn.Module = network
    return built


def _stem(stem: nn.Conv2d, input_channels: int) -> nn.Conv2d:
    """torchvision's first convolution for another number of channels, initialised as torchvision does."""
    replaced = nn.Conv2d(input_channels, stem.out_channels, 3, stride=2, padding=1, bias=False)
    nn.init.kaiming_normal_(replaced.weight, mode="fan_out")
    return replaced


def _zero_gamma(features: Any) -> None:
    """The last norm of every block with a shortcut starts at 0."""
    for block in features:
        if getattr(block, "use_res_connect", False):
            last = block.conv[-1] if hasattr(block, "conv") else block.block[-1][1]
            nn.init.zeros_(last.weight)
