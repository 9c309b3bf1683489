"""bulkinfer retry DIR: run the error rows of a job again."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.after_launch import print_next
from bulkinfer.commands.run_command import run_command
from bulkinfer.launch.options import RetryConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, as that of infer_launch."""
    return run_command("bulkinfer retry", RetryConfig, _run, argv, positional="output", uses_arrow=True)


def _run(config: RetryConfig) -> int:
    from bulkinfer.launch.retry import retry

    return print_next(retry(config, shows_progress=True))


if __name__ == "__main__":
    sys.exit(main())
