"""bulkinfer validate: accuracy of checkpoints or of a network, or its speed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.run_command import Translate, run_command
from bulkinfer.commands.train_words import options_of_set
from bulkinfer.commands.words import asks_for_help, read_words
from bulkinfer.host.process_setup import hide_wandb, keep_freed_memory, spin_briefly
from bulkinfer.train.compat.reference_flags import foreign_flags
from bulkinfer.train.compat.validation_words import as_validation, validation_rows
from bulkinfer.train.validation.options import ValidateConfig

COMMAND = "bulkinfer validate"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run(argv, _as_ours)


def run(argv: Sequence[str] | None, translate: Translate) -> int:
    """Run the command for words that `translate` turns into its own."""
    return run_command(COMMAND, ValidateConfig, _run, argv, positional="path", translate=translate)


def _as_ours(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words as options of ours, with those of --config, and notes to print."""
    given = read_words(COMMAND, ValidateConfig, argv, positional="path", foreign=foreign_flags(validation_rows()))
    if asks_for_help(given):
        return [f"--{given[0].name}"], []
    values = {each.name: each.value for each in given}
    of_the_set = options_of_set(values.get("config", ""), values.get("config_path", ""))
    options, notes = as_validation(given, of_the_set)
    return [f"--{name}={value}" for name, value in options.items()], notes


def _run(config: ValidateConfig) -> int:
    spin_briefly()
    hide_wandb()
    keep_freed_memory()
    from bulkinfer.train.ranks.group import share_cores
    from bulkinfer.train.validation.validate import validate

    share_cores()
    validate(config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
