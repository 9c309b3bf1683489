"""bulkinfer train: train a network of the zoo."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from bulkinfer.commands.run_command import run_command
from bulkinfer.commands.words import asks_for_help, read_words
from bulkinfer.host.process_setup import keep_freed_memory, spin_briefly
from bulkinfer.host.stop_signals import STOP_SIGNALS, Unbroken
from bulkinfer.train.compat.command_line import as_ours
from bulkinfer.train.compat.reference_flags import foreign_flags, rows_by_flag
from bulkinfer.train.compat.translation import rivals
from bulkinfer.train.data.which import dataset_of, has_large_pictures
from bulkinfer.train.options import TrainConfig, refuse_beside_resume
from bulkinfer.types import Given, shell_word

log = logging.getLogger("bulkinfer")

COMMAND = "bulkinfer train"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(COMMAND, TrainConfig, _run, argv, defaults_of=_defaults, translate=_as_ours)


def _run(config: TrainConfig) -> int:
    spin_briefly()
    keep_freed_memory()
    with Unbroken():
        from bulkinfer.train.launch import train
    from bulkinfer.train.ranks.group import share_cores

    share_cores()
    result = train(config, stopping=_stop_signals, shows_progress=True)
    if result.exit_code:
        assert result.folder is not None, "a dry run cannot be stopped"
        log.warning(
            f"{COMMAND}: stopped by {signal.Signals(result.exit_code - 128).name} after update {result.updates}; "
            f"{COMMAND} --resume {shell_word(result.folder)} goes on from there"
        )
    return result.exit_code


@contextmanager
def _stop_signals() -> Iterator[Callable[[], int]]:
    """Until the block ends, the first stop signal lets the update at work end; a second one acts at once.

    Gives a function that returns 0, or the exit code of a process that the signal ended.
    """
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)
        log.warning(f"{COMMAND}: stopping after this update; a second signal stops at once")

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield lambda: 128 + received[0] if received else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _as_ours(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words as options of ours, with those of --config and --like, and notes to print."""
    foreign = foreign_flags(rows_by_flag())

    def read(words: Sequence[str]) -> list[Given]:
        return read_words(COMMAND, TrainConfig, words, foreign=foreign)

    given = read(argv)
    if asks_for_help(given):
        return list(argv), []
    made = as_ours(given, read, data_kind=_data_kind, of_the_run=_options_of)
    return made.words, made.notes


def _data_kind(options: Mapping[str, str]) -> str:
    """Whether the pictures that the options name are small or large."""
    dataset = dataset_of(options.get("dataset", ""), options.get("data_dir", ""))
    return "large" if has_large_pictures(dataset) else "small"


def _options_of(run: str) -> Mapping[str, Any]:
    """The options of a run."""
    spin_briefly()
    with Unbroken():
        from bulkinfer.train.resume import options_of

    return options_of(run)


def _defaults(config: Any) -> Mapping[str, Any]:
    """The options of the run that is continued, but for those that one that is given contradicts."""
    if not config.resume:
        return {}
    refuse_beside_resume(config)
    given = {name for name, value in vars(config).items() if value and value != getattr(TrainConfig, name)}
    return {name: value for name, value in _options_of(config.resume).items() if name in given or name not in rivals(given)}


if __name__ == "__main__":
    sys.exit(main())
