"""`bulkinfer train --target_accuracy x`: how long a run takes until a validation reaches it."""

from __future__ import annotations

from bulkinfer.train.runs import Log
from bulkinfer.train.training import Training


def reaches_target(training: Training, run: Log, accuracy: float) -> bool:
    """Record the time of the first validation at or above --target_accuracy; True if this is the one.

    The time is that of updates, validations and checkpoints, also those of earlier starts. What is loaded before the first
    update of a start is not in it.
    """
    config, progress = training.plan.config, training.progress
    if not config.target_accuracy or progress.time_to_target_s is not None or accuracy < config.target_accuracy:
        return False
    progress.time_to_target_s = progress.total_s
    epoch = progress.done / training.plan.epochs.steps_per_epoch
    run.say(
        f"target: top-1 {100 * config.target_accuracy:g} % is reached after epoch {epoch:.2f}, update {progress.done}, in "
        f"{progress.time_to_target_s:.1f} s without loading"
    )
    return True


def report_missed_target(training: Training, run: Log) -> None:
    """Log that the run has ended without a validation at --target_accuracy."""
    target, progress = training.plan.config.target_accuracy, training.progress
    if target and progress.time_to_target_s is None:
        run.say(f"target: top-1 {100 * target:g} % is not reached after {progress.done} updates, {progress.total_s:.1f} s")
