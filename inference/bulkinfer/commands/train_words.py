"""The words of train, of its sets of options, and of other trainers -> options of train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bulkinfer.commands.words import read_words
from bulkinfer.host.process_setup import spin_briefly
from bulkinfer.train.compat.command_line import as_ours
from bulkinfer.train.compat.reference_flags import foreign_flags, rows_by_flag
from bulkinfer.train.compat.translation import Translation
from bulkinfer.train.data.which import dataset_of, has_large_pictures
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.stopping import COMMAND
from bulkinfer.types import Given


def read(words: Sequence[str]) -> list[Given]:
    """The flags of a command line of train. Raises UsageError for a word that is no flag, and a flag that lacks its value."""
    return read_words(COMMAND, TrainConfig, words, foreign=foreign_flags(rows_by_flag()))


def resolve(given: Sequence[Given]) -> Translation:
    """The options that flags come to, with those of --config and --like; see as_ours()."""
    return as_ours(given, read, data_kind=_data_kind, of_the_run=options_of_run)


def options_of_set(name: str, path: str) -> Mapping[str, str]:
    """The options of a set that --config and --config_path name; none without a name."""
    return resolve([Given("config", name, "--config"), Given("config_path", path, "--config_path")]).options if name else {}


def options_of_run(run: str) -> Mapping[str, Any]:
    """The options of a run. Raises UsageError or RunError if there is no such run."""
    spin_briefly()
    from bulkinfer.train.checkpoints.resume import options_of

    return options_of(run)


def _data_kind(options: Mapping[str, str]) -> str:
    """Whether the pictures that the options name are small or large."""
    dataset = dataset_of(options.get("dataset", ""), options.get("data_dir", ""))
    return "large" if has_large_pictures(dataset) else "small"
