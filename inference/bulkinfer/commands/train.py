"""bulkinfer train: train a network of the zoo."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bulkinfer.commands import validate
from bulkinfer.commands.run_command import run_command
from bulkinfer.commands.train_words import options_of_run, read, resolve
from bulkinfer.commands.words import asks_for_help, boolean, split_flag
from bulkinfer.host.process_setup import hide_wandb, keep_freed_memory, spin_briefly
from bulkinfer.train.compat.translation import rivals
from bulkinfer.train.compat.validation_words import without_training
from bulkinfer.train.options import TrainConfig, refuse_beside_resume
from bulkinfer.train.ranks.world import is_first_rank
from bulkinfer.train.stopping import COMMAND, stop_signals
from bulkinfer.types import shell_word

log = logging.getLogger("bulkinfer")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    if _is_validation_alone(sys.argv[1:] if argv is None else argv):
        return validate.run(argv, _as_validation)
    return run_command(COMMAND, TrainConfig, _run, argv, defaults_of=_defaults, translate=_as_ours)


def _run(config: TrainConfig) -> int:
    spin_briefly()
    hide_wandb()
    keep_freed_memory()
    from bulkinfer.train.launch import train
    from bulkinfer.train.ranks.group import share_cores

    share_cores()
    is_first = is_first_rank()
    if not is_first:
        log.setLevel(logging.WARNING)
    result = train(config, stopping=lambda: stop_signals(lambda: is_first), shows_progress=True)
    if result.exit_code and result.folder is not None:
        log.warning(
            f"stopped by {signal.Signals(result.exit_code - 128).name} after update {result.updates}; "
            f"{COMMAND} --resume {shell_word(result.folder)} goes on from there"
        )
    return result.exit_code


def _as_ours(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words as options of ours, with those of --config and --like, and notes to print."""
    given = read(argv)
    if asks_for_help(given):
        return [f"--{given[0].name}"], []
    made = resolve(given)
    return made.words, made.notes


def _is_validation_alone(words: Sequence[str]) -> bool:
    """Whether --training False is among the words."""
    for word, following in pairwise([*words, ""]):
        name, value = split_flag(word)
        if name == "training" and boolean(following if value is None else value) is False:
            return True
    return bool({"--no-training", "--no_training", "--notraining"}.intersection(words))


def _as_validation(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line without training as those of validate, and notes to print."""
    given = read(argv)
    if asks_for_help(given):
        return [f"--{given[0].name}"], []
    options, notes = without_training(given, lambda others: resolve(others).options)
    return [f"--{name}={value}" for name, value in options.items()], notes


def _defaults(config: Any) -> Mapping[str, Any]:
    """The options of the run that is continued, but for those that one that is given contradicts."""
    if not config.resume:
        return {}
    refuse_beside_resume(config)
    given = {name for name, value in vars(config).items() if value and value != getattr(TrainConfig, name)}
    return {name: value for name, value in options_of_run(config.resume).items() if name in given or name not in rivals(given)}


if __name__ == "__main__":
    sys.exit(main())
