"""EfficientNet of any size, from timm's class, with groups of any width in place of depthwise convolutions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from bulkinfer.zoo.norms import fitting_groups

# Blocks of each stage in timm's notation: r repeats, k kernel, s stride, c channels.
_STAGES = (
    "r1_k3_s1_c16",
    "r2_k3_s2_c24",
    "r2_k5_s2_c40",
    "r3_k3_s2_c80",
    "r3_k5_s1_c112",
    "r4_k5_s2_c192",
    "r1_k3_s1_c320",
)
_STEM, _TOP = 32, 1280


def build(
    *,
    num_classes: int,
    input_channels: int,
    norm_act_layer: Callable[[type[nn.Module]], Callable[..., nn.Module]],
    zero_gamma: bool,
    is_small: bool,
    width_factor: float,
    depth_factor: float,
    dropout: float,
    block_survival: float = 0.8,
    expand_ratio: int = 6,
    group_width: int = 1,
    se: bool = True,
    depth_divisor: int = 8,
    top_width: int = _TOP,
    relu: bool = False,
) -> nn.Module:
    """The network with timm's initialisation; float32 N x input_channels x H x W -> N x num_classes logits.

    `norm_act_layer(activation)` is a factory of norms with that activation. `is_small`: for pictures of 32 x 32, with stride 1
    in the stem and in the second stage. `group_width`: channels of a group in the spatial convolutions; groups become wider
    where they do not divide the channels. Channels are rounded to multiples of `depth_divisor`; `top_width` is scaled by
    `width_factor`. `block_survival` as in bulkinfer.zoo.resnet.
    """
    from timm.models._efficientnet_builder import round_channels
    from timm.models.efficientnet import EfficientNet

    round_channels_here = partial(round_channels, multiplier=width_factor, divisor=depth_divisor)
    act_layer = nn.ReLU if relu else nn.SiLU
    network = EfficientNet(
        block_args=_block_args(depth_factor, expand_ratio, se, is_small, group_width, round_channels_here),
        num_classes=num_classes,
        num_features=round_channels_here(top_width),
        in_chans=input_channels,
        stem_size=_STEM,
        act_layer=act_layer,
        norm_layer=norm_act_layer(act_layer),
        round_chs_fn=round_channels_here,
        drop_rate=dropout,
        drop_path_rate=1.0 - block_survival,
    )
    if is_small:
        network.conv_stem.stride = (1, 1)  # timm's class has no argument for it; the padding of a 3 x 3 kernel stays 1
    if zero_gamma:
        _zero_gamma(network)
    return network


def _block_args(
    depth_factor: float, expand_ratio: int, se: bool, is_small: bool, group_width: int, round_here: Callable[[int], int]
) -> list[list[dict[str, Any]]]:
    """timm's arguments of every block, with the width of its groups."""
    from timm.layers import make_divisible  # type: ignore[attr-defined]
    from timm.models._efficientnet_builder import decode_arch_def

    definition = []
    for place, stage in enumerate(_STAGES):
        kind = "ds_e1" if place == 0 else f"ir_e{expand_ratio}"
        stage = stage.replace("s2", "s1") if is_small and place == 1 else stage
        definition.append([f"{kind}_{stage}{'_se0.25' if se else ''}"])
    stages: list[list[dict[str, Any]]] = decode_arch_def(definition, depth_factor)  # type: ignore[no-untyped-call]
    channels = round_here(_STEM)
    for stage_args in stages:
        for block in stage_args:
            is_expanded = block["block_type"] == "ir"
            inner = make_divisible(channels * block["exp_ratio"]) if is_expanded else channels  # type: ignore[no-untyped-call]
            block["group_size"] = inner // fitting_groups(inner, inner // group_width)
            channels = round_here(block["out_chs"])
    return stages


def _zero_gamma(network: nn.Module) -> None:
    """The last norm of every block with a shortcut starts at 0. A block without one would give nothing but zeros."""
    blocks: Any = network.blocks
    for stage in blocks:
        for block in stage:
            if block.has_skip:
                nn.init.zeros_((block.bn3 if hasattr(block, "bn3") else block.bn2).weight)
