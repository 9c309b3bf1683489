"""The training loop, in the open: one update, log, validate now and then, save now and then.

Shape letters: N batch, H height, W width, C channels, K classes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from fractions import Fraction

import torch
from torch import Tensor

from bulkinfer.errors import PictureError
from bulkinfer.train.checkpoints.saving import save
from bulkinfer.train.data.augment import flip_and_crop, mix, normalise
from bulkinfer.train.data.draws import order, step_seed
from bulkinfer.train.data.samples import Work
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.plan import Epochs, every, is_due, micro_batches_of
from bulkinfer.train.runs import Log
from bulkinfer.train.tracking.profiler import profiled
from bulkinfer.train.tracking.target import report_missed_target
from bulkinfer.train.training import Training
from bulkinfer.train.update.step import Outcome, Stop, run_step, targets_of
from bulkinfer.train.validation.during_run import validate
from bulkinfer.train.window import Window, log_window, report_not_finite
from bulkinfer.types import shell_word


def run_updates(training: Training, run: Log, stop: Stop) -> int:
    """Run updates from `training.progress.done` to the end, or until `stop()` gives an exit code; returns that code, or 0.

    The last update is always saved, and the last one before a picture that cannot be used. Raises PictureError for such a
    picture, RunError for a loss that is not finite, unless they are skipped.
    """
    progress, window = training.progress, Window(training.progress.window)
    progress.started = time.perf_counter()  # what was loaded and checked before is not the run's time
    try:
        return _run_updates(training, run, stop, window)
    except PictureError as error:
        if training.ranks.are_many or not progress.done:
            raise PictureError(f"{error}: repair it, or leave it out with --on_bad_picture skip") from error
        progress.window = window.sums(training.ranks)
        save(training, run)
        command = f"bulkinfer train --resume {shell_word(run.folder)}"
        raise PictureError(
            f"{error}: repair it, then {command} goes on; with --on_bad_picture skip it leaves it out"
        ) from error


def _run_updates(training: Training, run: Log, stop: Stop, window: Window) -> int:
    config, epochs, progress = training.plan.config, training.plan.epochs, training.progress
    save_every = updates_between(config.checkpoints_per_epoch, epochs)
    log_every = config.log_updates or updates_between(config.logs_per_epoch, epochs)
    validate_every = validation_interval(config, epochs)
    first_save = config.first_checkpoint_epoch * epochs.steps_per_epoch
    if progress.owes_validation:
        last = progress.done == epochs.total_steps
        is_over = validate(training, run, is_saved=last or is_due(progress.done, save_every, offset=first_save))
        if last or is_over:
            save(training, run)
        if is_over:
            return 0
    for outcome, rate, scale in profiled(updates(training, stop), training, run):
        done = progress.done
        run.advance(epochs.pictures(done) - epochs.pictures(done - 1))
        window.add(outcome)
        if not outcome.finite:
            report_not_finite(training, run)
        last, code = done == epochs.total_steps, outcome.stop
        is_planned = last or is_due(done, save_every, offset=first_save)
        is_saved = is_planned or bool(code)
        if is_due(done, log_every) or last:
            log_window(training, run, window, rate, scale)
            window.empty()
        is_validated = is_due(done, validate_every) or (last and config.validation != "none")
        if is_saved or is_validated:  # on all ranks
            progress.window = window.sums(training.ranks)
        progress.owes_validation = training.data.held_out is not None and is_validated
        if progress.owes_validation and not code:
            is_over = validate(training, run, is_saved=is_planned)
            if is_over:
                end_at_target(training, run, window, rate, scale)
                return 0
        if is_saved:
            save(training, run)
        if code and (not last or progress.owes_validation):
            return code
        window.restart()
    report_missed_target(training, run)
    return 0


def end_at_target(training: Training, run: Log, window: Window, rate: float, scale: float) -> None:
    """Log and save as at the last update of a run."""
    if training.progress.window:
        log_window(training, run, window, rate, scale)
        training.progress.window = ()
    save(training, run)


def updates_between(times_per_epoch: float, epochs: Epochs) -> float:
    """Updates between two events that happen so many times per epoch."""
    return every(Fraction(times_per_epoch).limit_denominator(1000), epochs.steps_per_epoch)


def validation_interval(config: TrainConfig, epochs: Epochs) -> float:
    """Updates between two validations during the run; the validation at its end is not counted."""
    if config.validation != "during" or not config.validation_epochs:
        return math.inf
    return config.validation_epochs * epochs.steps_per_epoch


def updates(training: Training, stop: Stop) -> Iterator[tuple[Outcome, float, float]]:
    """Run one update after the other; gives the outcome, rate and loss scale of each, and counts it in `progress.done`."""
    model, plan = training.model, training.plan
    epochs, world = plan.epochs, plan.world
    skips = plan.config.on_nonfinite == "skip" or model.loss_scale.kind == "dynamic"
    buffers = model.buffers if skips else []
    shares_norms = plan.config.norm_span > 1  # the replicas that share statistics make the same passes
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
                model.updater,
                (make_input(training, item, images) for item, images in pending if len(images) or shares_norms),
                window_size=size,
                step=work.step,
                rate=rate,
                scale=scale,
                precision=model.precision,
                ranks=training.ranks,
                stop=stop,
                buffers=buffers,
                stage=model.stage,
                counts_correct=plan.config.metrics,
            )
            model.loss_scale.after(outcome.finite)
            if model.ema is not None and outcome.finite:
                model.ema.follow(model.network)
        else:
            nothing = torch.zeros((), device=training.data.device)
            outcome = Outcome(nothing, nothing, 0, finite=True, stop=training.ranks.largest(stop()))
        pending = []
        training.progress.done = work.step + 1
        yield outcome, rate, scale


def pictures_of(training: Training, pending: list[tuple[Work, Tensor]], planned: int) -> int:
    """The pictures of an update, on all replicas: those planned, without those that were left out."""
    if training.plan.config.on_bad_picture != "skip":
        return planned
    count = torch.tensor([float(sum(len(images) for _, images in pending))], device=training.data.device)
    training.ranks.add([count])
    return int(count)


def plan_work(training: Training) -> Iterator[Work]:
    """The micro batches of this replica from update `progress.done` on: functions of the seed and the update alone."""
    plan = training.plan
    epochs, seed, world = plan.epochs, plan.config.seed, plan.world
    epoch = -1  # a pass over the pictures, which draws go by, whatever counts as an epoch elsewhere
    for step in range(training.progress.done, epochs.total_steps):
        if epochs.pass_of(step) != epoch:
            epoch = epochs.pass_of(step)
            epoch_order = training.data.chosen[order(seed, epoch, epochs.num_samples, shuffle=plan.config.shuffle)]
        pieces = micro_batches_of(
            *epochs.window(step),
            micro_batch=plan.micro_batch,
            replica=world.replica,
            replicas=world.replicas,
            span=plan.config.norm_span,
        ) or [(0, 0)]  # a replica for which nothing is left takes part all the same
        for number, (one, other) in enumerate(pieces, start=1):
            yield Work(step, epoch, epoch_order[one:other], ends_step=number == len(pieces))


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
