"""bulkinfer validate: accuracy of checkpoints or of a network, or its speed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.process_setup import keep_freed_memory, spin_briefly
from bulkinfer.host.stop_signals import Unbroken
from bulkinfer.train.compat.foreign_words import translate_for_validation
from bulkinfer.train.validation.options import ValidateConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command("bulkinfer validate", ValidateConfig, _run, argv, positional="path", translate=translate_for_validation)


def _run(config: ValidateConfig) -> int:
    spin_briefly()
    keep_freed_memory()
    with Unbroken():
        from bulkinfer.train.validation.validate import validate
    from bulkinfer.train.ranks.group import Ranks, share_cores

    share_cores(Ranks())
    validate(config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
