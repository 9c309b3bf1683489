"""`bulkinfer validate`: the accuracy of checkpoints or of a network on validation pictures, or the speed of a network."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bulkinfer.errors import BulkinferError, PictureError, RunError, UsageError
from bulkinfer.files.atomic import naming
from bulkinfer.model.recipe import Recipe
from bulkinfer.train.checkpoints import checkpoint, state
from bulkinfer.train.checkpoints.checkpoint import Checkpoint
from bulkinfer.train.checkpoints.state import options_of_state
from bulkinfer.train.data.opening import open_held_out
from bulkinfer.train.data.samples import Samples
from bulkinfer.train.network.networks import rebuild
from bulkinfer.train.options import MICRO_BATCH, TrainConfig
from bulkinfer.train.runs import AVERAGE, EMA, RAW, VALIDATION_COLUMNS, as_text, read_table, write_table
from bulkinfer.train.setup import device_of
from bulkinfer.train.update.step import Precision, warn_if_emulated
from bulkinfer.train.validation.classes import relabelled
from bulkinfer.train.validation.networks import network_for_speed, open_subject, validate_subject
from bulkinfer.train.validation.options import ValidateConfig
from bulkinfer.train.validation.scores import Scores, evaluate

log = logging.getLogger("bulkinfer")

_BATCHES = 100  # per pass over generated pictures


def validate(config: ValidateConfig) -> None:
    """Validate what the options name, and log the scores.

    Raises UsageError if there is no checkpoint, RunError if one or the data are damaged.
    """
    try:
        _validate(config)
    except PictureError as error:
        raise PictureError(f"{error}: repair it, or leave it out with --on_bad_picture skip") from error


def _validate(config: ValidateConfig) -> None:
    warn_if_emulated(Precision(config.precision, device_of(TrainConfig(device=config.device)).type, config.half_type))
    if config.generated_data:
        measure(config)
        return
    if not config.path:
        validate_network(config)
        return
    paths = checkpoints_of(Path(config.path))
    folder = paths[0].parent.parent
    keeps_rows = Path(os.path.abspath(config.path)) == folder and not config.data_dir
    done = scored(folder) if keeps_rows and not config.again else set()
    todo = [path for path in paths if (path.name, weights_in(path, config.weights_of)) not in done]
    if len(todo) < len(paths):
        log.info(f"{len(paths) - len(todo)} of {len(paths)} checkpoints are in validation.csv already: --again repeats them")
    held_out: Samples | None = None
    damaged = []
    for path in todo:
        try:
            found = checkpoint.read(path)
            network = rebuild(found.state["network"], found.tensors(found.weights_file(config.weights_of)), path)
        except BulkinferError as error:
            damaged.append(path.name)
            log.warning(f"{error}")
            continue
        options = run_options(found, config)
        if held_out is None:
            held_out = open_held_out(options, Recipe(**found.state["recipe"]))
            held_out = relabelled(held_out, found.state["class_names"], options.data_dir)
        scores, weights = score(network, found, held_out, options, config), weights_in(path, config.weights_of)
        log.info(f"{path.name}{f' ({EMA})' if weights == EMA else ''}: {scores.sentence()}")
        if not config.data_dir:
            save_scores(folder, found, scores, weights)
    if damaged:
        raise RunError(f"{folder}: damaged and not validated: {', '.join(damaged)}: remove them, or give one of the others")


def validate_network(config: ValidateConfig) -> None:
    """Log the scores of a network that was not trained here."""
    subject = open_subject(config)
    device = device_of(TrainConfig(device=config.device))
    precision = Precision(config.precision, device.type, config.half_type)
    scores = validate_subject(subject, batch_size=config.valid_batch_size or MICRO_BATCH, precision=precision, device=device)
    log.info(f"{subject.name}: {scores.sentence()}")


def checkpoints_of(path: Path) -> list[Path]:
    """The checkpoints at a path, ascending, and behind them their averages. Raises UsageError if there are none."""
    path = Path(os.path.abspath(path))
    if path.is_file():
        path = path.parent
    if (path / state.FILE).exists():
        return [path]
    if found := checkpoint.steps_of(path):
        return [*found, *checkpoint.averages_of(path)]
    raise UsageError(f"{path} holds no checkpoint: give a run folder below logs/, or one of its checkpoints")


def run_options(found: Checkpoint, config: ValidateConfig) -> TrainConfig:
    """The options of the run that a checkpoint belongs to, with the data options given now."""
    options = TrainConfig(**options_of_state(found.state))
    of_run = ("", "") if config.data_dir else (options.image_column, options.label_column)
    return replace(
        options,
        data_dir=config.data_dir or options.data_dir,
        image_column=config.image_column or of_run[0],
        label_column=config.label_column or of_run[1],
        num_workers=config.num_workers,
        cache_mb=config.cache_mb,
        device=config.device,
        on_bad_picture="skip" if config.on_bad_picture == "skip" else options.on_bad_picture,
    )


def score(
    network: torch.nn.Module, found: Checkpoint, held_out: Samples, options: TrainConfig, config: ValidateConfig
) -> Scores:
    """The scores of a checkpoint, with its network."""
    device = device_of(options)
    precision = Precision(config.precision, device.type, config.half_type)
    network = network.to(device, precision.weights)
    if options.channels_last:
        network = network.to(memory_format=torch.channels_last)
    mean, std = (torch.tensor(found.state["recipe"][name], device=device) for name in ("mean", "std"))
    batch_size = config.valid_batch_size or options.valid_batch_size or options.micro_batch_size or MICRO_BATCH
    return evaluate(network, held_out, batch_size=batch_size, precision=precision, mean=mean, std=std)


def scored(folder: Path) -> set[tuple[str, str]]:
    """Name of the checkpoint and kind of the weights (raw or ema) of each row of validation.csv."""
    return {(row["name"], row.get("weights") or RAW) for row in read_table(folder / "validation.csv")}


def weights_in(path: Path, asked: str) -> str:
    """The kind of the weights (for the column of validation.csv) that --weights_of names, of the checkpoint in a folder."""
    if state.AVERAGE_NAME.fullmatch(path.name):
        return AVERAGE
    return EMA if asked == EMA or (asked == "auto" and (path / checkpoint.EMA).exists()) else RAW


def save_scores(folder: Path, found: Checkpoint, scores: Scores, weights: str = RAW) -> None:
    """Write the checkpoint's row of validation.csv, replacing an earlier one, and the confusion matrix beside it."""
    path, name = folder / "validation.csv", found.path.name
    rows = [{**row, "weights": row.get("weights") or RAW} for row in read_table(path)]
    rows = [row for row in rows if (row["name"], row["weights"]) != (name, weights)]
    row = {"name": name, "step": found.step, "epoch": found.state["epoch"], **scores.as_row(), "weights": weights}
    rows.append({column: as_text(row[column]) for column in VALIDATION_COLUMNS})
    write_table(path, VALIDATION_COLUMNS, sorted(rows, key=lambda row: (int(row["step"]), row["weights"] == EMA)))
    confusion = folder / f"confusion-{name}{f'-{EMA}' if weights == EMA else ''}.csv"
    with naming(confusion):
        np.savetxt(confusion, scores.confusion, fmt="%d", delimiter=",")


