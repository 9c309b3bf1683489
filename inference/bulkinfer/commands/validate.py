"""bulkinfer validate: accuracy of checkpoints or of a network, or its speed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.run_command import run_command
from bulkinfer.train import entry
from bulkinfer.train.foreign_words import translate_for_validation
from bulkinfer.train.validation_options import ValidateConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(
        "bulkinfer validate", ValidateConfig, entry.validate, argv, positional="path", translate=translate_for_validation
    )


if __name__ == "__main__":
    sys.exit(main())
