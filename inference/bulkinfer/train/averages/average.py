"""`bulkinfer average`: the weights of several checkpoints of a run, averaged into one more.

Stochastic weight averaging (Izmailov et al., arXiv:1803.05407) averages them with equal weights, and estimates the averages of
batch norm again, since those of the checkpoints belong to other weights.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor, nn

from bulkinfer.errors import PictureError, UsageError
from bulkinfer.model.recipe import Recipe
from bulkinfer.train.averages.norms import estimate_norms
from bulkinfer.train.averages.options import AverageConfig
from bulkinfer.train.checkpoints import checkpoint
from bulkinfer.train.data.opening import open_held_out
from bulkinfer.train.data.which import FAKE
from bulkinfer.train.network.networks import rebuild
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.runs import AVERAGE, Log
from bulkinfer.train.validation.classes import relabelled
from bulkinfer.train.validation.options import ValidateConfig
from bulkinfer.train.validation.validate import run_options, save_scores, score
from bulkinfer.types import shell_word

log = logging.getLogger("bulkinfer")

Say = Callable[[str], None]


def average(config: AverageConfig, say: Say = log.info) -> Path:
    """Average checkpoints of the run, validate the result, and say what was done; returns the folder of the result.

    Raises UsageError if the run has not so many checkpoints, RunError if one is damaged.
    """
    try:
        return _average(config, say)
    except PictureError as error:
        raise PictureError(f"{error}: repair it, or leave it out with --on_bad_picture skip") from error


def average_at_end(config: TrainConfig, run: Log) -> None:
    """What --average asks for at the end of a run, of the checkpoints that there are."""
    if config.average == "none":
        return
    last = min(config.average_last, len(checkpoint.steps_of(run.folder)))
    average(
        AverageConfig(run=str(run.folder), last=last, mode=config.average, decay=config.average_decay, device=config.device,
                      num_workers=config.num_workers, cache_mb=config.cache_mb),
        run.say,
    )  # fmt: skip


def _average(config: AverageConfig, say: Say) -> Path:
    run = Path(config.run)
    paths = chosen(run, config.last, config.discard_last)
    newest = checkpoint.read(paths[-1])
    asked = ValidateConfig(path=config.run, data_dir=config.data_dir, on_bad_picture=config.on_bad_picture,
                           num_workers=config.num_workers, cache_mb=config.cache_mb, device=config.device)  # fmt: skip
    options = run_options(newest, asked)
    network = rebuild(newest.state["network"], averaged(paths, config.mode, config.decay), newest.path)
    shown = f"exponential, decay {config.decay:g}," if config.mode == "exponential" else config.mode
    say(f"average: {shown} of {len(paths)} checkpoints, {paths[0].name} to {paths[-1].name}")
    if not config.keep_norms and (of_what := estimate_norms(network, newest, options, config.batches)):
        say(of_what)
    name = checkpoint.average_name(newest.step, len(paths), config.mode)
    facts = {"mode": config.mode, "decay": config.decay, "of": [path.name for path in paths]}
    final = checkpoint.save_average(run, name, network.state_dict(), {**newest.state, "average": facts})
    if options.dataset in FAKE:
        say(f"not validated: {options.dataset} pictures have random labels")
    else:
        _validate(run, final, network, options, asked, say)
    say(f"checkpoint: {final}; get_model --checkpoint {shell_word(final)} exports it")
    return final


def chosen(run: Path, last: int, discard_last: int) -> list[Path]:
    """The newest `last` checkpoints (0: all) but for the newest `discard_last` ones, in the order of updates.

    Raises UsageError if there are not so many.
    """
    paths = checkpoint.steps_of(run)
    if not paths:
        raise UsageError(f"{run} holds no checkpoint: give a run folder below logs/")
    kept = paths[: len(paths) - discard_last]
    if not kept or last > len(kept):
        left = f" after --discard_last {discard_last}" if discard_last else ""
        asked = f"--last {last}" if kept else f"--discard_last {discard_last}"
        raise UsageError(
            f"{asked}: {run} has {len(kept)} checkpoints{left}: give a smaller number; training with --keep_last 0 keeps all"
        )
    return kept[-last:]


def averaged(paths: Sequence[Path], mode: str, decay: float) -> dict[str, Tensor]:
    """The average of the weights of checkpoints, in float32, computed in float64; whole numbers are those of the last one.

    `mean`: their sum over their number. `exponential`: a = decay x a + (1 - decay) x w, from the first one on, which is the
    first a. Raises RunError if a checkpoint is damaged.
    """
    sums: dict[str, Tensor] = {}
    for path in paths:
        weights = checkpoint.read(path).weights
        for name, value in weights.items():
            if not value.is_floating_point() or name not in sums:
                sums[name] = value.double() if value.is_floating_point() else value
            elif mode == "mean":
                sums[name] += value.double()
            else:
                sums[name].mul_(decay).add_(value.double(), alpha=1 - decay)
    if mode == "mean":
        sums = {name: value / len(paths) if value.is_floating_point() else value for name, value in sums.items()}
    return {name: value.float() if value.is_floating_point() else value for name, value in sums.items()}


def _validate(run: Path, final: Path, network: nn.Module, options: TrainConfig, asked: ValidateConfig, say: Say) -> None:
    """Score the average on the validation pictures; its row goes to validation.csv, if they are those of the run."""
    found = checkpoint.read(final)
    held_out = open_held_out(options, Recipe(**found.state["recipe"]))
    held_out = relabelled(held_out, found.state["class_names"], options.data_dir)
    scores = score(network, found, held_out, options, asked)
    say(f"{final.name}: {scores.sentence()}")
    if not asked.data_dir:
        save_scores(run, found, scores, AVERAGE)
