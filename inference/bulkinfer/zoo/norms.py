"""The normalisation layers of a network that is built for training: batch, group or none. Networks get a factory.

Group norm where the groups do not divide the channels: the number of groups is the largest that divides the channels and is
not above the one asked for; channels per group ask for channels // channels_per_group groups. So 24 channels in 16 groups
become 12 groups of 2, and 24 channels in groups of 16 become one group of 24.

`none` adds a learnt value per channel, as the bias of a convolution does: runtimes fold it into the convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

KINDS = ("batch", "group", "none")


def fitting_groups(channels: int, asked: int) -> int:
    """The largest number of groups that divides the channels and is at most `asked`; at least 1."""
    return next(groups for groups in range(max(1, min(asked, channels)), 0, -1) if channels % groups == 0)


@dataclass(frozen=True, slots=True)
class Norm:
    """Kind and settings of the norm. `momentum` is the share of the new batch in the running mean and variance."""

    kind: str
    groups: int
    channels_per_group: int
    eps: float
    momentum: float

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self.kind

    def groups_of(self, channels: int) -> int:
        """The number of groups for so many channels."""
        if self.channels_per_group:
            return fitting_groups(channels, channels // self.channels_per_group)
        return fitting_groups(channels, self.groups)


class ChannelBias(nn.Module):
    """A learnt value per channel, 0 at first, added to N x C x H x W; then the activation, if one is given."""

    def __init__(self, channels: int, act: nn.Module | None = None) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))
        self.act = act

    def forward(self, inputs_NCHW: torch.Tensor) -> torch.Tensor:
        biased = inputs_NCHW + self.bias.reshape(-1, 1, 1)
        return biased if self.act is None else self.act(biased)


def norm_layer(norm: Norm) -> Callable[..., nn.Module]:
    """A function that makes the norm for a number of channels. It is a plain function, since timm checks its type."""

    def layer(channels: int, device: None = None, dtype: None = None) -> nn.Module:  # noqa: ARG001 (timm gives both, unset)
        if norm.kind == "batch":
            return nn.BatchNorm2d(channels, eps=norm.eps, momentum=norm.momentum)
        if norm.kind == "group":
            return nn.GroupNorm(norm.groups_of(channels), channels, eps=norm.eps)
        return ChannelBias(channels)

    return layer


def norm_act_layer(norm: Norm, act_layer: type[nn.Module]) -> Callable[..., nn.Module]:
    """A function that makes the norm followed by the activation, as timm's EfficientNet takes it; tensors have timm's names."""
    from timm.layers import BatchNormAct2d, GroupNormAct  # type: ignore[attr-defined]

    def layer(
        channels: int,
        inplace: bool = True,
        apply_act: bool = True,
        device: None = None,  # noqa: ARG001 (timm gives both, unset)
        dtype: None = None,  # noqa: ARG001
    ) -> nn.Module:
        activation: dict[str, Any] = {"act_layer": act_layer, "inplace": inplace, "apply_act": apply_act}
        if norm.kind == "none":
            return ChannelBias(channels, act_layer(inplace=inplace) if apply_act else None)
        if norm.kind == "group":
            return GroupNormAct(channels, norm.groups_of(channels), eps=norm.eps, **activation)
        return BatchNormAct2d(channels, eps=norm.eps, momentum=norm.momentum, **activation)

    return layer
