"""The training loop, in the open: one update, log, validate now and then, save now and then.

Shape letters: N batch, H height, W width, C channels, K classes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from fractions import Fraction

import torch
from torch import Tensor

from bulkinfer.errors import PictureError, RunError
from bulkinfer.train import checkpoint
from bulkinfer.train.data.augment import flip_and_crop, mix, normalise
from bulkinfer.train.data.draws import order, step_seed
from bulkinfer.train.data.samples import Work
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.plan import Epochs, every, is_due, micro_batches, share
from bulkinfer.train.replicas import World, add_over_replicas
from bulkinfer.train.runs import Log, memory_mb
from bulkinfer.train.step import Outcome, run_step, targets_of
from bulkinfer.train.training import Training
from bulkinfer.train.validation.scores import evaluate
from bulkinfer.types import shell_word

Stop = Callable[[], int]  # asked after each update; an exit code other than 0 ends the run


def run_updates(training: Training, run: Log, stop: Stop) -> int:
    """Run updates from `training.progress.done` to the end, or until `stop()` gives an exit code; returns that code, or 0.

    The last update is always saved, and the last one before a picture that cannot be used. Raises PictureError for such a
    picture, RunError for a loss that is not finite, unless they are skipped.
    """
    progress, window = training.progress, Window(training.progress.window)
    try:
        return _run_updates(training, run, stop, window)
    except PictureError as error:
        if training.plan.world.replicas > 1 or not progress.done:
            raise PictureError(f"{error}: repair it, or leave it out with --on_bad_picture skip") from error
        progress.window = window.sums(training.plan.world)
        save(training, run)
        command = f"bulkinfer train --resume {shell_word(run.folder)}"
        raise PictureError(
            f"{error}: repair it, then {command} goes on; with --on_bad_picture skip it leaves it out"
        ) from error


def _run_updates(training: Training, run: Log, stop: Stop, window: Window) -> int:
    config, epochs, progress = training.plan.config, training.plan.epochs, training.progress
    save_every = updates_between(config.checkpoints_per_epoch, epochs)
    log_every = updates_between(config.logs_per_epoch, epochs)
    validate_every = validation_interval(config, epochs)
    first_save = config.first_checkpoint_epoch * epochs.steps_per_epoch
    if progress.owes_validation and training.plan.world.is_first:
        last = progress.done == epochs.total_steps
        validate(training, run, is_saved=last or is_due(progress.done, save_every, offset=first_save))
        if last:
            save(training, run)
    for outcome, rate, scale in updates(training):
        done = progress.done
        run.advance(epochs.pictures(done) - epochs.pictures(done - 1))
        window.add(outcome)
        if not outcome.finite:
            report_not_finite(training, run)
        last, code = done == epochs.total_steps, stop()
        is_planned = last or is_due(done, save_every, offset=first_save)
        is_saved = is_planned or bool(code)
        if is_due(done, log_every) or last:
            log_window(training, run, window, rate, scale)
            window.empty()
        is_validated = is_due(done, validate_every) or (last and config.validation != "none")
        if is_saved or is_validated:  # on all replicas
            progress.window = window.sums(training.plan.world)
        progress.owes_validation = training.data.held_out is not None and is_validated
        if progress.owes_validation and not code and training.plan.world.is_first:
            validate(training, run, is_saved=is_planned)
        if is_saved:
            save(training, run)
        if code and (not last or progress.owes_validation):
            return code
        window.restart()
    return 0


def updates_between(times_per_epoch: float, epochs: Epochs) -> float:
    """Updates between two events that happen so many times per epoch."""
    return every(Fraction(times_per_epoch).limit_denominator(1000), epochs.steps_per_epoch)


def validation_interval(config: TrainConfig, epochs: Epochs) -> float:
    """Updates between two validations during the run; the validation at its end is not counted."""
    if config.validation != "during" or not config.validation_epochs:
        return math.inf
    return config.validation_epochs * epochs.steps_per_epoch


def report_not_finite(training: Training, run: Log) -> None:
    """Say which update moved no weights. Raises RunError if that ends the run."""
    done, loss_scale = training.progress.done, training.model.loss_scale
    epoch = done / training.plan.epochs.steps_per_epoch
    what = f"the loss or a gradient is not finite in update {done} (epoch {epoch:.2f})"
    if loss_scale.kind == "dynamic":
        run.say(f"{what}: skipped, the loss scale is {loss_scale.value:g} now")
    elif training.plan.config.on_nonfinite == "skip":
        run.say(f"{what}: skipped")
    else:
        raise RunError(f"{what}: lower the rate, or go on over such updates with --on_nonfinite skip")


def updates(training: Training) -> Iterator[tuple[Outcome, float, float]]:
    """Run one update after the other; gives the outcome, rate and loss scale of each, and counts it in `progress.done`."""
    model, plan = training.model, training.plan
    epochs, world = plan.epochs, plan.world
    skips = plan.config.on_nonfinite == "skip" or model.loss_scale.kind == "dynamic"
    buffers = list(model.network.buffers()) if skips else []
    pending: list[tuple[Work, Tensor]] = []
    for work, images_NHWC in training.data.samples.batches(plan_work(training)):
        pending.append((work, images_NHWC))
        if not work.ends_step:
            continue
        start, end = epochs.window(work.step)
        rate, scale = plan.schedule.rate(work.step), model.loss_scale.at(work.step / epochs.total_steps)
        torch.manual_seed(step_seed(plan.config.seed, work.step, world.rank))
        if size := pictures_of(training, pending, end - start):
            outcome = run_step(
                model.forward,
                model.optimiser,
                (make_input(training, item, images) for item, images in pending if len(images)),
                window_size=size,
                rate=rate,
                scale=scale,
                precision=model.precision,
                replicas=world.replicas,
                buffers=buffers,
            )
            model.loss_scale.after(outcome.finite)
        else:
            nothing = torch.zeros((), device=training.data.device)
            outcome = Outcome(nothing, nothing, 0, finite=True)
        pending = []
        training.progress.done = work.step + 1
        yield outcome, rate, scale


def pictures_of(training: Training, pending: list[tuple[Work, Tensor]], planned: int) -> int:
    """The pictures of an update, on all replicas: those planned, without those that were left out."""
    if training.plan.config.on_bad_picture != "skip":
        return planned
    count = torch.tensor([float(sum(len(images) for _, images in pending))], device=training.data.device)
    if training.plan.world.replicas > 1:
        add_over_replicas([count])
    return int(count)


def plan_work(training: Training) -> Iterator[Work]:
    """The micro batches of this replica from update `progress.done` on: functions of the seed and the update alone."""
    plan = training.plan
    epochs, seed, world = plan.epochs, plan.config.seed, plan.world
    epoch = -1
    for step in range(training.progress.done, epochs.total_steps):
        if epochs.epoch_of(step) != epoch:
            epoch = epochs.epoch_of(step)
            epoch_order = training.data.chosen[order(seed, epoch, epochs.num_samples)]
        start, end = share(*epochs.window(step), world.rank, world.replicas)
        pieces = micro_batches(start, end, plan.micro_batch)
        for one, other in pieces or [(start, end)]:  # a replica for which nothing is left takes part all the same
            yield Work(step, epoch, epoch_order[one:other], ends_step=other == end)


def make_input(training: Training, work: Work, images_NHWC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A micro batch as the network takes it: augmented, normalised, mixed; with targets N x K and labels N."""
    assert work.epoch is not None, "validation does not come here"
    data, config, samples = training.data, training.plan.config, work.samples
    flip, pad = data.augmentation.flip, data.augmentation.pad
    images_NHWC = flip_and_crop(images_NHWC.to(data.device), config.seed, work.epoch, samples, flip=flip, pad=pad)
    images_NCHW = normalise(images_NHWC, data.mean, data.std, training.model.precision.input)
    labels_N = torch.from_numpy(data.samples.labels[samples]).to(data.device)
    targets_NK = targets_of(labels_N, len(data.samples.class_names), config.label_smoothing)
    if data.mixing.is_used:
        images_NCHW, targets_NK = mix(images_NCHW, targets_NK, data.mixing, config.seed, work.epoch, samples)
    return images_NCHW, targets_NK, labels_N


