"""ResNet and ResNeXt for pictures of 32 x 32: three stages of timm's blocks behind a 3 x 3 convolution."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from bulkinfer.zoo.resnet import BlockMaker


class CifarResNet(nn.Module):
    """float32 N x C x H x W -> N x classes logits; the stages see the picture at full, half and quarter size."""

    def __init__(self, stem: nn.Module, stages: list[nn.Module], features: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.stem = stem
        self.layer1, self.layer2, self.layer3 = stages
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(features, num_classes)

    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:
        features_NCHW = self.layer3(self.layer2(self.layer1(self.stem(images_NCHW))))
        logits: torch.Tensor = self.fc(self.dropout(features_NCHW.mean((2, 3))))
        return logits


def build(
    *,
    blocks_per_stage: int,
    is_bottleneck: bool,
    planes: int,
    num_classes: int,
    input_channels: int,
    norm_layer: Callable[..., nn.Module],
    zero_gamma: bool,
    shortcut_type: str,
    cardinality: int = 1,
    width: int = 64,
    dropout: float = 0.0,
    block_survival: float = 1.0,
) -> nn.Module:
    """The network, initialised as He et al. do (normal by the convolutions' outputs).

    `planes` are the channels of the stem and the first stage, doubled in each next one; a bottleneck gives four times as many.
    Inside a bottleneck there are planes x cardinality x width / 64. `block_survival` as in bulkinfer.zoo.resnet.
    """
    from timm.layers import DropPath  # type: ignore[attr-defined]

    make = BlockMaker.of(is_bottleneck, shortcut_type)
    stem = nn.Sequential(nn.Conv2d(input_channels, planes, 3, padding=1, bias=False), norm_layer(planes), nn.ReLU(inplace=True))
    channels, stages, count = planes, [], 3 * blocks_per_stage
    for stage in range(3):
        stage_planes, blocks = planes * 2**stage, []
        for place in range(blocks_per_stage):
            stride = 2 if stage > 0 and place == 0 else 1
            drop = (1.0 - block_survival) * (stage * blocks_per_stage + place) / max(1, count - 1)
            block = make(
                channels, stage_planes, stride, norm_layer=norm_layer, cardinality=cardinality, base_width=width,
                drop_path=DropPath(drop) if drop > 0 else None,
            )  # fmt: skip
            blocks.append(block)
            channels = stage_planes * make.expansion
        stages.append(nn.Sequential(*blocks))
    network = CifarResNet(stem, list(stages), channels, num_classes, dropout)
    _initialise(network, zero_gamma)
    return network


def _initialise(network: nn.Module, zero_gamma: bool) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif zero_gamma and (zero_init_last := getattr(module, "zero_init_last", None)):  # timm's blocks have it
            zero_init_last()
