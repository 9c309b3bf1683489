"""bulkinfer validate: accuracy of checkpoints, or speed of a network."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from inference.commands.flags import run_command
from inference.train.foreign_words import translate_for_validation
from inference.train.memory import keep_freed_memory
from inference.train.validation_options import ValidateConfig
from inference.waiting import spin_briefly


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command("bulkinfer validate", ValidateConfig, _run, argv, positional="path", translate=translate_for_validation)


def _run(config: ValidateConfig) -> int:
    spin_briefly()
    keep_freed_memory()
    from inference.train.checking import run

    return run(config)


if __name__ == "__main__":
    sys.exit(main())
