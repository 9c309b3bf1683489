"""The last line of a command that ran a launch: what to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bulkinfer.host.console import say

if TYPE_CHECKING:
    from bulkinfer.launch.reporting.summary import LaunchResult

_SIGNALS = 128  # exit codes from here on follow a signal


def has_rows(result: LaunchResult) -> bool:
    """True if the launch came to its end and has an output: it was no dry run, and no signal ended it."""
    return result.output is not None and result.summary is not None and result.exit_code < _SIGNALS


def print_next(result: LaunchResult, command: str = "show") -> int:
    """Print the command to type next, if there are rows; returns the exit code of the launch."""
    from bulkinfer.types import shell_word

    if has_rows(result):
        assert result.output is not None, "what has rows has an output"
        say(f"next: bulkinfer {command} {shell_word(result.output)}")
    return result.exit_code
