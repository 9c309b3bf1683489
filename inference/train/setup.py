"""From options to a run that can start: data, network, batches, schedule, all resolved and checked before the first update."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from inference.card import Recipe
from inference.config import training_data_dir
from inference.cores import core_budget
from inference.errors import UsageError
from inference.get_dataset import Request, folder_of, get_dataset
from inference.published_sets import SETS
from inference.readers import detect, find_reader, read_dataset
from inference.readers.types import ArrayPictures, FilePictures
from inference.runlog import say, versions
from inference.train import checkpoint
from inference.train.augment import Mixing
from inference.train.built import build
from inference.train.data import Samples, array_samples, file_samples, recipe_for
from inference.train.fakes import generated_samples, synthetic_samples
from inference.train.loop import Training
from inference.train.networks import NetworkOptions, find_trainable, image_size
from inference.train.optimisers import OptimiserOptions, chosen_parameters, make_optimiser
from inference.train.options import TrainConfig
from inference.train.plan import Batches, Epochs, solve, steps_in, total_steps
from inference.train.recompute import recompute
from inference.train.schedules import Schedule
from inference.train.step import LossScale, Precision

_FAKE = ("generated", "synthetic")
_SMALL = 64  # pictures up to this side are flipped and shifted, larger ones cropped and resized


@dataclass(frozen=True, slots=True)
class World:
    """The processes that share an update: this one's number and how many there are."""

    rank: int
    replicas: int


def join_world(asked: int) -> World:
    """The replicas that torchrun started. Raises UsageError where another number is asked for."""
    rank, replicas = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if asked and asked != replicas:
        raise UsageError(
            f"--replicas {asked}, but {replicas} process(es) run: start them with torchrun --nproc_per_node {asked}"
        )
    if replicas > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return World(rank, replicas)


@dataclass(frozen=True, slots=True)
class DataPlan:
    """The data sets as they were found, and how their pictures are prepared."""

    name: str
    data_dir: Path
    train: Samples
    held_out: Samples | None
    recipe: Recipe
    size: int
    crops: bool  # training pictures are cropped and resized at random while they are loaded


def find_data(config: TrainConfig) -> tuple[str, Path]:
    """The data set's name and folder; a small one that is not there is fetched, unless that is switched off.

    Raises UsageError where there is none.
    """
    place = Path(training_data_dir(config.data_dir))
    name = config.dataset
    if not name:
        name = detect(place) if config.data_dir or os.environ.get("DATA_DIR") else "cifar10"
    if name in _FAKE or find_reader(name).holds(place):
        return name, place
    if name in SETS and (there := folder_of(name, place)):
        return name, there
    if name in SETS and config.download:
        return name, get_dataset(Request(name, place), say)
    return name, place


def open_data(config: TrainConfig, model: str) -> DataPlan:
    """Read what --dataset and --data_dir name. Raises UsageError or RunError where they are missing or broken."""
    size = config.image_size or image_size(model)
    threads = config.num_workers or core_budget().usable
    name, folder = find_data(config)
    if name in _FAKE:
        recipe = recipe_for(name, size, whole=True)
        make = generated_samples if name == "generated" else synthetic_samples
        return DataPlan(name, folder, make(size, config.seed), None, recipe, size, crops=False)
    train = read_dataset(name, folder, "train", class_order=config.class_order)
    held_out = None if config.validation == "none" else read_dataset(name, folder, "valid", class_order=config.class_order)
    in_memory = isinstance(train, ArrayPictures)
    recipe = recipe_for(name, size, whole=in_memory)
    crops = config.augment == "resized_crop" or (config.augment == "auto" and not in_memory and size > _SMALL)
    area = (float(config.crop_area[0]), float(config.crop_area[-1])) if crops else None

    def samples(pictures: ArrayPictures | FilePictures, crop_area: tuple[float, float] | None) -> Samples:
        if isinstance(pictures, ArrayPictures):
            return array_samples(
                pictures, recipe, cache_bytes=config.cache_mb * 1_000_000, num_threads=threads, seed=config.seed
            )
        return file_samples(pictures, recipe, num_threads=threads, seed=config.seed, crop_area=crop_area)

    validation = None if held_out is None else samples(held_out, None)
    return DataPlan(name, folder, samples(train, area), validation, recipe, size, crops)


