"""bulkinfer completion SHELL: a script that lets bash, zsh or fish complete commands, options and their values."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.options import CompletionConfig
from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say_lines


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command("bulkinfer completion", CompletionConfig, _run, argv, positional="shell")


def _run(config: CompletionConfig) -> int:
    from bulkinfer.commands.shell_scripts import script

    say_lines(script(config.shell))
    return 0


if __name__ == "__main__":
    sys.exit(main())
