"""From options to a run that can start: data, network, batches and schedule, checked before the first update."""

from __future__ import annotations

import copy
import importlib.util
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from bulkinfer.errors import UsageError
from bulkinfer.host.install_hint import install_command
from bulkinfer.host.versions import versions
from bulkinfer.train.averages.ema import Ema
from bulkinfer.train.checkpoints.first_weights import load_first_weights
from bulkinfer.train.data.augment import mixing_of
from bulkinfer.train.data.draws import spread
from bulkinfer.train.data.opening import Data, model_of, open_data
from bulkinfer.train.network.freezing import freeze, moving_norms
from bulkinfer.train.network.networks import NetworkOptions, build, network_options
from bulkinfer.train.network.recompute import NONE, recompute
from bulkinfer.train.options import DEFAULT_EPOCHS, MICRO_BATCH, TrainConfig
from bulkinfer.train.plan import Batches, Epochs, solve, total_steps
from bulkinfer.train.plan_text import plan_lines
from bulkinfer.train.ranks.group import Ranks
from bulkinfer.train.ranks.shared_norm import share_statistics
from bulkinfer.train.ranks.split_names import Split, find_splits
from bulkinfer.train.ranks.world import World
from bulkinfer.train.training import Model, Plan, Progress, Training, TrainingData
from bulkinfer.train.update.optimisers import optimiser_options
from bulkinfer.train.update.schedules import make_schedule
from bulkinfer.train.update.step import Precision, loss_scale_of
from bulkinfer.train.update.updating import Updater, rounding_seed


def set_up(config: TrainConfig, world: World, ranks: Ranks) -> tuple[Training, dict[str, str]]:
    """Set up a run; returns it with the lines of its plan. `config` comes from with_data_found() and with_defaults().

    A plan is for the `world`, which need not be the `ranks` that there are.

    Raises UsageError for everything that cannot work.
    """
    check_options(config)
    device = device_of(config, world)
    data = open_data(config)
    batches = batches_of(config, world)
    num_samples = max(1, int(len(data.train.labels) * config.dataset_percentage / 100))
    epochs = epochs_of(config, batches, num_samples)
    schedule = make_schedule(config, batches, epochs.total_steps, epochs.steps_per_epoch)
    precision = Precision(config.precision, device.type, config.half_type)
    torch.manual_seed(config.seed)
    options = network_options(config, model_of(config), len(data.train.class_names))
    network = network_of(config, options, device, precision)
    parameters = freeze(network, train_only=config.train_only, train_from=config.train_from)
    check_batches(config, batches, epochs, network, data.size)
    splits: list[Split] = []
    example_NCHW: torch.Tensor | None = None
    if config.stages > 1:
        example_NCHW = torch.zeros(batches.micro_batch, 3, data.size, data.size, dtype=precision.input, device=device)
        splits = find_splits(network, config, example_NCHW)
    model = model_for(config, network, parameters, precision, ranks, splits, example_NCHW)
    facts = {
        "config": asdict(config),
        "network": asdict(options),
        "dataset": data.name,
        "num_samples": num_samples,
        "global_batch": batches.global_batch,
        "class_names": list(data.train.class_names),
        "recipe": data.recipe.facts(),
        "versions": versions(),
    }
    training = Training(
        model=model,
        data=data_for(config, data, num_samples, device),
        plan=Plan(config, epochs, schedule, batches.micro_batch, world, facts),
        progress=Progress(),
        ranks=ranks,
    )
    return training, plan_lines(training, batches, data, splits)


