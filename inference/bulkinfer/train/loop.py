"""The training loop, in the open: validate now and then, save now and then, one update, log.

Shape letters: N batch, H height, W width, C channels, K classes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from bulkinfer.errors import RunError
from bulkinfer.train import checkpoint
from bulkinfer.train.augment import Mixing, flip_and_crop, mix, normalise
from bulkinfer.train.data import Samples, Work
from bulkinfer.train.draws import Integers, order, step_seed
from bulkinfer.train.opening import Augmentation
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.plan import Epochs, every, is_due, micro_batches, share
from bulkinfer.train.replicas import World, add_over_replicas
from bulkinfer.train.runs import Log, memory_mb
from bulkinfer.train.schedules import Schedule
from bulkinfer.train.step import LossScale, Outcome, Precision, run_step, targets_of
from bulkinfer.train.validation import Scores, evaluate


@dataclass
class Training:
    """All that a run is made of, resolved. `facts` go into each checkpoint; `best` is the best one that is kept.

    `chosen` are the indices of the samples that are trained on, `seconds_before` how long the run took before it was continued.
    """

    config: TrainConfig
    network: nn.Module
    forward: Callable[[Tensor], Tensor]  # the network, compiled where that is asked for
    optimiser: torch.optim.Optimizer
    samples: Samples
    chosen: Integers
    held_out: Samples | None
    epochs: Epochs
    schedule: Schedule
    scale: LossScale
    precision: Precision
    mixing: Mixing
    micro_batch: int
    world: World
    mean: Tensor
    std: Tensor
    augmentation: Augmentation
    facts: dict[str, Any]
    best: dict[str, Any] = field(default_factory=lambda: {"step": -1, "accuracy": -1.0})
    seconds_before: float = 0.0
    started: float = field(default_factory=time.perf_counter)


def train(training: Training, run: Log, done: int, stop: Callable[[], bool]) -> int:
    """Go on from `done` updates to the end, or until `stop()`; returns the updates done, the last of which is saved.

    Raises RunError for a loss that is not finite, unless those are skipped.
    """
    config, epochs = training.config, training.epochs
    save_every = every_of(config.checkpoints_per_epoch, epochs)
    log_every = every_of(config.logs_per_epoch, epochs)
    validate_every = validation_interval(config, epochs)
    first_save = config.first_checkpoint_epoch * epochs.steps_per_epoch
    training.network.train()
    window = Window()
    for outcome, rate, scale in updates(training, done):
        done += 1
        run.advance(epochs.pictures(done) - epochs.pictures(done - 1))
        window.add(outcome)
        if not outcome.finite:
            told_not_finite(training, run, done)
        last, stopped = done == epochs.total_steps, stop()
        saved = last or stopped or is_due(done, save_every, offset=first_save)
        if is_due(done, log_every) or last or stopped:
            log(training, run, window, done, rate, scale)
            window = Window()
        wanted = is_due(done, validate_every) or (last and config.validation != "none")
        if training.held_out and wanted and not stopped and training.world.is_first:
            try:
                validate(training, run, done, is_saved=saved)
            except RunError:  # a picture that is broken must not cost the updates
                save(training, run, done)
                raise
        if saved:
            save(training, run, done)
        if stopped and not last:
            break
        window.restart()
    return done


def validation_interval(config: TrainConfig, epochs: Epochs) -> float:
    """Updates between validations; the end of the run is not counted here."""
    if config.validation != "during" or not config.validation_epochs:
        return math.inf
    return config.validation_epochs * epochs.steps_per_epoch


def told_not_finite(training: Training, run: Log, done: int) -> None:
    """Say which update moved no weights. Raises RunError where that ends the run."""
    what = f"the loss or a gradient is not finite in update {done} (epoch {done / training.epochs.steps_per_epoch:.2f})"
    if training.scale.kind == "dynamic":
        run.say(f"{what}: skipped, the loss scale is {training.scale.value:g} now")
    elif training.config.on_nonfinite == "skip":
        run.say(f"{what}: skipped")
    else:
        raise RunError(f"{what}: lower the rate, or go on over such updates with --on_nonfinite skip")


def every_of(times_per_epoch: float, epochs: Epochs) -> float:
    """Updates between two events."""
    return every(Fraction(times_per_epoch).limit_denominator(1000), epochs.steps_per_epoch)


def updates(training: Training, done: int) -> Iterator[tuple[Outcome, float, float]]:
    """Each update's outcome, rate and loss scale, from the one after `done`."""
    config, epochs = training.config, training.epochs
    goes_on = config.on_nonfinite == "skip" or training.scale.kind == "dynamic"
    buffers = list(training.network.buffers()) if goes_on else []
    pending: list[tuple[Work, Tensor]] = []
    for work, images_NHWC in training.samples.batches(plan_work(training, done)):
        pending.append((work, images_NHWC))
        if not work.ends_step:
            continue
        start, end = epochs.window(done)
        rate, scale = training.schedule.rate(done), training.scale.at(done / epochs.total_steps)
        torch.manual_seed(step_seed(config.seed, done, training.world.rank))
        outcome = run_step(
            training.forward,
            training.optimiser,
            (make_input(training, item, images) for item, images in pending if len(images)),
            window_size=end - start,
            rate=rate,
            scale=scale,
            precision=training.precision,
            replicas=training.world.replicas,
            buffers=buffers,
        )
        training.scale.after(outcome.finite)
        pending = []
        done += 1
        yield outcome, rate, scale


