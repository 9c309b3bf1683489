"""The training loop, in the open: validate now and then, save now and then, one update, log.

Shape letters: N batch, H height, W width, C channels, K classes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from inference.errors import RunError
from inference.train import checkpoint
from inference.train.augment import Mixing, flip_and_crop, mix, normalise
from inference.train.data import Samples, Work
from inference.train.draws import order, step_seed
from inference.train.options import TrainConfig
from inference.train.plan import Epochs, every, is_due, micro_batches, share
from inference.train.runs import Run, memory_mb
from inference.train.schedules import Schedule
from inference.train.step import LossScale, Outcome, Precision, run_step, targets_of
from inference.train.validation import Scores, evaluate


@dataclass
class Training:
    """All that a run is made of, resolved. `identity` and the rest of `facts` go into each checkpoint."""

    config: TrainConfig
    network: nn.Module
    optimiser: torch.optim.Optimizer
    samples: Samples
    held_out: Samples | None
    epochs: Epochs
    schedule: Schedule
    scale: LossScale
    precision: Precision
    mixing: Mixing
    micro_batch: int
    rank: int
    replicas: int
    mean: Tensor
    std: Tensor
    flip: bool
    pad: int
    facts: dict[str, Any]
    best: dict[str, Any] = field(default_factory=lambda: {"step": -1, "accuracy": -1.0})


def train(training: Training, run: Run, done: int) -> None:
    """Go on from `done` updates to the end. Raises RunError for a loss that is not finite, unless those are skipped."""
    config, epochs = training.config, training.epochs
    save_every = every_of(config.checkpoints_per_epoch, epochs)
    log_every = every_of(config.logs_per_epoch or 1.0, epochs)
    validate_every = config.validation_epochs * epochs.steps_per_epoch if config.validation == "during" else math.inf
    first_save = config.first_checkpoint_epoch * epochs.steps_per_epoch
    training.network.train()
    window = Window()
    for outcome, rate, scale in updates(training, done):
        done += 1
        window.add(outcome)
        if not outcome.finite and config.on_nonfinite == "stop" and training.scale.kind != "dynamic":
            raise RunError(
                f"the loss or a gradient is not finite in update {done} (epoch {done / epochs.steps_per_epoch:.2f}): lower the "
                "rate, or go on over such updates with --on_nonfinite skip"
            )
        last = done == epochs.total_steps
        if is_due(done, log_every) or last:
            log(training, run, window, done, rate, scale)
            window = Window()
        if training.held_out and (is_due(done, validate_every) or (last and config.validation != "none")):
            validate(training, run, done)
            window.restart()
        if last or is_due(done, save_every, offset=first_save):
            save(training, run, done)
            window.restart()


def every_of(times_per_epoch: float, epochs: Epochs) -> float:
    """Updates between two events."""
    return every(Fraction(times_per_epoch).limit_denominator(1000), epochs.steps_per_epoch)


def updates(training: Training, done: int) -> Iterator[tuple[Outcome, float, float]]:
    """Each update's outcome, rate and loss scale, from the one after `done`."""
    config, epochs = training.config, training.epochs
    pending: list[tuple[Work, Tensor]] = []
    for work, images_NHWC in training.samples.batches(plan_work(training, done)):
        pending.append((work, images_NHWC))
        if not work.ends_step:
            continue
        start, end = epochs.window(done)
        rate, scale = training.schedule.rate(done), training.scale.at(done / epochs.total_steps)
        torch.manual_seed(step_seed(config.seed, done, training.rank))
        outcome = run_step(
            training.network,
            training.optimiser,
            (make_input(training, item, images) for item, images in pending),
            window_size=end - start,
            rate=rate,
            scale=scale,
            precision=training.precision,
            replicas=training.replicas,
        )
        training.scale.after(outcome.finite)
        pending = []
        done += 1
        yield outcome, rate, scale


def plan_work(training: Training, done: int) -> Iterator[Work]:
    """The micro batches of this replica from update `done` on: functions of seed and step alone."""
    epochs, seed = training.epochs, training.config.seed
    epoch = epochs.epoch_of(done)
    epoch_order = order(seed, epoch, epochs.num_samples)
    for step in range(done, epochs.total_steps):
        if epochs.epoch_of(step) != epoch:
            epoch += 1
            epoch_order = order(seed, epoch, epochs.num_samples)
        start, end = share(*epochs.window(step), training.rank, training.replicas)
        pieces = micro_batches(start, end, training.micro_batch)
        for one, other in pieces:
            yield Work(step, epoch, epoch_order[one:other], ends_step=other == end)


