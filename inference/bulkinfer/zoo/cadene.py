"""The 45 networks of the package pretrainedmodels (Remi Cadene), each with the recipe its settings give.

Left out: the variants "imagenet+background" of four networks. Their files hold 1001 classes, of which `adapt` drops the first
(background), as the package does for its plain "imagenet".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bulkinfer.model.recipe import Recipe
from bulkinfer.zoo.spec import IMAGENET_LABELS, NetworkSpec

if TYPE_CHECKING:
    import torch

LIP6, PYTORCH = "http://data.lip6.fr/cadene/pretrainedmodels/", "https://download.pytorch.org/models/"
_CODE_LICENCE = {LIP6: "code MIT", PYTORCH: "code BSD-3-Clause (torchvision)"}


@dataclass(frozen=True, slots=True)
class _Pixels:
    """How values reach the networks of a family; mean and std in the order of the channels."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    channels: str = "RGB"
    value_range: tuple[float, float] = (0.0, 1.0)


_IMAGENET = _Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_HALVES = _Pixels((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_DPN = _Pixels((124 / 255, 117 / 255, 104 / 255), (1 / (0.0167 * 255),) * 3)
_INCEPTION_CAFFE = _Pixels((104.0, 117.0, 128.0), (1.0, 1.0, 1.0), "BGR", (0.0, 255.0))
_RESNET_CAFFE = _Pixels((102.9801, 115.9465, 122.7717), (1.0, 1.0, 1.0), "BGR", (0.0, 255.0))


@dataclass(frozen=True, slots=True)
class _Family:
    """What networks have in common: who trained them, the host of the files, input side in pixels and value rules.

    The short side becomes floor(side / crop_fraction) pixels.
    `renames` are patterns of names in the files and what they are in the network.
    """

    origin: str
    host: str
    side: int
    pixels: _Pixels
    renames: tuple[tuple[str, str], ...] = ()
    has_background: bool = False
    crop_fraction: float = 0.875  # the package's evaluation, but for networks whose settings say another


_FC = (r"^fc\.", "last_linear.")
_CLASSIFIER_0_3_6 = ((r"^features\.", "_features."), (r"^classifier\.0\.", "linear0."), (r"^classifier\.3\.", "linear1."),
                     (r"^classifier\.6\.", "last_linear."))  # fmt: skip
_CLASSIFIER_1_4_6 = ((r"^features\.", "_features."), (r"^classifier\.1\.", "linear0."), (r"^classifier\.4\.", "linear1."),
                     (r"^classifier\.6\.", "last_linear."))  # fmt: skip
# Files of old torch versions have a dot inside the names of layers.
_DENSE = ((r"^(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\.)", r"\1\2"), (r"^classifier\.", "last_linear."))

_TORCHVISION = "trained by the torchvision project on ImageNet-1k"
_GOOGLE = "trained by Google on ImageNet-1k in TensorFlow"
_FAMILIES: dict[str, _Family] = {
    "alexnet": _Family(f"AlexNet, {_TORCHVISION}", PYTORCH, 224, _IMAGENET, _CLASSIFIER_1_4_6),
    "bninception": _Family("BN-Inception, trained in Caffe on ImageNet-1k", LIP6, 224, _INCEPTION_CAFFE),
    "cafferesnet": _Family("ResNet, trained by its authors in Caffe on ImageNet-1k", LIP6, 224, _RESNET_CAFFE),
    "densenet": _Family(f"DenseNet, {_TORCHVISION}", LIP6, 224, _IMAGENET, _DENSE),
    "dpn": _Family("Dual Path Network, trained by its authors in MXNet on ImageNet-1k", LIP6, 224, _DPN),
    "dpn5k": _Family("Dual Path Network, trained by its authors in MXNet on ImageNet-5k, then ImageNet-1k", LIP6, 224, _DPN),
    "fbresnet": _Family("ResNet, trained by Facebook AI Research in Torch7 on ImageNet-1k", LIP6, 224, _IMAGENET),
    "inceptionresnetv2": _Family(f"Inception-ResNet, {_GOOGLE}", LIP6, 299, _HALVES, has_background=True),
    "inceptionv3": _Family(f"Inception v3, {_GOOGLE}", PYTORCH, 299, _HALVES, (_FC,)),
    "inceptionv4": _Family(f"Inception v4, {_GOOGLE}", LIP6, 299, _HALVES, has_background=True),
    "nasnet": _Family(f"NASNet, {_GOOGLE}", LIP6, 331, _HALVES, has_background=True),
    "nasnetmobile": _Family("NASNet, trained on ImageNet-1k in PyTorch", LIP6, 224, _HALVES),
    "pnasnet": _Family(f"PNASNet, {_GOOGLE}", LIP6, 331, _HALVES, has_background=True),
    "polynet": _Family("PolyNet, trained by its authors in Caffe on ImageNet-1k", LIP6, 331, _IMAGENET),
    "resnet": _Family(f"ResNet, {_TORCHVISION}", PYTORCH, 224, _IMAGENET, (_FC,)),
    "resnext": _Family("ResNeXt, trained by Facebook AI Research in Torch7 on ImageNet-1k", LIP6, 224, _IMAGENET),
    "senet": _Family("Squeeze-and-Excitation network, trained by its authors in Caffe on ImageNet-1k", LIP6, 224, _IMAGENET),
    "squeezenet": _Family(f"SqueezeNet, {_TORCHVISION}", PYTORCH, 224, _IMAGENET, ((r"^classifier\.1\.", "last_conv."),)),
    "vgg": _Family(f"VGG, {_TORCHVISION}", PYTORCH, 224, _IMAGENET, _CLASSIFIER_0_3_6),
    "xception": _Family("Xception, trained on ImageNet-1k", LIP6, 299, _HALVES, (_FC,), crop_fraction=0.8975),
}  # fmt: skip

# name -> family, file of the weights, number of parameters
_ROWS: dict[str, tuple[str, str, int]] = {
    "resnext101_32x4d": ("resnext", "resnext101_32x4d-29e315fa.pth", 44_177_704),
    "resnext101_64x4d": ("resnext", "resnext101_64x4d-e77a0586.pth", 83_455_272),
    "alexnet": ("alexnet", "alexnet-owt-4df8aa71.pth", 61_100_840),
    "bninception": ("bninception", "bn_inception-52deb4733.pth", 11_295_240),
    "cafferesnet101": ("cafferesnet", "cafferesnet101-9d633cc0.pth", 44_549_160),
    "densenet121": ("densenet", "densenet121-fbdb23505.pth", 7_978_856),
    "densenet161": ("densenet", "densenet161-347e6b360.pth", 28_681_000),
    "densenet169": ("densenet", "densenet169-f470b90a4.pth", 14_149_480),
    "densenet201": ("densenet", "densenet201-5750cbb1e.pth", 20_013_928),
    "dpn68": ("dpn", "dpn68-4af7d88d2.pth", 12_611_602),
    "dpn98": ("dpn", "dpn98-722954780.pth", 61_570_728),
    "dpn131": ("dpn", "dpn131-7af84be88.pth", 79_254_504),
    "dpn68b": ("dpn5k", "dpn68b_extra-363ab9c19.pth", 12_611_602),
    "dpn92": ("dpn5k", "dpn92_extra-fda993c95.pth", 37_668_392),
    "dpn107": ("dpn5k", "dpn107_extra-b7f9f4cc9.pth", 86_917_800),
    "fbresnet152": ("fbresnet", "fbresnet152-2e20f6b4.pth", 60_268_520),
    "inceptionresnetv2": ("inceptionresnetv2", "inceptionresnetv2-520b38e4.pth", 55_843_464),
    "inceptionv3": ("inceptionv3", "inception_v3_google-1a9a5a14.pth", 27_161_264),
    "inceptionv4": ("inceptionv4", "inceptionv4-8e4777a0.pth", 42_679_816),
    "nasnetalarge": ("nasnet", "nasnetalarge-a1897284.pth", 88_753_150),
    "nasnetamobile": ("nasnetmobile", "nasnetamobile-7e03cead.pth", 5_289_978),
    "pnasnet5large": ("pnasnet", "pnasnet5large-bf079911.pth", 86_057_668),
    "polynet": ("polynet", "polynet-f71d82a5.pth", 95_366_600),
    "resnet18": ("resnet", "resnet18-5c106cde.pth", 11_689_512),
    "resnet34": ("resnet", "resnet34-333f7ec4.pth", 21_797_672),
    "resnet50": ("resnet", "resnet50-19c8e357.pth", 25_557_032),
    "resnet101": ("resnet", "resnet101-5d3b4d8f.pth", 44_549_160),
    "resnet152": ("resnet", "resnet152-b121ed2d.pth", 60_192_808),
    "se_resnet50": ("senet", "se_resnet50-ce0d4300.pth", 28_088_024),
    "se_resnet101": ("senet", "se_resnet101-7e38fcc6.pth", 49_326_872),
    "se_resnet152": ("senet", "se_resnet152-d17c99b7.pth", 66_821_848),
    "se_resnext50_32x4d": ("senet", "se_resnext50_32x4d-a260b3a4.pth", 27_559_896),
    "se_resnext101_32x4d": ("senet", "se_resnext101_32x4d-3b2fe3d8.pth", 48_955_416),
    "senet154": ("senet", "senet154-c7b49a05.pth", 115_088_984),
    "squeezenet1_0": ("squeezenet", "squeezenet1_0-a815701f.pth", 1_248_424),
    "squeezenet1_1": ("squeezenet", "squeezenet1_1-f364aa15.pth", 1_235_496),
    "vgg11": ("vgg", "vgg11-bbd30ac9.pth", 132_863_336),
    "vgg11_bn": ("vgg", "vgg11_bn-6002323d.pth", 132_868_840),
    "vgg13": ("vgg", "vgg13-c768596a.pth", 133_047_848),
    "vgg13_bn": ("vgg", "vgg13_bn-abd245e5.pth", 133_053_736),
    "vgg16": ("vgg", "vgg16-397923af.pth", 138_357_544),
    "vgg16_bn": ("vgg", "vgg16_bn-6c64b313.pth", 138_365_992),
    "vgg19": ("vgg", "vgg19-dcbb9e9d.pth", 143_667_240),
    "vgg19_bn": ("vgg", "vgg19_bn-c79401a0.pth", 143_678_248),
    "xception": ("xception", "xception-43020ad28.pth", 22_855_952),
}


def _recipe(family: _Family) -> Recipe:
    """The package's evaluation: torchvision's resize of the short side with its default filter, then a centre crop."""
    pixels, crop_fraction = family.pixels, family.crop_fraction
    return Recipe(
        height=family.side, width=family.side, resize="short_side", resize_size=int(family.side / crop_fraction),
        crop_fraction=crop_fraction, interpolation="bilinear",
        mean=pixels.mean, std=pixels.std, channels=pixels.channels, value_range=pixels.value_range,
    )  # fmt: skip


def _spec(name: str) -> NetworkSpec:
    family_name, file, num_parameters = _ROWS[name]
    family = _FAMILIES[family_name]
    return NetworkSpec(
        builder="bulkinfer.zoo.cadene:build",
        architecture=name,
        recipe=_recipe(family),
        labels=IMAGENET_LABELS,
        num_parameters=num_parameters,
        licence=f"not stated for the weights; {_CODE_LICENCE[family.host]}",
        origin=f"{family.origin}; from the PyPI package pretrainedmodels",
        weights_file=file,
        urls=(family.host + file,),
        adapter="bulkinfer.zoo.cadene:adapt",
    )


NETWORKS: dict[str, NetworkSpec] = {name: _spec(name) for name in _ROWS}


def build(architecture: str) -> torch.nn.Module:
    """The package's network of this name; float32 N x 3 x H x W -> N x 1000 logits."""
    import copy

    import pretrainedmodels

    network: torch.nn.Module = getattr(pretrainedmodels, architecture)(num_classes=1000, pretrained=None)
    # The package keeps the layers of ResNeXt in module-level objects that every instance uses: two would share weights.
    return copy.deepcopy(network) if _ROWS[architecture][0] == "resnext" else network


def adapt(architecture: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of the published file under the network's names, without a background class."""
    family = _FAMILIES[_ROWS[architecture][0]]
    adapted = {}
    for name, tensor in state.items():
        for pattern, replacement in family.renames:
            name = re.sub(pattern, replacement, name)
        is_with_background = family.has_background and name.startswith("last_linear.") and len(tensor) == 1001
        adapted[name] = tensor[1:] if is_with_background else tensor
    return adapted