def epochs_of(config: TrainConfig, batches: Batches, num_samples: int) -> Epochs:
    """How epochs are divided into updates. Raises UsageError if the stages of a network would have too few micro batches."""
    unit, least = 0, 1
    if config.stages > 1:
        unit = batches.micro_batch * batches.replicas
        least = 1 if config.pipeline_schedule == "sequential" else config.stages
        if batches.accumulation < least:
            raise UsageError(
                f"--pipeline_schedule {config.pipeline_schedule} needs {least} micro batches in an update, one for each "
                f"stage, and there are {batches.accumulation}: give --gradient_accumulation {least} or more, or sequential"
            )
    epochs = Epochs(num_samples, batches.global_batch, 1, config.updates_per_epoch, unit, least)
    if not epochs.steps_per_pass:
        raise UsageError(
            f"{num_samples} training pictures are less than the {least} micro batches of {unit} that stages need: give a "
            "smaller --micro_batch_size"
        )
    steps = total_steps(config.epochs or DEFAULT_EPOCHS, config.steps, epochs.steps_per_epoch)
    return replace(epochs, total_steps=steps)


def model_for(
    config: TrainConfig,
    network: torch.nn.Module,
    parameters: dict[str, torch.nn.Parameter],
    precision: Precision,
    ranks: Ranks,
    splits: Sequence[Split],
    example_NCHW: torch.Tensor | None,
) -> Model:
    """The network with an optimiser of its trained `parameters`, and, if that is asked for, its average.

    It is recomputed or compiled as the options say; with `splits` it is divided for micro batches such as `example_NCHW`.
    """
    ema = Ema(network, config.ema) if config.ema else None  # a copy, made before modules are wrapped
    if config.norm_span > 1 and ranks.are_many:
        share_statistics(network, ranks.make_group(config.norm_span))
    stage = None
    if example_NCHW is not None and ranks.are_many:
        from bulkinfer.train.ranks.stages import divide  # torch.export takes long to load

        if config.channels_last:
            example_NCHW = example_NCHW.contiguous(memory_format=torch.channels_last)
        schedule, recomputed, blocks = config.pipeline_schedule, config.recompute, [split.block for split in splits]
        stage = divide(network, blocks, example_NCHW, ranks, precision.autocast, schedule=schedule, recompute=recomputed)
    else:
        recompute(network, config.recompute)
    return Model(
        network=network,
        forward=torch.compile(network, dynamic=False) if config.compile else network,
        updater=Updater(
            parameters,
            optimiser_options(config),
            rounding_seed=rounding_seed(config),
            is_sharded=config.shard_optimizer and ranks.are_many,
            own=None if stage is None else stage.parameters,
        ),
        precision=precision,
        loss_scale=loss_scale_of(config),
        ema=ema,
        stage=stage,
    )


def data_for(config: TrainConfig, data: Data, num_samples: int, device: torch.device) -> TrainingData:
    """The data; what stays in memory is moved to the device."""
    data.train.move_to(device)
    if data.held_out is not None:
        data.held_out.move_to(device)
    mean, std = (torch.tensor(values, device=device) for values in (data.recipe.mean, data.recipe.std))
    return TrainingData(
        samples=data.train,
        chosen=spread(num_samples, len(data.train.labels)),
        held_out=data.held_out,
        mean=mean,
        std=std,
        augmentation=data.augmentation,
        mixing=mixing_of(config),
    )


def batches_of(config: TrainConfig, world: World) -> Batches:
    """The batch sizes. A plan leaves the number of replicas open, if the other numbers determine it."""
    is_open = config.dry_run and not config.replicas and world.replicas == 1
    replicas = 0 if is_open else world.replicas
    given = (config.micro_batch_size, config.gradient_accumulation, replicas, config.global_batch_size)
    return solve(*given, default_micro_batch=MICRO_BATCH)


def network_of(config: TrainConfig, options: NetworkOptions, device: torch.device, precision: Precision) -> torch.nn.Module:
    """The network with its first weights, on the device."""
    network = build(options)
    if config.init_checkpoint:
        load_first_weights(network, Path(config.init_checkpoint), options.num_classes)
    network = network.to(device, precision.weights)
    if config.channels_last:
        network = network.to(memory_format=torch.channels_last)
    return network


