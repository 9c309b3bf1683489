"""infer_launch: parse, launch, exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.run_command import run_command
from bulkinfer.config import LaunchConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command("infer_launch", LaunchConfig, _run, argv, first_word="data_dir", uses_arrow=True)


def _run(config: LaunchConfig) -> int:
    from bulkinfer.launch.launcher import launch

    return launch(config, shows_progress=True).exit_code


if __name__ == "__main__":
    sys.exit(main())
