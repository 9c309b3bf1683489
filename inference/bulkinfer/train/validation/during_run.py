"""The validation of a run between two of its updates, or after the last one."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from bulkinfer.train.checkpoints import checkpoint
from bulkinfer.train.runs import EMA, RAW, Log
from bulkinfer.train.tracking.target import reaches_target
from bulkinfer.train.training import Training
from bulkinfer.train.update.step import Precision
from bulkinfer.train.validation.scores import Scores, evaluate


def validate(training: Training, run: Log, *, is_saved: bool) -> bool:
    """Validate the present weights, and their average with --ema; if they are saved too, remember them if they are the best.

    With --ema, the accuracy of the average decides which are the best. Returns True if the run ends here, by --stop_at_target;
    its weights are to be saved then.
    """
    model, progress = training.model, training.progress
    if model.stage is not None:
        model.stage.make_whole()
    scores = _score(training, run, RAW, model.network, model.precision)
    if model.ema is not None and model.ema.updates:
        scores = _score(training, run, EMA, model.ema.network, _for_float32(model.precision))
    progress.last_accuracy, progress.owes_validation = scores.accuracy, False
    is_over = reaches_target(training, run, scores.accuracy) and training.plan.config.stop_at_target
    if (is_saved or is_over) and scores.accuracy > progress.best["accuracy"]:
        progress.best = {"step": progress.done, "accuracy": scores.accuracy}
    return is_over


def _score(training: Training, run: Log, weights: str, network: nn.Module, precision: Precision) -> Scores:
    """Run a network over the validation pictures, and log its scores."""
    data, plan, done = training.data, training.plan, training.progress.done
    assert data.held_out is not None
    scores = evaluate(
        network,
        data.held_out,
        batch_size=plan.config.valid_batch_size or plan.micro_batch,
        precision=precision,
        mean=data.mean,
        std=data.std,
        ranks=training.ranks,
    )
    epoch, name = done / plan.epochs.steps_per_epoch, checkpoint.name_of(done)
    of_average = " (ema)" if weights == EMA else ""
    run.say(f"validation after epoch {epoch:.2f}{of_average}: {scores.sentence()}")
    run.validation({"name": name, "step": done, "epoch": epoch, **scores.as_row(), "weights": weights})
    return scores


def _for_float32(precision: Precision) -> Precision:
    """The same arithmetic for weights in float32."""
    return replace(precision, name="16.32") if precision.name == "16.16" else precision
