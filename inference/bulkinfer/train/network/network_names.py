"""The networks that can be trained, by name, with the options of each. Imports neither torch nor timm.

Every network of timm can be trained as well: as `timm:NAME`, or by its bare name if no network here has that name.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bulkinfer.errors import UsageError
from bulkinfer.host.install_hint import missing_package
from bulkinfer.model.names import plain

NORM_OPTIONS = ("norm", "norm_groups", "norm_channels_per_group", "norm_eps", "norm_momentum", "zero_gamma")
_DROPS = ("dropout", "block_survival")
_BASIC = frozenset({*NORM_OPTIONS, *_DROPS, "shortcut_type"})
_BOTTLENECK = _BASIC | {"cardinality", "width"}
_EFFICIENTNET = frozenset(
    {*NORM_OPTIONS, *_DROPS, "expand_ratio", "group_width", "se", "depth_factor", "width_factor", "depth_divisor", "top_width",
     "relu"}
)  # fmt: skip
_MOBILENET = frozenset({*NORM_OPTIONS, "dropout"})
TIMM_OPTIONS = frozenset(_DROPS)
PREFIX = "timm"


@dataclass(frozen=True, slots=True)
class Trainable:
    """The facts of a trainable network.

    `builder` is "module:function" in bulkinfer.zoo and `arguments` are its arguments for this network. `image_size` is the side
    in pixels of the pictures that it is made for. `options` are the fields of NetworkOptions that it has. `norm_groups`,
    `norm_eps` and `norm_momentum` (torch's meaning: the share of the new batch) are its defaults.
    """

    builder: str
    image_size: int
    options: frozenset[str]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    norm_groups: int = 32
    norm_eps: float = 1e-5
    norm_momentum: float = 0.1
    takes_activations: bool = False  # its norms contain their activation


def _cifar() -> dict[str, Trainable]:
    """6n+2 layers in blocks of two, 9n+2 in bottlenecks of three, for pictures of 32 x 32."""
    builder, found = "bulkinfer.zoo.cifar_resnet:build", {}
    for blocks in (1, 2, 3, 5, 7, 9, 18):
        arguments: dict[str, Any] = {"blocks_per_stage": blocks, "is_bottleneck": False, "planes": 16, "shortcut_type": "A"}
        found[f"cifar_resnet{6 * blocks + 2}"] = Trainable(builder, 32, _BASIC, arguments, norm_groups=16)
    for blocks in (1, 3, 4, 5, 6, 7):
        arguments = {"blocks_per_stage": blocks, "is_bottleneck": True, "planes": 16, "shortcut_type": "B"}
        found[f"cifar_resnet{9 * blocks + 2}_bottleneck"] = Trainable(builder, 32, _BASIC, arguments, norm_groups=16)
    for blocks in (1, 3):
        arguments = {"blocks_per_stage": blocks, "is_bottleneck": True, "planes": 64, "shortcut_type": "B"}
        arguments |= {"cardinality": 32, "width": 4}
        found[f"cifar_resnext{9 * blocks + 2}"] = Trainable(builder, 32, _BOTTLENECK, arguments, norm_groups=16)
    return found


def _resnets() -> dict[str, Trainable]:
    builder, found = "bulkinfer.zoo.resnet:build", {}
    for depth, blocks in {10: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}.items():
        found[f"resnet{depth}"] = Trainable(builder, 224, _BASIC, {"blocks": blocks, "is_bottleneck": False})
    bottlenecks = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
    for depth, blocks in bottlenecks.items():
        found[f"resnet{depth}"] = Trainable(builder, 224, _BOTTLENECK, {"blocks": blocks, "is_bottleneck": True})
    for depth in (14, 26, 50, 101):
        arguments = {"blocks": bottlenecks[depth], "is_bottleneck": True, "cardinality": 32, "width": 4}
        found[f"resnext{depth}"] = Trainable(builder, 224, _BOTTLENECK, arguments)
    return found


# name -> factors of width and depth, dropout, side of the pictures in pixels
_EFFICIENTNETS = {
    "b0": (1.0, 1.0, 0.2, 224),
    "b1": (1.0, 1.1, 0.2, 240),
    "b2": (1.1, 1.2, 0.3, 260),
    "b3": (1.2, 1.4, 0.3, 300),
    "b4": (1.4, 1.8, 0.4, 380),
    "b5": (1.6, 2.2, 0.4, 456),
    "b6": (1.8, 2.6, 0.5, 528),
    "b7": (2.0, 3.1, 0.5, 600),
    "cifar": (0.5, 1.0, 0.0, 32),
}


def _efficientnets() -> dict[str, Trainable]:
    """The published eps; the momentum is torch's, as the published 0.01 needs more steps than small data sets give."""
    builder, found = "bulkinfer.zoo.efficientnet:build", {}
    for name, (width, depth, dropout, side) in _EFFICIENTNETS.items():
        arguments = {"width_factor": width, "depth_factor": depth, "dropout": dropout, "is_small": name == "cifar"}
        found[f"efficientnet_{name}"] = Trainable(
            builder, side, _EFFICIENTNET, arguments, norm_groups=4, norm_eps=1e-3, takes_activations=True
        )
    return found


def _mobilenets() -> dict[str, Trainable]:
    """torchvision's eps; the momentum is torch's, for the reason that EfficientNet has it: v3 was published with 0.01."""
    builder = "bulkinfer.zoo.mobilenet:build"
    found = {"mobilenet_v2": Trainable(builder, 224, _MOBILENET, {"architecture": "mobilenet_v2"}, norm_groups=8)}
    for name in ("mobilenet_v3_small", "mobilenet_v3_large"):
        found[name] = Trainable(builder, 224, _MOBILENET, {"architecture": name}, norm_groups=8, norm_eps=1e-3)
    return found


TRAINABLE: dict[str, Trainable] = {**_cifar(), **_resnets(), **_efficientnets(), **_mobilenets()}


def find_trainable(model: str) -> str:
    """The name of a network as used in files and folders; case, `-` and `_` do not matter, timm:NAME becomes timm_NAME.

    Raises UsageError with the nearest names, RunError if timm is needed and not installed.
    """
    by_plain = {plain(name): name for name in TRAINABLE}
    if known := by_plain.get(plain(model)):
        return known
    architecture = timm_architecture(model)
    timm = _timm()
    if _is_of_timm(timm, architecture):
        return f"{PREFIX}_{architecture}"
    near = [by_plain[name] for name in difflib.get_close_matches(plain(model), by_plain, 3)]
    near += [f"{PREFIX}:{name}" for name in difflib.get_close_matches(architecture, _timm_names(timm, architecture), 3)]
    advice = f"nearest are {', '.join(near)}" if near else f"known are {', '.join(TRAINABLE)}"
    raise UsageError(f"--model: no network is called {model!r}; {advice}")


def _is_of_timm(timm: Any, architecture: str) -> bool:
    """Whether timm has the network and, if a tag of weights follows after a dot, that tag."""
    name, has_tag, _ = architecture.partition(".")
    return timm.is_model(name) and (not has_tag or architecture in timm.list_models(f"{name}.*", pretrained=True))


def _timm_names(timm: Any, architecture: str) -> list[str]:
    """The names that a misspelt one may stand for, with tags if it has a tag."""
    names: list[str] = timm.list_models(pretrained="." in architecture)
    return names


def timm_architecture(model: str) -> str:
    """The name of `model` in timm: lower case, without the prefix."""
    name = model.lower()
    return name.removeprefix(f"{PREFIX}:").removeprefix(f"{PREFIX}_")


def image_size(model: str) -> int:
    """Side in pixels of the pictures that a network is made for.

    Raises UsageError for an unknown name and for a network whose pictures are not square, RunError if timm is missing.
    """
    name = find_trainable(model)
    if known := TRAINABLE.get(name):
        return known.image_size
    facts = _timm().get_pretrained_cfg(timm_architecture(name), allow_unregistered=True)
    _, height, width = facts.input_size if facts else (3, 224, 224)
    if height != width:
        raise UsageError(
            f"--model {name} is made for {height} x {width} pixels, which are not square; it cannot be trained here"
        )
    return int(height)


def _timm() -> Any:
    try:
        import timm
    except ModuleNotFoundError as error:
        raise missing_package("bulkinfer train", error) from None
    return timm