def network_options(config: TrainConfig, num_classes: int) -> NetworkOptions:
    """The part of the options that makes the network."""
    return NetworkOptions(
        model=find_trainable(config.model),
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


def set_up(config: TrainConfig) -> tuple[Training, dict[str, str]]:
    """Everything for a run, and the resolved plan by name for the screen. Raises UsageError for whatever cannot work."""
    world = join_world(config.replicas)
    model = find_trainable(config.model)
    data = open_data(config, model)
    batches = solve(
        config.micro_batch_size, config.gradient_accumulation, world.replicas, config.global_batch_size, default_micro_batch=128
    )
    num_samples = max(1, int(len(data.train.labels) * config.dataset_percentage / 100))
    check_batches(config, batches, num_samples)
    steps_per_epoch = steps_in(num_samples, batches.global_batch)
    steps = total_steps(config.epochs or 100.0, config.steps, steps_per_epoch)
    schedule = make_schedule(config, batches, steps, steps_per_epoch)
    device = device_of(config)
    precision = Precision(config.precision, device.type)
    torch.manual_seed(config.seed)
    options = network_options(config, len(data.train.class_names))
    network = build(options).to(device, precision.weights)
    if config.channels_last:
        network = network.to(memory_format=torch.channels_last)
    if config.init_checkpoint:
        network.load_state_dict(checkpoint.find(Path(config.init_checkpoint)).weights)
    recompute(network, config.recompute)
    parameters = chosen_parameters(network, config.train_only)
    mean, std = (torch.tensor(values, device=device) for values in (data.recipe.mean, data.recipe.std))
    augment = data.size <= _SMALL if config.augment == "auto" else config.augment == "flip_crop"
    training = Training(
        config=config,
        network=network,
        optimiser=make_optimiser(parameters.values(), optimiser_options(config)),
        samples=data.train,
        held_out=data.held_out,
        epochs=Epochs(num_samples, batches.global_batch, steps),
        schedule=schedule,
        scale=LossScale(config.loss_scaling_mode, config.loss_scaling),
        precision=precision,
        mixing=Mixing(config.mixup_alpha, config.cutmix_alpha, config.mix_probability),
        micro_batch=batches.micro_batch,
        rank=world.rank,
        replicas=world.replicas,
        mean=mean,
        std=std,
        flip=config.augment != "none" and not (config.augment == "auto" and data.name in ("mnist", "digits")),
        pad=data.size // 8 if augment else 0,
        facts={
            "started": time.perf_counter(),
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


def check_batches(config: TrainConfig, batches: Batches, num_samples: int) -> None:
    """Raises UsageError for batches that some part of the run cannot use."""
    if (config.mixup_alpha or config.cutmix_alpha) and batches.micro_batch % 2:
        raise UsageError(f"mixing pairs neighbours: --micro_batch_size {batches.micro_batch} must be even")
    if config.norm == "batch" and batches.micro_batch == 1:
        raise UsageError("batch norm needs --micro_batch_size 2 or more, or --norm group: over one value it has no variance")
    if batches.global_batch > num_samples:
        raise UsageError(f"the global batch of {batches.global_batch} is larger than the {num_samples} training pictures")


def make_schedule(config: TrainConfig, batches: Batches, steps: int, steps_per_epoch: int) -> Schedule:
    """The learning rate as a function of the update."""
    try:
        drops = tuple(float(drop) for drop in config.lr_drops)
    except ValueError:
        raise UsageError(f"--lr_drops {' '.join(config.lr_drops)}: these are no numbers") from None
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
    return OptimiserOptions(
        name=config.optimizer,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        l2=config.l2,
        epsilon=config.optimizer_eps,
        rmsprop_decay=config.rmsprop_decay,
        trust=config.lars_trust,
    )


def device_of(config: TrainConfig) -> torch.device:
    """Raises UsageError if it is not there."""
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if config.device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"--device {config.device}: torch finds no GPU here")
    try:
        return torch.device(config.device)
    except RuntimeError:
        raise UsageError(f"--device {config.device!r} is not known: give cpu, cuda or auto") from None


def told_plan(training: Training, batches: Batches, data: DataPlan, num_parameters: int) -> dict[str, str]:
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
        "precision": f"{training.precision.name} on {training.mean.device}",
    }


def print_plan(plan: dict[str, Any]) -> None:
    for name, text in plan.items():
        say(f"{name}: {text}")
