"""EfficientNet-Lite of the package efficientnet-lite-pytorch."""

from __future__ import annotations

import torch


def _lite(number: int) -> torch.nn.Module:
    from efficientnet_lite_pytorch import EfficientNet

    network: torch.nn.Module = EfficientNet.from_name(f"efficientnet-lite{number}")
    return network


def lite0() -> torch.nn.Module:
    """float32 N x 3 x 224 x 224 -> N x 1000 logits."""
    return _lite(0)


def lite1() -> torch.nn.Module:
    """float32 N x 3 x 240 x 240 -> N x 1000 logits."""
    return _lite(1)


def lite2() -> torch.nn.Module:
    """float32 N x 3 x 260 x 260 -> N x 1000 logits."""
    return _lite(2)
