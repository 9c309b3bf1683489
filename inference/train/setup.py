"""From options to a run that can start: data, network, batches, schedule, all resolved and checked before the first update."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from inference.errors import UsageError, first_line
from inference.runlog import say, versions
from inference.train import checkpoint
from inference.train.augment import Mixing
from inference.train.built import build
from inference.train.draws import spread
from inference.train.loop import Training
from inference.train.networks import NetworkOptions
from inference.train.opening import Data, model_of, open_data
from inference.train.optimisers import OptimiserOptions, chosen_parameters, make_optimiser
from inference.train.options import TrainConfig
from inference.train.plan import Batches, Epochs, solve, steps_in, total_steps
from inference.train.recompute import recompute
from inference.train.replicas import World
from inference.train.schedules import Schedule
from inference.train.step import LossScale, Precision

_COMPILERS = ("g++", "clang++")  # that torch.compile looks for


def network_options(config: TrainConfig, num_classes: int) -> NetworkOptions:
    """The part of the options that makes the network."""
    return NetworkOptions(
        model=model_of(config),
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


def peak_rate(config: TrainConfig, batches: Batches) -> float:
    """--lr, or 2^x times the global batch."""
    if not config.base_learning_rate:
        return config.lr or 0.1
    try:
        return float(2.0 ** float(config.base_learning_rate) * batches.global_batch)
    except ValueError:
        raise UsageError(f"--base_learning_rate {config.base_learning_rate!r} is not a number") from None


def set_up(config: TrainConfig, world: World) -> tuple[Training, dict[str, str]]:
    """Everything for a run, and the resolved plan by name for the screen; for options that went through with_data_found().

    Raises UsageError for whatever cannot work.
    """
    check_options(config)
    device = device_of(config, world)
    data = open_data(config)
    batches = solve(
        config.micro_batch_size, config.gradient_accumulation, world.replicas, config.global_batch_size, default_micro_batch=128
    )
    num_samples = max(1, int(len(data.train.labels) * config.dataset_percentage / 100))
    check_batches(config, batches, num_samples)
    steps_per_epoch = steps_in(num_samples, batches.global_batch)
    steps = total_steps(config.epochs or 100.0, config.steps, steps_per_epoch)
    schedule = make_schedule(config, batches, steps, steps_per_epoch)
    precision = Precision(config.precision, device.type, config.half_type)
    torch.manual_seed(config.seed)
    options = network_options(config, len(data.train.class_names))
    network = build(options)
    if config.init_checkpoint:
        begin_with(network, Path(config.init_checkpoint))
    network = network.to(device, precision.weights)
    if config.channels_last:
        network = network.to(memory_format=torch.channels_last)
    recompute(network, config.recompute)
    parameters = chosen_parameters(network, config.train_only)
    mean, std = (torch.tensor(values, device=device) for values in (data.recipe.mean, data.recipe.std))
    training = Training(
        config=config,
        network=network,
        forward=torch.compile(network) if config.compile else network,
        optimiser=make_optimiser(parameters.values(), optimiser_options(config)),
        samples=data.train,
        chosen=spread(num_samples, len(data.train.labels)),
        held_out=data.held_out,
        epochs=Epochs(num_samples, batches.global_batch, steps),
        schedule=schedule,
        scale=LossScale(config.loss_scaling_mode, config.loss_scaling),
        precision=precision,
        mixing=Mixing(config.mixup_alpha, config.cutmix_alpha, config.mix_probability),
        micro_batch=batches.micro_batch,
        world=world,
        mean=mean,
        std=std,
        augmentation=data.augmentation,
        facts={
            "config": asdict(config),
            "network": asdict(options),
            "dataset": data.name,
            "num_samples": num_samples,
            "global_batch": batches.global_batch,
            "class_names": list(data.train.class_names),
            "recipe": asdict(data.recipe),
            "versions": versions(),
        },
    )
    return training, told_plan(training, batches, data, sum(p.numel() for p in network.parameters()))


def check_options(config: TrainConfig) -> None:
    """Raises UsageError for options that are wrong whatever the data are."""
    if config.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs the package tensorboard: pip install tensorboard")
    if config.compile and not any(map(shutil.which, _COMPILERS)):
        raise UsageError(f"--compile needs a C++ compiler ({' or '.join(_COMPILERS)}): install one, or leave it out")
    if config.compile and config.recompute:
        raise UsageError("--compile and --recompute both decide what is kept for the backward pass: leave one out")
    if config.dataset_percentage == 0:
        raise UsageError("--dataset_percentage 0 leaves nothing to train on")


def begin_with(network: torch.nn.Module, path: Path) -> None:
    """Load the weights of a checkpoint or run. Raises UsageError if they are of another network."""
    found = checkpoint.find(path)
    try:
        network.load_state_dict(found.weights)
    except RuntimeError as error:
        told = first_line(error) if (lines := str(error).splitlines())[1:] == [] else lines[1].strip()
        raise UsageError(f"--init_checkpoint {path} does not fit this network and its classes: {told}") from None


def check_batches(config: TrainConfig, batches: Batches, num_samples: int) -> None:
    """Raises UsageError for batches that some part of the run cannot use."""
    if (config.mixup_alpha or config.cutmix_alpha) and batches.micro_batch % 2:
        raise UsageError(f"mixing pairs neighbours: --micro_batch_size {batches.micro_batch} must be even")
    if config.norm == "batch" and batches.micro_batch == 1:
        raise UsageError("batch norm needs --micro_batch_size 2 or more, or --norm group: over one value it has no variance")
    if batches.global_batch > num_samples:
        raise UsageError(f"the global batch of {batches.global_batch} is larger than the {num_samples} training pictures")
    epochs = Epochs(num_samples, batches.global_batch, 1)
    start, end = epochs.window(epochs.steps_per_epoch - 1)
    if config.norm == "batch" and batches.replicas > 1 and end - start < 2 * batches.replicas:
        raise UsageError(
            f"the last update of an epoch has {end - start} pictures for {batches.replicas} replicas, and batch norm needs 2 "
            "each: choose another --global_batch_size, or --norm group"
        )


def make_schedule(config: TrainConfig, batches: Batches, steps: int, steps_per_epoch: int) -> Schedule:
    """The learning rate as a function of the update."""
    try:
        drops = tuple(float(drop) for drop in config.lr_drops)
    except ValueError:
        drops = (-1.0,)
    if not all(0 <= drop <= 1 for drop in drops):
        raise UsageError(f"--lr_drops {' '.join(config.lr_drops)}: parts of the run are needed, numbers from 0 to 1")
    if config.warmup_epochs * steps_per_epoch >= steps:
        raise UsageError(
            f"--warmup_epochs {config.warmup_epochs:g} is the whole run or more ({steps / steps_per_epoch:g} epochs)"
        )
    return Schedule(
        peak=peak_rate(config, batches),
        shape=config.lr_schedule,
        total_steps=steps,
        steps_per_epoch=steps_per_epoch,
        drops=drops,
        decay=config.lr_decay,
        decay_epochs=config.lr_decay_epochs or 1.0,
        power=config.lr_power,
        end_factor=config.lr_end,
        warmup_epochs=config.warmup_epochs,
        warmup_mode=config.warmup_mode,
        staircase=config.lr_staircase,
        updates_per_epoch=config.lr_updates_per_epoch,
    )


def optimiser_options(config: TrainConfig) -> OptimiserOptions:
    """The part of the options that makes the optimiser."""
    return OptimiserOptions(
        name=config.optimizer,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        l2=config.l2,
        epsilon=config.optimizer_eps,
        rmsprop_decay=config.rmsprop_decay,
        trust=config.lars_trust,
    )


def device_of(config: TrainConfig, world: World | None = None) -> torch.device:
    """The device of this process; each replica of a host has a GPU of its own. Raises UsageError if it is not there."""
    has_gpu = torch.cuda.is_available()
    name = config.device if config.device != "auto" else "cuda" if has_gpu else "cpu"
    if name.startswith("cuda") and not has_gpu:
        raise UsageError(f"--device {config.device}: torch finds no GPU here")
    if name == "cuda" and world is not None and world.replicas > 1:
        name = f"cuda:{world.local_rank}"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {config.device!r} is not known: give cpu, cuda or auto") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"--device {name}: torch finds {torch.cuda.device_count()} GPU(s) here")
    return device


def told_plan(training: Training, batches: Batches, data: Data, num_parameters: int) -> dict[str, str]:
    """What was resolved, for the screen and arguments.json."""
    epochs, schedule = training.epochs, training.schedule
    held_out = "none" if data.held_out is None else f"{len(data.held_out.labels)} pictures"
    return {
        "network": f"{training.facts['network']['model']}, {num_parameters:,} parameters, input {data.size}x{data.size}",
        "data": f"{data.name}: {epochs.num_samples} pictures, {len(data.train.class_names)} classes; validation: {held_out}",
        "batches": f"micro batch {batches.micro_batch} x accumulation {batches.accumulation} x replicas {batches.replicas} = "
        f"global batch {batches.global_batch}",
        "length": f"{epochs.total_steps} updates, {epochs.steps_per_epoch} an epoch",
        "rate": f"{schedule.shape}, {schedule.peak:g} at its peak, first {schedule.rate(0):.4g}, "
        f"last {schedule.rate(epochs.total_steps - 1):.4g}",
        "precision": f"{training.precision.name}{of_halves(training)} on {training.mean.device}",
    }


def of_halves(training: Training) -> str:
    """The type of 16 bits, where there are any."""
    precision = training.precision
    return "" if precision.name == "32.32" else f" ({precision.half_type})"


def print_plan(plan: dict[str, Any]) -> None:
    """The resolved plan on the screen."""
    for name, text in plan.items():
        say(f"{name}: {text}")
