"""ResNet and ResNeXt of any depth (v1.5: the stride is on the 3 x 3 convolution), from timm's class and blocks.

The shortcut around a block that changes the shape (`shortcut_type`): A takes every stride-th pixel and fills the new channels
with zeros, B projects with a 1 x 1 convolution, C projects in every block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from timm.models.resnet import BasicBlock, Bottleneck

SHORTCUT_TYPES = ("A", "B", "C")


class PaddedShortcut(nn.Module):
    """Shortcut A, without parameters: N x C x H x W to N x (C + more) x H/stride x W/stride."""

    def __init__(self, more_channels: int, stride: int) -> None:
        super().__init__()
        self.more_channels = more_channels
        self.stride = stride

    def forward(self, inputs_NCHW: torch.Tensor) -> torch.Tensor:
        picked = inputs_NCHW[:, :, :: self.stride, :: self.stride]
        return nn.functional.pad(picked, (0, 0, 0, 0, 0, self.more_channels))


@dataclass(frozen=True)
class BlockMaker:
    """timm calls this for each block instead of the block's class: the same block with the shortcut of `shortcut_type`."""

    block: type[BasicBlock | Bottleneck]
    shortcut_type: str

    @classmethod
    def of(cls, is_bottleneck: bool, shortcut_type: str) -> BlockMaker:
        """Blocks of two 3 x 3 convolutions, or bottlenecks of three."""
        from timm.models.resnet import BasicBlock, Bottleneck  # not on top: importing timm changes the environment

        return cls(Bottleneck if is_bottleneck else BasicBlock, shortcut_type)

    @property
    def expansion(self) -> int:
        """Output channels of a block, divided by its planes."""
        return self.block.expansion

    def __call__(
        self, in_channels: int, planes: int, stride: int = 1, downsample: nn.Module | None = None, **options: Any
    ) -> nn.Module:
        """Make the block. timm's `downsample`, a projection of type B, is not used: all three types are made here."""
        out_channels = planes * self.expansion
        changes = stride != 1 or in_channels != out_channels
        assert downsample is None or changes
        shortcut: nn.Module | None = None
        if self.shortcut_type == "A" and changes:
            shortcut = PaddedShortcut(out_channels - in_channels, stride)
        elif self.shortcut_type == "C" or (self.shortcut_type == "B" and changes):
            projection = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
            shortcut = nn.Sequential(projection, options["norm_layer"](out_channels))
        return self.block(in_channels, planes, stride, shortcut, **options)


def build(
    *,
    blocks: Sequence[int],
    is_bottleneck: bool,
    num_classes: int,
    input_channels: int,
    norm_layer: Callable[..., nn.Module],
    zero_gamma: bool,
    shortcut_type: str = "B",
    cardinality: int = 1,
    width: int = 64,
    dropout: float = 0.0,
    block_survival: float = 1.0,
) -> nn.Module:
    """A network with `blocks` blocks in its four stages; float32 N x input_channels x H x W -> N x num_classes logits.

    `width` is the number of channels per group in the first stage. `block_survival` is the share of pictures that pass through
    the last block in training, rising to 1 towards the first; the others take its shortcut alone.
    """
    from timm.models.resnet import ResNet

    network: nn.Module = ResNet(
        BlockMaker.of(is_bottleneck, shortcut_type),  # type: ignore[arg-type]
        tuple(blocks),
        num_classes=num_classes,
        in_chans=input_channels,
        cardinality=cardinality,
        base_width=width,
        norm_layer=norm_layer,
        drop_rate=dropout,
        drop_path_rate=1.0 - block_survival,
        zero_init_last=zero_gamma,
    )
    return network
