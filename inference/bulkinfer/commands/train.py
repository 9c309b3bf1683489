"""bulkinfer train: train a network of the zoo."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bulkinfer.commands import validate
from bulkinfer.commands.parse import parse
from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say
from bulkinfer.host.process_setup import keep_freed_memory, spin_briefly
from bulkinfer.host.stop_signals import Unbroken
from bulkinfer.train.compat.foreign_words import translate, words_to_validate
from bulkinfer.train.options import TrainConfig, refuse_beside_resume
from bulkinfer.train.ranks.world import is_first_rank
from bulkinfer.train.stopping import COMMAND, stop_signals
from bulkinfer.types import shell_word

log = logging.getLogger("bulkinfer")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    words = words_to_validate(sys.argv[1:] if argv is None else argv)
    if words is not None:
        return validate.main(words)
    return run_command(COMMAND, TrainConfig, _run, argv, defaults_of=_defaults, translate=translate)


def _run(config: TrainConfig) -> int:
    spin_briefly()
    keep_freed_memory()
    with Unbroken():
        from bulkinfer.train.launch import train
    from bulkinfer.train.ranks.group import Ranks, share_cores

    share_cores(Ranks())
    is_first = is_first_rank()
    if not is_first:
        log.setLevel(logging.WARNING)
    result = train(config, stopping=lambda: stop_signals(says=is_first), shows_progress=True)
    if result.exit_code and result.folder is not None:
        log.warning(
            f"{COMMAND}: stopped by {signal.Signals(result.exit_code - 128).name} after update {result.updates}; "
            f"{COMMAND} --resume {shell_word(result.folder)} goes on from there"
        )
    return result.exit_code


# Options that set the same thing. If one is given, a run or --config does not set the others.
_RIVALS = (
    ("epochs", "steps"),
    ("lr", "base_learning_rate"),
    ("norm_groups", "norm_channels_per_group"),
)


def _defaults(config: Any) -> Mapping[str, Any]:
    """The options of the run that is continued, or those of --config."""
    found: dict[str, Any] = {}
    refuse_beside_resume(config)
    if config.resume:
        spin_briefly()
        with Unbroken():
            from bulkinfer.train.resume import options_of

        found = options_of(config.resume)
    elif config.config:
        from dataclasses import asdict

        from bulkinfer.train.compat.named_configs import words_of

        words, notes = translate(words_of(config.config, config.config_path))
        for note in notes:
            say(note)
        found = asdict(parse(COMMAND, TrainConfig, words))
    for names in _RIVALS:
        if any(getattr(config, name) for name in names):
            found = {name: value for name, value in found.items() if name not in names}
    return found


if __name__ == "__main__":
    sys.exit(main())