class Window:
    """Sums over the updates since the last row of training.csv; they stay on the device until they are read.

    `before` is what sums() gave when the run was stopped between two rows: loss, right answers, pictures, seconds.
    """

    def __init__(self, before: tuple[float, ...] = ()) -> None:
        *sums, self._seconds = before or (0.0,)
        self._sums: Tensor | None = torch.tensor(sums, dtype=torch.float64) if sums else None
        self._since = time.perf_counter()

    def empty(self) -> None:
        """Begin a new row."""
        self._sums, self._seconds, self._since = None, 0.0, time.perf_counter()

    def add(self, outcome: Outcome) -> None:
        """Add an update; it took the time since the update before."""
        now = time.perf_counter()
        sums = torch.stack([outcome.loss.double(), outcome.correct.double(), outcome.loss.new_tensor(outcome.count).double()])
        self._sums = sums if self._sums is None else self._sums.to(sums.device) + sums
        self._seconds, self._since = self._seconds + now - self._since, now

    def restart(self) -> None:
        """Leave out the time since the last update: it was not training."""
        self._since = time.perf_counter()

    def sums(self, world: World) -> tuple[float, ...]:
        """Loss, right answers, pictures of all replicas together, and seconds; () before the first update."""
        if self._sums is None:
            return ()
        sums = self._sums.clone()
        if world.replicas > 1:
            add_over_replicas([sums])
        return (*sums.tolist(), self._seconds)

    def read(self, world: World) -> tuple[float, float, float]:
        """Mean loss, share of right answers, and pictures per second, of all replicas together."""
        loss, correct, count, seconds = self.sums(world)
        if not count:  # all their pictures were left out
            return math.nan, math.nan, 0.0
        return loss / count, correct / count, count / seconds


