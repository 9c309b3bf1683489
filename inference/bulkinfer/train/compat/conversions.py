"""Values of other trainers' flags that do not follow from a table of values. references.yml names these functions.

Each takes the text of the value and the options so far, and returns the options that it sets, as texts by name.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

from bulkinfer.errors import UsageError
from bulkinfer.train.compat.conversion_context import Context, Options, typed
from bulkinfer.train.compat.dictionaries import norm_layer, optimizer_params, schedule_params, warmup_params
from bulkinfer.train.compat.rates import decay_of_batch, drops, epochs_as_drops, multipliers, rate_of_batch, scheduler_frequency
from bulkinfer.train.options import ROUNDINGS, TrainConfig


def sgd_or_momentum(text: str, context: Context) -> Options:
    """One name stands for both there: a momentum that is not 0 decides."""
    is_momentum = text == "sgd" and context.number("momentum", 0) != 0 and "momentum" in context.options
    return {"optimizer": "momentum" if is_momentum else text}


def made_up(text: str, _context: Context) -> Options:
    """It wins over the data set that is named as well: that one says the number of classes there."""
    return {"dataset": text}


def complement(text: str, context: Context) -> Options:
    """1 - x, without the digits of its rounding error."""
    return {context.target: typed(round(1 - context.value(text), 12))}


def reciprocal(text: str, context: Context) -> Options:
    """Every so many epochs there, so often an epoch here."""
    if not context.value(text):
        raise UsageError(f"{context.word} {text}: it must be above 0")
    return {context.target: f"1/{text}"}


def every(text: str, context: Context) -> Options:
    """So often an epoch there, every so many epochs here."""
    count = context.value(text)
    if count <= 0:
        raise UsageError(f"{context.word} {text}: it must be above 0")
    return {context.target: typed(1 / count)}


def any_of(text: str, _context: Context) -> Options:
    """Parts of names, as one pattern."""
    return {"train_only": "|".join(map(re.escape, text.split(",")))}


def group_width(text: str, context: Context) -> Options:
    """One name for two networks."""
    is_resnext = "resnext" in context.text("model").lower() or context.text("model_size").lower().startswith("x")
    return {"width" if is_resnext else "group_width": text}


def batch_over_replicas(text: str, context: Context) -> Options:
    """The batch of all replicas there, of one of them here. Raises UsageError if it cannot be divided."""
    size, replicas = context.value(text), context.replicas
    if size % replicas:
        raise UsageError(
            f"{context.word} {text} is the batch of all replicas: it must be a multiple of the {replicas:g} replicas"
        )
    return {"micro_batch_size": typed(size / replicas)}


def l2_or_decoupled(text: str, context: Context) -> Options:
    """Only adamw decouples it."""
    return {"weight_decay" if context.text("optimizer") == "adamw" else "l2": text}


def lars_decay(text: str, context: Context) -> Options:
    """The L2 of lars alone."""
    return {"l2": text} if context.text("optimizer") == "lars" else {}


def ramp(text: str, context: Context) -> Options:
    """A loss scale that doubles from this value to --loss_scaling. Raises UsageError if no doubling leads there."""
    first, last = context.value(text), context.number("loss_scaling", 0) or 1.0
    if first == last:
        return {"loss_scaling_mode": "static"}
    if first <= 0 or last < first or not math.log2(last / first).is_integer():
        raise UsageError(
            f"{context.word} {text}: doubling it never gives --loss_scaling {last:g}: give one that is a power of two times it"
        )
    return {"loss_scaling_mode": "ramp", "loss_scaling_start": text}


def rounding(text: str, context: Context) -> Options:
    """Stochastic rounding: a switch, or ON, OFF and RI (the same on all replicas, as it is here), with their variants.

    Where no weights are rounded it is left out, but for our own option with a value of ours, which is refused there.
    """
    ours, precision = context.target, context.text("precision", TrainConfig.precision)
    is_ours = context.word.lstrip("-").replace("-", "_") == ours and text in (*ROUNDINGS, "true", "false")
    if not is_ours and precision != "16.16":
        context.notes.append(f"note: {context.word}: of no effect with --precision {precision}, whose weights are not rounded")
        return {}
    word = text.removesuffix("_prng_stable").lower()
    return {ours: {"true": "on", "ri": "on", "false": "off"}.get(word, word)}


def cutmix_fixed(text: str, context: Context) -> Options:
    """Every picture keeps the same share of itself."""
    return _shares(text, text, context)


def cutmix_low(text: str, context: Context) -> Options:
    """The least share that a picture keeps."""
    return _shares(text, context.options.get("cutmix_share", "0,0").split(",")[1], context)


def cutmix_high(text: str, context: Context) -> Options:
    """The largest share that a picture keeps."""
    return _shares(context.options.get("cutmix_share", "0,0").split(",")[0], text, context)


def _shares(low: str, high: str, context: Context) -> Options:
    context.values(f"{low},{high}")
    return {"cutmix_share": f"{low},{high}"}


def single(text: str, context: Context) -> Options:
    """One number; there may be several there. Raises UsageError for several."""
    if "," in text:
        raise UsageError(f"{context.word}: a run makes one average: give one number, and bulkinfer average makes others")
    return {context.target: text}


def is_run(path: str) -> bool:
    """Whether a path is that of a run, or of a checkpoint."""
    return (Path(path) / "checkpoints").is_dir() or (Path(path) / "state.json").exists()


def run_or_logs(text: str, context: Context) -> Options:
    """A run or a checkpoint is continued; anything else is where runs go. Raises UsageError beside --log_path."""
    if is_run(text):
        return {"resume": text}
    if "log_path" in context.options:
        raise UsageError(f"{context.word} and --log_path both say where the run goes: leave one of them out")
    return {"log_path": text}


def cluster(_text: str, context: Context) -> Options:
    """Raises UsageError with the command of torchrun for the cluster in TF_CONFIG; without one there is nothing to do."""
    text = os.environ.get("TF_CONFIG", "")
    if not text:
        context.notes.append(f"note: {context.word}: without TF_CONFIG there is one process; torchrun starts several")
        return {}
    try:
        found = json.loads(text)
        workers, number = list(found["cluster"]["worker"]), int(found.get("task", {}).get("index", 0))
        host, _, port = str(workers[0]).partition(":")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise UsageError(f"{context.word}: TF_CONFIG has no cluster.worker: correct it, or leave the flag out") from None
    raise UsageError(
        f"{context.word}: torchrun starts the processes of a cluster. Without TF_CONFIG, run on this host: torchrun --nnodes "
        f"{len(workers)} --nproc-per-node 1 --node-rank {number} --master-addr {host} --master-port {port or '29500'} "
        "-m bulkinfer train, and the other flags"
    )


CONVERSIONS: dict[str, Callable[[str, Context], Options]] = {
    function.__name__: function
    for function in (
        sgd_or_momentum, made_up, complement, reciprocal, every, any_of, group_width, batch_over_replicas, rate_of_batch,
        decay_of_batch, l2_or_decoupled, lars_decay, ramp, rounding, cutmix_fixed, cutmix_low, cutmix_high, single, run_or_logs,
        cluster, drops, epochs_as_drops, multipliers, scheduler_frequency, norm_layer, optimizer_params, schedule_params,
        warmup_params,
    )
}  # fmt: skip