def make_input(training: Training, work: Work, images_NHWC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A micro batch as the network takes it: augmented, normalised, mixed; with targets N x K and labels N."""
    assert work.epoch is not None, "validation does not come here"
    seed, samples, device = training.config.seed, work.samples, training.mean.device
    images_NHWC = flip_and_crop(images_NHWC.to(device), seed, work.epoch, samples, flip=training.flip, pad=training.pad)
    images_NCHW = normalise(images_NHWC, training.mean, training.std, training.precision.input)
    labels_N = torch.from_numpy(training.samples.labels[samples]).to(device)
    targets_NK = targets_of(labels_N, len(training.samples.class_names), training.config.label_smoothing)
    if training.mixing.is_on:
        images_NCHW, targets_NK = mix(images_NCHW, targets_NK, training.mixing, seed, work.epoch, samples)
    return images_NCHW, targets_NK, labels_N


class Window:
    """What the updates since the last log line add up to; sums stay on the device until they are read."""

    def __init__(self) -> None:
        self._outcomes: list[Outcome] = []
        self._seconds, self._since = 0.0, time.perf_counter()

    def add(self, outcome: Outcome) -> None:
        """One more update; the time since the last one was its."""
        now = time.perf_counter()
        self._outcomes.append(outcome)
        self._seconds, self._since = self._seconds + now - self._since, now

    def restart(self) -> None:
        """The time since the last update was not training."""
        self._since = time.perf_counter()

    def read(self) -> tuple[float, float, float]:
        """Mean loss, share of right answers, and pictures per second of this replica."""
        loss = float(torch.stack([outcome.loss for outcome in self._outcomes]).double().sum())
        correct = int(torch.stack([outcome.correct for outcome in self._outcomes]).sum())
        count = sum(outcome.count for outcome in self._outcomes)
        return loss / count, correct / count, count / self._seconds


def log(training: Training, run: Run, window: Window, done: int, rate: float, scale: float) -> None:
    """A line on the screen and a row of training.csv."""
    loss, accuracy, images_per_s = window.read()
    epoch = done / training.epochs.steps_per_epoch
    images_per_s *= training.replicas
    run.say(
        f"step: {done}, epoch: {epoch:.2f}, lr: {rate:.5g}, loss: {loss:.4f}, accuracy: {100 * accuracy:.2f} %, "
        f"throughput: {images_per_s:.1f} samples/sec"
    )
    total_s = time.perf_counter() - training.facts["started"]
    run.training(
        {"step": done, "epoch": epoch, "learning_rate": rate, "loss": loss, "accuracy": accuracy,
         "images_per_sec": images_per_s, "loss_scale": scale, "memory_mb": memory_mb(), "total_s": total_s}
    )  # fmt: skip


def validate(training: Training, run: Run, done: int) -> Scores:
    """Validate the weights as they are; remembers the best."""
    assert training.held_out is not None
    batch_size = training.config.valid_batch_size or training.micro_batch
    scores = evaluate(
        training.network,
        training.held_out,
        batch_size=batch_size,
        precision=training.precision,
        mean=training.mean,
        std=training.std,
    )
    epoch = done / training.epochs.steps_per_epoch
    run.say(f"validation after epoch {epoch:.2f}: {scores.sentence()}")
    run.validation({"name": f"step-{done:08d}", "step": done, "epoch": epoch, **scores.as_row()})
    if scores.accuracy > training.best["accuracy"]:
        training.best = {"step": done, "accuracy": scores.accuracy}
    return scores


def save(training: Training, run: Run, done: int) -> None:
    """A checkpoint of `done` updates; older ones go."""
    facts = {name: value for name, value in training.facts.items() if name != "started"}
    scale = {"value": training.scale.value, "good_steps": training.scale.good_steps}
    epoch = done / training.epochs.steps_per_epoch
    state = {**facts, "step": done, "epoch": epoch, "loss_scale": scale, "best": training.best}
    if training.rank == 0:
        folder = checkpoint.save(run.folder, training.network, training.optimiser, state)
        checkpoint.prune(run.folder, keep_last=training.config.keep_last, best_step=training.best["step"])
        run.say(f"checkpoint: {folder}")