def plan_work(training: Training, done: int) -> Iterator[Work]:
    """The micro batches of this replica from update `done` on: functions of seed and step alone."""
    epochs, seed = training.epochs, training.config.seed
    epoch = -1
    for step in range(done, epochs.total_steps):
        if epochs.epoch_of(step) != epoch:
            epoch = epochs.epoch_of(step)
            epoch_order = training.chosen[order(seed, epoch, epochs.num_samples)]
        start, end = share(*epochs.window(step), training.world.rank, training.world.replicas)
        pieces = micro_batches(start, end, training.micro_batch)
        for one, other in pieces or [(start, end)]:  # a replica for which nothing is left takes part all the same
            yield Work(step, epoch, epoch_order[one:other], ends_step=other == end)


def make_input(training: Training, work: Work, images_NHWC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A micro batch as the network takes it: augmented, normalised, mixed; with targets N x K and labels N."""
    assert work.epoch is not None, "validation does not come here"
    seed, samples, device = training.config.seed, work.samples, training.mean.device
    flip, pad = training.augmentation.flip, training.augmentation.pad
    images_NHWC = flip_and_crop(images_NHWC.to(device), seed, work.epoch, samples, flip=flip, pad=pad)
    images_NCHW = normalise(images_NHWC, training.mean, training.std, training.precision.input)
    labels_N = torch.from_numpy(training.samples.labels[samples]).to(device)
    targets_NK = targets_of(labels_N, len(training.samples.class_names), training.config.label_smoothing)
    if training.mixing.is_on:
        images_NCHW, targets_NK = mix(images_NCHW, targets_NK, training.mixing, seed, work.epoch, samples)
    return images_NCHW, targets_NK, labels_N


class Window:
    """What the updates since the last log line add up to; sums stay on the device until they are read."""

    def __init__(self) -> None:
        self._sums: Tensor | None = None
        self._seconds, self._since = 0.0, time.perf_counter()

    def add(self, outcome: Outcome) -> None:
        """One more update; the time since the last one was its."""
        now = time.perf_counter()
        sums = torch.stack([outcome.loss.double(), outcome.correct.double(), outcome.loss.new_tensor(outcome.count).double()])
        self._sums = sums if self._sums is None else self._sums + sums
        self._seconds, self._since = self._seconds + now - self._since, now

    def restart(self) -> None:
        """The time since the last update was not training."""
        self._since = time.perf_counter()

    def read(self, world: World) -> tuple[float, float, float]:
        """Mean loss, share of right answers, and pictures per second, of all replicas together."""
        assert self._sums is not None
        if world.replicas > 1:
            add_over_replicas([self._sums])
        loss, correct, count = self._sums.tolist()
        return loss / count, correct / count, count / self._seconds


def log(training: Training, run: Log, window: Window, done: int, rate: float, scale: float) -> None:
    """A line on the screen and a row of training.csv."""
    loss, accuracy, images_per_s = window.read(training.world)
    epoch = done / training.epochs.steps_per_epoch
    run.say(
        f"step: {done}, epoch: {epoch:.2f}, lr: {rate:.5g}, loss: {loss:.4f}, accuracy: {100 * accuracy:.2f} %, "
        f"throughput: {images_per_s:.1f} samples/sec"
    )
    run.training(
        {"step": done, "epoch": epoch, "learning_rate": rate, "loss": loss, "accuracy": accuracy,
         "images_per_sec": images_per_s, "loss_scale": scale, "memory_mb": memory_mb(), "total_s": seconds_so_far(training)}
    )  # fmt: skip


def seconds_so_far(training: Training) -> float:
    """How long the run took, also before it was continued."""
    return training.seconds_before + time.perf_counter() - training.started


def validate(training: Training, run: Log, done: int, *, is_saved: bool) -> Scores:
    """Validate the weights as they are; the best of those that are saved is remembered."""
    assert training.held_out is not None
    scores = evaluate(
        training.network,
        training.held_out,
        batch_size=training.config.valid_batch_size or training.micro_batch,
        precision=training.precision,
        mean=training.mean,
        std=training.std,
    )
    epoch = done / training.epochs.steps_per_epoch
    run.say(f"validation after epoch {epoch:.2f}: {scores.sentence()}")
    run.validation({"name": checkpoint.name_of(done), "step": done, "epoch": epoch, **scores.as_row()})
    if is_saved and scores.accuracy > training.best["accuracy"]:
        training.best = {"step": done, "accuracy": scores.accuracy}
    return scores


def save(training: Training, run: Log, done: int) -> None:
    """A checkpoint of `done` updates, by the first replica; older ones go."""
    if not training.world.is_first:
        return
    scale = {"value": training.scale.value, "good_steps": training.scale.good_steps}
    epoch = done / training.epochs.steps_per_epoch
    state = {**training.facts, "step": done, "epoch": epoch, "loss_scale": scale, "best": training.best,
             "total_s": seconds_so_far(training)}  # fmt: skip
    folder = checkpoint.save(run.folder, training.network, training.optimiser, state)
    checkpoint.prune(run.folder, keep_last=training.config.keep_last, best_step=training.best["step"])
    run.say(f"checkpoint: {folder}")
