"""What an option that is left open comes to: the network by data set, the rate by optimiser."""

from __future__ import annotations

from dataclasses import replace

from bulkinfer.train.options import DEFAULT_RATES, TrainConfig

_LARGE_PICTURES, _SMALL_PICTURES = "resnet18", "cifar_resnet20"


def default_model(dataset: str) -> str:
    """The network for a data set: one for 224 x 224 pixels for class folders, one for 32 x 32 for all others."""
    return _LARGE_PICTURES if dataset == "folder" else _SMALL_PICTURES


def with_defaults(config: TrainConfig) -> TrainConfig:
    """The options with network and rate filled in where both spellings of them are left open; `config.dataset` is known.

    A run keeps these values in its checkpoints, so that it goes on with them in versions that have other defaults.
    """
    if not config.model and not config.model_size:
        config = replace(config, model=default_model(config.dataset))
    if not config.lr and not config.base_learning_rate:
        config = replace(config, lr=DEFAULT_RATES[config.optimizer])
    return config


def mark(is_default: bool) -> str:
    """What the plan says behind a value."""
    return " (default)" if is_default else ""