def log_window(training: Training, run: Log, window: Window, rate: float, scale: float) -> None:
    """Write a line to the log and a row to training.csv."""
    loss, accuracy, images_per_s = window.read(training.plan.world)
    done, total_s = training.progress.done, training.progress.total_s
    epoch = done / training.plan.epochs.steps_per_epoch
    run.say(
        f"step: {done}, epoch: {epoch:.2f}, lr: {rate:.5g}, loss: {loss:.4f}, accuracy: {100 * accuracy:.2f} %, "
        f"throughput: {images_per_s:.1f} samples/sec"
    )
    run.training(
        {"step": done, "epoch": epoch, "learning_rate": rate, "loss": loss, "accuracy": accuracy,
         "images_per_sec": images_per_s, "loss_scale": scale, "memory_mb": memory_mb(), "total_s": total_s}
    )  # fmt: skip


def validate(training: Training, run: Log, *, is_saved: bool) -> None:
    """Validate the present weights; if they are saved too, remember them if they are the best."""
    data, plan, progress = training.data, training.plan, training.progress
    assert data.held_out is not None
    scores = evaluate(
        training.model.network,
        data.held_out,
        batch_size=plan.config.valid_batch_size or plan.micro_batch,
        precision=training.model.precision,
        mean=data.mean,
        std=data.std,
    )
    done = progress.done
    epoch = done / plan.epochs.steps_per_epoch
    run.say(f"validation after epoch {epoch:.2f}: {scores.sentence()}")
    run.validation({"name": checkpoint.name_of(done), "step": done, "epoch": epoch, **scores.as_row()})
    progress.last_accuracy, progress.owes_validation = scores.accuracy, False
    if is_saved and scores.accuracy > progress.best["accuracy"]:
        progress.best = {"step": done, "accuracy": scores.accuracy}


def save(training: Training, run: Log) -> None:
    """The first replica saves a checkpoint and removes older ones that are not to be kept."""
    model, plan, progress = training.model, training.plan, training.progress
    if not plan.world.is_first:
        return
    scale = {"value": model.loss_scale.value, "good_steps": model.loss_scale.good_steps}
    epoch = progress.done / plan.epochs.steps_per_epoch
    state = {**plan.facts, "step": progress.done, "epoch": epoch, "loss_scale": scale, "best": progress.best,
             "total_s": progress.total_s, "window": progress.window, "owes_validation": progress.owes_validation}  # fmt: skip
    progress.checkpoint = checkpoint.save(run.folder, model.network, model.optimiser, state)
    checkpoint.prune(run.folder, keep_last=plan.config.keep_last, best_step=progress.best["step"])
    run.say(f"checkpoint: {progress.checkpoint}")
