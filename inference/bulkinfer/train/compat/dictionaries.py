"""Conversions of options that come as dictionaries: YAML, or words `name=value`; see conversions.py."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from bulkinfer.errors import UsageError
from bulkinfer.train.compat.conversion_context import Context, Options, typed, typed_all
from bulkinfer.train.compat.plain_yaml import parsed
from bulkinfer.train.compat.rates import decay_of_batch, shares

DICTIONARIES = ("norm_layer", "optimizer_params", "lr_warmup_params", "lr_schedule_params", "wandb_params")  # the flags
_NORMS = {"batch_norm": "batch", "custom_batch_norm": "batch", "group_norm": "group"}


def norm_layer(text: str, context: Context) -> Options:
    """name, num_groups, channels_per_group, momentum (the share of the average that stays)."""
    found = _dictionary(text, context, ("name", "num_groups", "channels_per_group", "momentum"))
    name = found.pop("name", "custom_batch_norm")
    if name not in _NORMS:
        raise UsageError(f"{context.word}: name is {name!r}: legal are {', '.join(_NORMS)}")
    names = {"num_groups": "norm_groups", "channels_per_group": "norm_channels_per_group"}
    return {"norm": _NORMS[name]} | {
        names.get(key, "norm_momentum"): value if key in names else typed(round(1 - context.value(value), 12))
        for key, value in found.items()
    }


def optimizer_params(text: str, context: Context) -> Options:
    """momentum, weight_decay (of lars), eeta, epsilon, base_decay_exponent (of rmsprop)."""
    found = _dictionary(text, context, ("momentum", "weight_decay", "eeta", "epsilon", "base_decay_exponent"))
    names = {"weight_decay": "l2", "eeta": "lars_trust", "epsilon": "optimizer_eps", "momentum": "momentum"}
    options: dict[str, str] = {names[key]: value for key, value in found.items() if key in names}
    if "base_decay_exponent" in found:
        options.update(decay_of_batch(found["base_decay_exponent"], context))
    return options | _with_momentum(options, context)


def _with_momentum(options: Options, context: Context) -> dict[str, str]:
    """sgd with a momentum is another optimiser here."""
    is_sgd = context.text("optimizer") == "sgd" and context.value(options.get("momentum", "0")) != 0
    return {"optimizer": "momentum"} if is_sgd else {}


def schedule_params(text: str, context: Context) -> Options:
    """initial_learning_rate (per sample), epochs_to_total_decay, end_learning_rate_ratio, power; boundaries and values."""
    keys = ("initial_learning_rate", "epochs_to_total_decay", "end_learning_rate_ratio", "power", "boundaries", "values")
    found = _dictionary(text, context, keys)
    if "boundaries" in found or "values" in found:
        return _steps(found, context)
    options = {"epochs_to_total_decay": "lr_decay_length", "end_learning_rate_ratio": "lr_end", "power": "lr_power"}
    rate = context.value(found.pop("initial_learning_rate", "0.001"))
    if rate <= 0:
        raise UsageError(f"{context.word}: initial_learning_rate is {rate:g}: it must be above 0")
    return {"base_learning_rate": typed(math.log2(rate))} | {options[key]: value for key, value in found.items()}


def _steps(found: dict[str, str], context: Context) -> Options:
    """Boundaries in epochs, and the rates between them."""
    boundaries, rates = (context.values(found.get(name, "0")) for name in ("boundaries", "values"))
    if len(rates) != len(boundaries) + 1 or not rates[0]:
        raise UsageError(f"{context.word}: there is one rate more than boundaries: give values before, between and after them")
    drops = shares(context, boundaries, is_shift=context.text("warmup_mode", "shift") == "shift")
    return {
        "lr": typed(rates[0]),
        "lr_drops": typed_all(drops),
        "lr_multipliers": typed_all([rate / rates[0] for rate in rates]),
    }


def warmup_params(text: str, context: Context) -> Options:
    """warmup_mode and warmup_epochs."""
    return _dictionary(text, context, ("warmup_mode", "warmup_epochs"))


def _dictionary(text: str, context: Context, keys: Collection[str]) -> dict[str, str]:
    """The values by name, as texts. Raises UsageError for what is no dictionary of these names."""
    try:
        found: Any = parsed(text)
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        pairs = [part.partition("=") for part in text.split(",")]
        found = {name.strip(): value for name, equals, value in pairs if equals}
        found = found if len(found) == len(pairs) else {}
    if not found or not set(found) <= set(keys):
        raise UsageError(f"{context.word} {text!r}: give name=value or a YAML dictionary, with the names {', '.join(keys)}")
    return {name: _text(value) for name, value in found.items()}


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
