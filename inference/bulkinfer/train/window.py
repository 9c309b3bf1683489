"""The updates since the last row of training.csv, and what is reported of them."""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from bulkinfer.errors import RunError
from bulkinfer.train.ranks.group import Ranks
from bulkinfer.train.runs import Log, memory_mb
from bulkinfer.train.training import Training
from bulkinfer.train.update.step import Outcome


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

    def sums(self, ranks: Ranks) -> tuple[float, ...]:
        """Loss, right answers, pictures of all ranks together, and seconds; () before the first update."""
        if self._sums is None:
            return ()
        sums = self._sums.clone()
        ranks.add([sums])
        return (*sums.tolist(), self._seconds)

    def read(self, ranks: Ranks) -> tuple[float, float, float]:
        """Mean loss, share of right answers, and pictures per second, of all ranks together."""
        loss, correct, count, seconds = self.sums(ranks)
        if not count:  # all their pictures were left out
            return math.nan, math.nan, 0.0
        return loss / count, correct / count, count / seconds


def log_window(training: Training, run: Log, window: Window, rate: float, scale: float) -> None:
    """Write a line to the log and a row to training.csv."""
    loss, accuracy, images_per_s = window.read(training.ranks)
    has_metrics = training.plan.config.metrics
    done, total_s = training.progress.done, training.progress.total_s
    epoch = done / training.plan.epochs.steps_per_epoch
    run.say(
        f"step: {done}, epoch: {epoch:.2f}, lr: {rate:.5g}, loss: {loss:.4f}, "
        f"{f'accuracy: {100 * accuracy:.2f} %, ' if has_metrics else ''}"
        f"throughput: {images_per_s:.1f} samples/sec"
    )
    run.training(
        {"step": done, "epoch": epoch, "learning_rate": rate, "loss": loss, "accuracy": accuracy if has_metrics else math.nan,
         "images_per_sec": images_per_s, "loss_scale": scale, "memory_mb": memory_mb(), "total_s": total_s}
    )  # fmt: skip


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
