"""Networks of the package pretrainedmodels (Remi Cadene)."""

from __future__ import annotations

import copy

import torch


def resnext101_32x4d() -> torch.nn.Module:
    """ResNeXt-101 32x4d; float32 N x 3 x 224 x 224 -> N x 1000 logits."""
    from pretrainedmodels.models.resnext import ResNeXt101_32x4d

    # The package keeps the layers in a module-level object that every instance uses: two networks would share weights.
    network: torch.nn.Module = copy.deepcopy(ResNeXt101_32x4d(num_classes=1000))
    return network