def check_options(config: TrainConfig) -> None:
    """Raises UsageError for options that are wrong for any data."""
    if config.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise UsageError(f"--tensorboard needs the package tensorboard: {install_command('tensorboard')}")
    if config.wandb and importlib.util.find_spec("wandb") is None:
        raise UsageError(f"--wandb needs the package wandb: {install_command('wandb')}")
    compiler = os.environ.get("CXX") or "g++"
    if config.compile and not shutil.which(compiler):
        raise UsageError(f"--compile needs a C++ compiler, and {compiler} was not found: install one or name it in $CXX")
    if config.compile and config.recompute not in ((), (NONE,)):
        raise UsageError("--compile and --recompute both decide what is kept for the backward pass: leave one out")
    if config.dataset_percentage == 0:
        raise UsageError("--dataset_percentage 0 leaves nothing to train on")


def check_batches(config: TrainConfig, batches: Batches, epochs: Epochs, network: torch.nn.Module, size: int) -> None:
    """Raises UsageError for batch sizes that do not work with mixing, the data, or batch norm where that is trained.

    `size` is the side of the pictures, in pixels.
    """
    if mixing_of(config).is_used and batches.micro_batch % 2:
        raise UsageError(f"mixup and cutmix mix pictures in pairs: --micro_batch_size {batches.micro_batch} must be even")
    has_batch_norm = any(moving_norms(network))
    check_span(config.norm_span, batches.replicas, has_batch_norm=has_batch_norm)
    if not has_batch_norm:
        return
    if batches.micro_batch * config.norm_span == 1:
        if not may_have_single_pictures(config):
            raise UsageError(
                "batch norm needs --micro_batch_size 2 or more, or --norm group, which --like tf1 sets for ImageNet: a single "
                "value has no variance"
            )
        check_single_values(network, size)
        return
    start, end = epochs.window(epochs.steps_per_pass - 1)
    groups = batches.replicas // config.norm_span
    if groups > 1 and end - start < 2 * groups:
        of = f"{groups} groups of {config.norm_span} replicas" if config.norm_span > 1 else f"{groups} replicas"
        raise UsageError(
            f"the last update of an epoch has {end - start} pictures for {of}, and batch norm needs 2 each: choose another "
            "--global_batch_size, or --norm group"
        )


def check_span(span: int, replicas: int, *, has_batch_norm: bool) -> None:
    """Raises UsageError if batch norm cannot take its statistics over so many replicas."""
    if span == 1:
        return
    if not has_batch_norm:
        raise UsageError(f"--norm_span {span}: the network has no batch norm that is trained: leave it out")
    if replicas % span:
        legal = [str(number) for number in range(2, replicas + 1) if replicas % number == 0] or [f"--replicas {span}"]
        raise UsageError(
            f"--norm_span {span} does not divide the number of replicas, {replicas}: give {' or '.join(legal)}, or leave it out"
        )


def may_have_single_pictures(config: TrainConfig) -> bool:
    """Whether batch norm may have micro batches of one picture: in a run that follows another trainer, as two begin with that.

    Such a run can be continued.
    """
    return config.like != TrainConfig.like or bool(config.resume)


def check_single_values(network: torch.nn.Module, size: int) -> None:
    """Raises UsageError if batch norm gets a single value of a channel from one picture, which has no variance."""
    on_meta = copy.deepcopy(network).to("meta")  # shapes alone
    weight = next(on_meta.parameters())
    try:
        on_meta(torch.empty(1, 3, size, size, dtype=weight.dtype, device=weight.device))
    except ValueError:
        raise UsageError(
            f"batch norm needs --micro_batch_size 2 or more here: at {size} x {size} pixels it gets a single value of a picture"
        ) from None


def device_of(config: TrainConfig, world: World | None = None) -> torch.device:
    """The device of this process; each replica of a host has its own GPU. Raises UsageError if there is no such device."""
    has_gpu = torch.cuda.is_available()
    name = config.device if config.device != "auto" else "cuda" if has_gpu else "cpu"
    if name.startswith("cuda") and not has_gpu:
        raise UsageError(f"--device {config.device}: torch finds no GPU here")
    if name == "cuda" and world is not None and world.size > 1:
        name = f"cuda:{world.local_rank}"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {config.device!r} is not known: give cpu, cuda or auto") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"--device {config.device}: give cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"--device {name}: torch finds {torch.cuda.device_count()} GPU(s) here")
    return device