def measure(config: ValidateConfig) -> None:
    """Log the images per second and the latency of a batch on random pictures; the first pass is a warm-up."""
    found = checkpoint.find(Path(config.path)) if config.path else None
    if found is None:
        model, network, side = network_for_speed(config)
        log.info(f"{model}: random weights: only the speed has a meaning")
    else:
        side = found.state["recipe"]["height"]
        network = rebuild(found.state["network"], found.tensors(found.weights_file(config.weights_of)), found.path)
    device = device_of(TrainConfig(device=config.device))
    precision = Precision(config.precision, device.type, config.half_type)
    network = network.to(device, precision.weights).to(memory_format=torch.channels_last)
    images_NCHW = torch.randn(config.valid_batch_size or MICRO_BATCH, 3, side, side, device=device, dtype=precision.input)
    images_NCHW = images_NCHW.contiguous(memory_format=torch.channels_last)
    times_s: list[float] = []
    with torch.inference_mode(), precision.autocast():
        for index in range(_BATCHES * (config.repeat + 1)):
            start = time.perf_counter()
            float(network(images_NCHW).sum())  # waits for the device
            if index >= _BATCHES:
                times_s.append(time.perf_counter() - start)
    mean_s, *percentiles = np.mean(times_s), *np.percentile(times_s, (50, 95, 99))
    latency = ", ".join(f"p{p} {1000 * value:.2f}" for p, value in zip((50, 95, 99), percentiles, strict=True))
    log.info(
        f"throughput: {len(images_NCHW) / mean_s:.1f} images/sec; latency of a batch in ms: mean {1000 * mean_s:.2f}, {latency}"
    )
