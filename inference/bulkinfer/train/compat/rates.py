"""Conversions of rates that depend on the batch, and of the places where a rate drops; see conversions.py."""

from __future__ import annotations

import math

from bulkinfer.errors import UsageError
from bulkinfer.train.compat.conversion_context import Context, Options, typed, typed_all


def rate_of_batch(text: str, context: Context) -> Options:
    """2^x times the batch of all replicas there, without accumulation; times the global batch here."""
    return {"base_learning_rate": typed(context.value(text) - math.log2(context.accumulation))}


def decay_of_batch(text: str, context: Context) -> Options:
    """The decay of rmsprop: 1 - 2^x times the global batch."""
    batch = context.number("global_batch_size", 0) or (
        context.number("micro_batch_size", 1) * context.accumulation * context.replicas
    )
    decay = 1 - 2 ** context.value(text) * batch
    if decay < 0:
        raise UsageError(f"the decay of rmsprop would be 1 - 2^{text} x {batch:g} = {decay:g}: give --rmsprop_decay")
    return {"rmsprop_decay": typed(decay)}


def multipliers(text: str, _context: Context) -> Options:
    """Several numbers are parts of the peak; a single one is the factor of each drop."""
    return {"lr_multipliers" if "," in text else "lr_decay": text}


def drops(text: str, context: Context) -> Options:
    """Where the rate drops; with an exponential schedule the number of equal parts of the run, after each of which it falls."""
    if context.text("lr_schedule") != "exponential" or "," in text:
        return {"lr_drops": text}
    count = context.value(text)
    if count <= 0:
        raise UsageError(f"{context.word} {text}: it must be above 0")
    return {"lr_decay_epochs": typed(context.epochs / count)}


def epochs_as_drops(text: str, context: Context) -> Options:
    """Epochs at which the rate drops. The warm-up multiplies the schedule there: mask is its mode, unless one is given."""
    found = {} if "warmup_mode" in context.options else {"warmup_mode": "mask"}
    is_shift = context.text("warmup_mode") == "shift" and not found
    return {**found, "lr_drops": typed_all(shares(context, context.values(text), is_shift=is_shift))}


def shares(context: Context, epochs: list[float], *, is_shift: bool) -> list[float]:
    """Epochs as shares of the run, or of what follows after a warm-up that shifts the schedule.

    Raises UsageError for an epoch outside of it.
    """
    warm = context.number("warmup_epochs", 0) if is_shift else 0.0
    length = context.epochs - warm
    for epoch in epochs:
        if not warm <= epoch <= context.epochs:
            raise UsageError(
                f"{context.word}: epoch {epoch:g} is not between {warm:g} and {context.epochs:g}: give epochs of the run"
            )
    return [(epoch - warm) / length for epoch in epochs]


def scheduler_frequency(text: str, context: Context) -> Options:
    """Changes of the rate per epoch; an exponential schedule decays at each of them."""
    found = {"lr_updates_per_epoch": text}
    if context.text("lr_schedule") == "exponential" and context.value(text) > 0:
        found["lr_decay_epochs"] = typed(1 / context.value(text))
    return found
