"""bulkinfer average: average the weights of a run's checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.process_setup import hide_wandb, keep_freed_memory, spin_briefly
from bulkinfer.train.averages.options import AverageConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command("bulkinfer average", AverageConfig, _run, argv, positional="run")


def _run(config: AverageConfig) -> int:
    spin_briefly()
    hide_wandb()
    keep_freed_memory()
    from bulkinfer.train.averages.average import average
    from bulkinfer.train.ranks.group import share_cores

    share_cores()
    average(config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
