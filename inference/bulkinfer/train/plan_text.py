"""The resolved plan of a run as people read it: a line by name, printed at the start and kept in arguments.json."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

from torch import nn

from bulkinfer.train.data.opening import Data
from bulkinfer.train.defaults import default_model, mark
from bulkinfer.train.network.freezing import moving_norms
from bulkinfer.train.network.network_names import TRAINABLE
from bulkinfer.train.network.networks import NetworkOptions
from bulkinfer.train.options import DEFAULT_RATES, TrainConfig
from bulkinfer.train.plan import Batches, Epochs
from bulkinfer.train.ranks.split_names import Split
from bulkinfer.train.training import Training
from bulkinfer.train.update.optimisers import USES_MOMENTUM, l2_of
from bulkinfer.train.update.schedules import Schedule
from bulkinfer.train.update.updating import rounding_seed
from bulkinfer.types import shell_word

_NOT_SHOWN = ("dry_run", "resume")
_MOST_OF_FIRST = 0.05  # share of their first values that batch norm's averages may keep at the end of a run


def plan_lines(training: Training, batches: Batches, data: Data, splits: Sequence[Split] = ()) -> dict[str, str]:
    """The plan; "(default)" stands behind a choice that has its default value."""
    config, epochs = training.plan.config, training.plan.epochs
    options = NetworkOptions(**training.plan.facts["network"])
    num_parameters = sum(parameter.numel() for parameter in training.model.network.parameters())
    held_out = "none" if data.held_out is None else f"{len(data.held_out.labels)} pictures"
    precision = training.model.precision
    half_type = "" if precision.name == "32.32" else f" ({precision.half_type})"
    network = f"{options.model}{mark(options.model == default_model(data.name))}"
    lines = {
        "network": f"{network}, {num_parameters:,} parameters, input {data.size}x{data.size}",
        "norm": _norm(options) + (f", over {config.norm_span} replicas" if config.norm_span > 1 else ""),
        "data": f"{data.name}: {epochs.num_samples} pictures, {len(data.train.class_names)} classes; validation: {held_out}",
        "batches": f"micro batch {batches.micro_batch} x accumulation {batches.accumulation} x replicas {batches.replicas} = "
        f"global batch {batches.global_batch}",
        **_stages(config, batches, splits),
        "length": f"{epochs.total_steps} updates, {epochs.steps_per_epoch} an epoch{_left_out(epochs)}",
        "rate": _rate(config, training.plan.schedule),
        "optimiser": _optimiser(config),
        "precision": f"{precision.name}{half_type} on {training.data.device}{_rounding(config)}",
    }
    if others := options_text(config):
        lines["options"] = others
    warnings = [_large_batch(batches.global_batch, epochs.num_samples)]
    if not config.init_checkpoint:
        num_batches = epochs.total_steps * batches.accumulation
        warnings.append(slow_averages(training.model.network, num_batches, is_of_timm=options.model not in TRAINABLE))
    return lines | ({"warning": "; ".join(filter(None, warnings))} if any(warnings) else {})


def _stages(config: TrainConfig, batches: Batches, splits: Sequence[Split]) -> dict[str, str]:
    """How the network is divided, and how many processes a run needs."""
    if not splits:
        return {}
    count = batches.replicas * config.stages
    return {
        "stages": f"{config.stages}, by {config.pipeline_schedule}; they begin with the input, {', '.join(map(str, splits))}",
        "ranks": f"replicas {batches.replicas} x stages {config.stages} = {count} processes, started here, or by torchrun "
        f"--nproc_per_node {count} --no_python in front of the command",
    }


def _left_out(epochs: Epochs) -> str:
    """The pictures that stages leave out of each pass, as the end of a sentence."""
    count = epochs.num_samples - epochs.samples_per_pass
    return f", without {count} pictures that make no whole micro batches" if count else ""


def _large_batch(global_batch: int, num_samples: int) -> str:
    """A sentence if an update is to take more pictures than there are; else empty."""
    if global_batch <= num_samples:
        return ""
    return f"the global batch of {global_batch} is larger than the {num_samples} training pictures: an update takes all of them"


def options_text(config: TrainConfig) -> str:
    """The options that are not the default, as they are typed, but for those that say where others came from."""
    shown_elsewhere = {"model": default_model(config.dataset), "lr": DEFAULT_RATES[config.optimizer]}  # filled in
    given = {field.name: getattr(config, field.name) for field in fields(config) if field.name not in _NOT_SHOWN}
    given = {name: value for name, value in given.items() if value != shown_elsewhere.get(name)}
    return " ".join(_typed(name, value) for name, value in given.items() if value != getattr(TrainConfig, name))


def _typed(name: str, value: object) -> str:
    """An option as it is typed."""
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no{name}"
    words = [f"{value:g}" if isinstance(value, float) else str(value)] if not isinstance(value, tuple) else value
    return f"--{name} {' '.join(map(shell_word, words))}"


def _norm(options: NetworkOptions) -> str:
    """Kind and settings of the norms."""
    facts = TRAINABLE.get(options.model)
    if facts is None:
        return "those that timm gives the network"
    kind = f"{options.norm}{mark(options.norm == NetworkOptions.norm)}"
    eps = f"epsilon {options.norm_eps or facts.norm_eps:g}"
    if options.norm == "batch":
        return f"{kind}, momentum {options.norm_momentum or facts.norm_momentum:g}, {eps}"
    if options.norm == "group":
        groups = f"{options.norm_groups or facts.norm_groups} groups"
        per_group = options.norm_channels_per_group
        return f"{kind}, {f'{per_group} channels per group' if per_group else groups}, {eps}"
    return kind


def _rate(config: TrainConfig, schedule: Schedule) -> str:
    """Shape and peak of the learning rate, and its first and last value."""
    is_default = not config.base_learning_rate and config.lr == DEFAULT_RATES[config.optimizer]
    return (
        f"{schedule.shape}, {schedule.peak:g}{mark(is_default)} at its peak, first {schedule.rate(0):.4g}, "
        f"last {schedule.rate(schedule.total_steps - 1):.4g}"
    )


def _optimiser(config: TrainConfig) -> str:
    """Name, momentum and decay of the optimiser."""
    name = f"{config.optimizer}{mark(config.optimizer == TrainConfig.optimizer)}"
    momentum = f", momentum {config.momentum:g}" if config.optimizer in USES_MOMENTUM else ""
    l2 = f", L2 {l2_of(config):g}{mark(config.l2 < 0)}" if l2_of(config) else ""
    others = (("weight decay", config.weight_decay), ("ema", config.ema))
    sharded = ", its state shared out among the replicas" if config.shard_optimizer else ""
    return name + momentum + l2 + "".join(f", {what} {value:g}" for what, value in others if value) + sharded


def _rounding(config: TrainConfig) -> str:
    """How weights of 16 bits are rounded; empty for others."""
    if config.precision != "16.16":
        return ""
    if rounding_seed(config) is None:
        return ", rounding to the nearest"
    return f", stochastic rounding{mark(config.stochastic_rounding == TrainConfig.stochastic_rounding)}"


def slow_averages(network: nn.Module, num_batches: int, *, is_of_timm: bool = False) -> str:
    """A sentence if batch norm's averages are still near their first values after so many batches; else empty.

    Each batch leaves 1 - momentum of what an average was.
    """
    momenta = [norm.momentum for norm in moving_norms(network) if norm.track_running_stats and norm.momentum is not None]
    if not momenta or (share := (1 - min(momenta)) ** num_batches) <= _MOST_OF_FIRST:
        return ""
    enough = math.ceil(10 * (1 - _MOST_OF_FIRST ** (1 / num_batches))) / 10
    return (
        f"batch norm's averages still keep {100 * share:.0f} % of their first values after {num_batches} batches, and a "
        f"validation takes them: train longer{'' if is_of_timm else f', or give --norm_momentum {enough:g}'}"
    )
