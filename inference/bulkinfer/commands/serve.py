"""bulkinfer serve NAME...: networks behind the Open Inference Protocol, or --jobs: jobs over HTTP, until a signal comes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bulkinfer.commands.run_command import run_command
from bulkinfer.errors import UsageError
from bulkinfer.serve.options import ServeConfig

if TYPE_CHECKING:
    from bulkinfer.config import LaunchConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 if all that was accepted is answered, else 1."""
    return run_command("bulkinfer serve", ServeConfig, _run, argv, positional="model_name", uses_arrow=True)


def _run(config: ServeConfig) -> int:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else every client that does something wrong writes to the log
    from bulkinfer.serve.server import serve

    return serve(config, _parse_job)


def _parse_job(words: list[str]) -> LaunchConfig:
    """The config of a job that is submitted as words of infer_launch. Raises UsageError."""
    from bulkinfer.commands.parse import HelpRequested, parse
    from bulkinfer.config import LaunchConfig

    try:
        return parse(LaunchConfig.command, LaunchConfig, words)
    except HelpRequested:
        raise UsageError("a job takes options of infer_launch, but not --help or --version: leave them out") from None


if __name__ == "__main__":
    sys.exit(main())
