"""Networks to train, built from options."""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bulkinfer.errors import RunError, UsageError, first_line
from bulkinfer.host.install_hint import missing_package
from bulkinfer.train.network.network_names import (
    TIMM_OPTIONS,
    TRAINABLE,
    Trainable,
    find_trainable,
    timm_architecture,
)
from bulkinfer.train.options import TrainConfig

_PICTURE_CHANNELS = 3
_NORMS = ("batch", "group", "none")
_SHORTCUT_TYPES = ("A", "B", "C")


@dataclass(frozen=True)
class NetworkOptions:
    """The options of a network. 0, "" and -1 (dropout, block_survival) stand for the network's own value.

    norm: batch, group or none, with groups or channels per group (bulkinfer.zoo.norms says what happens if they do not divide),
    eps and momentum (torch's meaning: share of the new batch); zero_gamma: the last norm of each residual branch starts at 0;
    shortcut_type: A, B or C (ResNets); cardinality and width of a group (bottleneck ResNets); dropout before the classifier;
    block_survival: the probability that the last block is applied in training. The others belong to EfficientNet.
    """

    model: str
    num_classes: int
    input_channels: int = 3
    norm: str = "batch"
    norm_groups: int = 0
    norm_channels_per_group: int = 0
    norm_eps: float = 0.0
    norm_momentum: float = 0.0
    zero_gamma: bool = False
    shortcut_type: str = ""
    cardinality: int = 0
    width: int = 0
    expand_ratio: int = 0
    group_width: int = 1
    se: bool = True
    depth_factor: float = 0.0
    width_factor: float = 0.0
    depth_divisor: int = 8
    top_width: int = 0
    dropout: float = -1.0
    block_survival: float = -1.0
    relu: bool = False


def network_options(config: TrainConfig, model: str, num_classes: int) -> NetworkOptions:
    """The part of the options that makes the network; `model` is its name as find_trainable() gives it."""
    return NetworkOptions(
        model=model,
        num_classes=num_classes,
        input_channels=config.input_channels,
        norm=config.norm,
        norm_groups=config.norm_groups,
        norm_channels_per_group=config.norm_channels_per_group,
        norm_eps=config.norm_eps,
        norm_momentum=config.norm_momentum,
        zero_gamma=config.zero_gamma,
        shortcut_type=config.shortcut_type,
        cardinality=config.cardinality,
        width=config.width,
        expand_ratio=config.expand_ratio,
        group_width=config.group_width,
        se=config.squeeze_excite,
        relu=config.relu,
        depth_factor=config.depth_factor,
        width_factor=config.width_factor,
        depth_divisor=config.depth_divisor,
        top_width=config.top_width,
        dropout=config.dropout,
        block_survival=config.block_survival,
    )


def check_options(options: NetworkOptions) -> None:
    """Raises UsageError for a value that is out of range, and for an option that the network does not have."""
    name = find_trainable(options.model)
    _check_ranges(options)
    fits = TRAINABLE[name].options if name in TRAINABLE else TIMM_OPTIONS
    for option in _given(options):
        if option not in fits:
            raise UsageError(f"--{option} does not fit {name}; {_owners(option)}")
    for option, of_norms in (
        ("norm_groups", ("group",)),
        ("norm_channels_per_group", ("group",)),
        ("norm_momentum", ("batch",)),
        ("norm_eps", ("batch", "group")),
        ("zero_gamma", ("batch", "group")),
    ):
        if getattr(options, option) and options.norm not in of_norms:
            raise UsageError(
                f"--{option} belongs to --norm {' or '.join(of_norms)}, and {name} is built with --norm {options.norm}"
            )
    if options.norm_groups and options.norm_channels_per_group:
        raise UsageError("--norm_groups and --norm_channels_per_group both set the width of a group: give one of them")


def _check_ranges(options: NetworkOptions) -> None:
    for option, is_legal, legal in (
        ("norm", options.norm in _NORMS, f"one of {', '.join(_NORMS)}"),
        ("shortcut_type", options.shortcut_type in ("", *_SHORTCUT_TYPES), f"one of {', '.join(_SHORTCUT_TYPES)}"),
        ("dropout", options.dropout == -1 or 0 <= options.dropout < 1, "from 0 to below 1"),
        ("block_survival", options.block_survival == -1 or 0 < options.block_survival <= 1, "above 0 and at most 1"),
        ("norm_momentum", 0 <= options.norm_momentum <= 1, "from 0 to 1"),
        *((option, 1 <= getattr(options, option) <= most, f"from 1 to {most}") for option, most in _COUNTS.items()),
        *((option, 0 <= getattr(options, option) <= most, f"from 0 to {most}") for option, most in _SIZES.items()),
    ):
        if not is_legal:
            raise UsageError(f"--{option} {getattr(options, option)}: it must be {legal}")


