"""Validation between the updates of a run."""

from __future__ import annotations

from bulkinfer.train import checkpoint
from bulkinfer.train.runs import Log
from bulkinfer.train.training import Training
from bulkinfer.train.validation.scores import evaluate


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
        ranks=training.ranks,
    )
    done = progress.done
    epoch = done / plan.epochs.steps_per_epoch
    run.say(f"validation after epoch {epoch:.2f}: {scores.sentence()}")
    run.validation({"name": checkpoint.name_of(done), "step": done, "epoch": epoch, **scores.as_row()})
    progress.last_accuracy, progress.owes_validation = scores.accuracy, False
    if is_saved and scores.accuracy > progress.best["accuracy"]:
        progress.best = {"step": done, "accuracy": scores.accuracy}
