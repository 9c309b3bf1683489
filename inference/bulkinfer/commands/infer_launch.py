"""infer_launch: parse, launch, exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.after_launch import print_next
from bulkinfer.commands.run_command import run_command
from bulkinfer.config import LaunchConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command("infer_launch", LaunchConfig, _run, argv, first_word="data_dir", uses_arrow=True)


def _run(config: LaunchConfig) -> int:
    from bulkinfer.launch.launcher import launch

    is_scored_next = config.labels and "topk" in config.save
    return print_next(launch(config, shows_progress=True), "score" if is_scored_next else "show")


if __name__ == "__main__":
    sys.exit(main())
