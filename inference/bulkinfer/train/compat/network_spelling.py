"""How other trainers spell their networks: a family with a size apart, `x50` for ResNeXt-50, `B0` for EfficientNet-B0."""

from __future__ import annotations

from bulkinfer.errors import UsageError
from bulkinfer.model.names import plain
from bulkinfer.train.network.network_names import TRAINABLE

# Names in their plain form (no case, `-` or `_`) -> family. The sizes of a family are tried with the patterns below, in order.
_FAMILIES = {"resnet": "resnet", "resnext": "resnext", "efficientnet": "efficientnet", "cifarresnet": "cifar_resnet"}
_PATTERNS = {
    "resnet": ("resnet{}", "cifar_resnet{}", "cifar_resnet{}_bottleneck"),
    "cifar_resnet": ("cifar_resnet{}", "cifar_resnet{}_bottleneck"),
    "resnext": ("resnext{}", "cifar_resnext{}"),
    "efficientnet": ("efficientnet_{}", "efficientnet_b{}"),
}
# family -> the size that is meant where none is given, for large pictures and for those of 32 x 32
_SIZES = {
    "resnet": ("18", "20"),
    "cifar_resnet": ("20", "20"),
    "resnext": ("14", "11"),
    "efficientnet": ("b0", "b0"),
}
_WHOLE = {"mobilenet": "mobilenet_v2"}


def spelled(model: str = "", size: str = "", is_small: bool = False) -> str:
    """Our name for a model and size in another trainer's spelling; any other name comes back as it is, to be looked up.

    `is_small` says that the data set's pictures are 32 x 32 (or about): some sizes, 14 for one, mean another network there.
    Raises UsageError for a size that the family does not have, or one beside a name that has its own.
    """
    given, family = plain(model), _FAMILIES.get(plain(model), "")
    if not size and not family:
        return _of_short(model) or _WHOLE.get(given, model)
    if model and not family:
        raise UsageError(f"--model_size {size}: --model {model} has its size in its name; leave one of them out")
    family, size = _family_and_size(family, size.lower())
    size = size or _SIZES[family][is_small]
    patterns = _PATTERNS[family]
    if is_small:
        patterns = tuple(sorted(patterns, key=lambda pattern: not pattern.startswith("cifar")))
    for pattern in patterns:
        if (name := pattern.format(size)) in TRAINABLE:
            return name
    raise UsageError(f"--model_size {size}: {family} comes as {', '.join(_names(patterns))}")


def _family_and_size(family: str, size: str) -> tuple[str, str]:
    """A size can name its family: x50 is a ResNeXt, b0 an EfficientNet; a plain number without a family is a ResNet."""
    if size.startswith("x") and family in ("", "resnet", "resnext"):
        return "resnext", size[1:]
    if size.startswith("b") and not family:
        return "efficientnet", size
    return family or "resnet", size


def _of_short(model: str) -> str:
    """The name that a size alone stands for: x50, B0, 50; empty where `model` is no such thing."""
    size = model.lower()
    is_size = size.isdecimal() or (size[:1] in ("x", "b") and size[1:].isdecimal())
    return spelled(size=size) if is_size else ""


def _names(patterns: tuple[str, ...]) -> list[str]:
    prefixes = tuple(pattern.partition("{}")[0] for pattern in patterns)
    return [name for name in TRAINABLE if name.startswith(prefixes)]