# The largest legal values: no network needs more, and a checkpoint of others must not fill the memory.
_COUNTS = {"num_classes": 1 << 24, "input_channels": 4096, "group_width": 4096, "depth_divisor": 4096}
_SIZES = {"norm_groups": 1 << 16, "norm_channels_per_group": 1 << 16, "norm_eps": 1, "cardinality": 1024, "width": 1024,
          "expand_ratio": 100, "depth_factor": 100, "width_factor": 100, "top_width": 1 << 16}  # fmt: skip


def _given(options: NetworkOptions) -> dict[str, Any]:
    """The options that differ from their defaults, without those of every network."""
    return {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if field.name not in ("model", "num_classes", "input_channels") and getattr(options, field.name) != field.default
    }


def _owners(option: str) -> str:
    """Examples of the networks that have an option."""
    names = [name for name, facts in TRAINABLE.items() if option in facts.options]
    shown = f"{', '.join(names[:3])} and others" if len(names) > 3 else ", ".join(names)
    return f"it is an option of {shown}"


class _Channels(nn.Module):
    """Passes the first of the three channels to `network`, or all three followed by channels of zeros."""

    def __init__(self, network: nn.Module, channels: int) -> None:
        super().__init__()
        self.network, self._channels = network, channels

    def forward(self, images_NCHW: Tensor) -> Any:
        if self._channels <= _PICTURE_CHANNELS:
            return self.network(images_NCHW[:, : self._channels])
        padding = self._channels - _PICTURE_CHANNELS
        return self.network(nn.functional.pad(images_NCHW, (0, 0, 0, 0, 0, padding)))


def build(options: NetworkOptions) -> nn.Module:
    """Build a network that takes N x 3 x H x W, whatever its first layer takes; torch's random state initialises it."""
    network: nn.Module = build_network(options)
    return network if options.input_channels == _PICTURE_CHANNELS else _Channels(network, options.input_channels)


def rebuild(options: dict[str, Any], weights: dict[str, Tensor], path: Path) -> nn.Module:
    """The network of the checkpoint at `path`, in float32 and evaluation mode. `options` are the fields of a NetworkOptions.

    It is not built on torch's meta device: some networks of timm have buffers that are in no state dict. Raises RunError if
    the weights do not fit.
    """
    network = build(NetworkOptions(**options))
    load_weights(network, weights, path)  # copies into float32
    return network.eval()


def load_weights(network: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    """Load the weights of the checkpoint at `path` into its network. Raises RunError if they do not fit."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split("\n\t")[1:2]) or first_line(error)
        raise RunError(
            f"{path} is damaged (its weights do not fit its network: {reason[:200]}): use another checkpoint"
        ) from None


def build_network(options: NetworkOptions) -> nn.Module:
    """Build the network in training mode, initialised from torch's random state; N x C x H x W -> N x K logits.

    Raises UsageError like `check_options`, RunError naming the install command if a package is missing.
    """
    check_options(options)
    name = find_trainable(options.model)
    try:
        network = _build_own(TRAINABLE[name], options) if name in TRAINABLE else _build_from_timm(name, options)
    except ModuleNotFoundError as error:
        raise missing_package("bulkinfer train", error) from None
    return network.train()


def _build_own(facts: Trainable, options: NetworkOptions) -> nn.Module:
    from bulkinfer.zoo.norms import Norm, norm_act_layer, norm_layer

    norm = Norm(
        kind=options.norm,
        groups=options.norm_groups or facts.norm_groups,
        channels_per_group=options.norm_channels_per_group,
        eps=options.norm_eps or facts.norm_eps,
        momentum=options.norm_momentum or facts.norm_momentum,
    )
    module, _, function = facts.builder.partition(":")
    arguments = {**facts.arguments, **{key: value for key, value in _given(options).items() if not key.startswith("norm")}}
    arguments |= {
        "num_classes": options.num_classes,
        "input_channels": options.input_channels,
        "zero_gamma": options.zero_gamma,
    }
    if facts.takes_activations:
        arguments["norm_act_layer"] = lambda act_layer: norm_act_layer(norm, act_layer)
    else:
        arguments["norm_layer"] = norm_layer(norm)
    network: nn.Module = getattr(importlib.import_module(module), function)(**arguments)
    return network


def _build_from_timm(name: str, options: NetworkOptions) -> nn.Module:
    """Build a network of timm, with its own norms. Raises UsageError for an option that its class does not take."""
    import timm

    given: dict[str, Any] = {}
    if options.dropout >= 0:
        given["drop_rate"] = options.dropout
    if options.block_survival >= 0:
        given["drop_path_rate"] = 1.0 - options.block_survival
    try:
        network: nn.Module = timm.create_model(
            timm_architecture(name),
            pretrained=False,
            exportable=True,  # what is trained has the layers that get_model exports
            num_classes=options.num_classes,
            in_chans=options.input_channels,
            **given,
        )
    except TypeError as error:
        flags = {"drop_rate": "dropout", "drop_path_rate": "block_survival"}
        for argument in given:
            if argument in str(error):
                raise UsageError(f"--{flags[argument]} does not fit {name}: timm's class has no such option") from None
        raise
    return network
