"""bulkinfer doctor: what this machine can do, what is missing, and the command that brings it."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say
from bulkinfer.insight.options import DoctorConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, which is 0: what is missing is no failure."""
    return run_command("bulkinfer doctor", DoctorConfig, _run, argv)


def _run(config: DoctorConfig) -> int:
    from bulkinfer.insight.machine import examine

    findings = examine(config.model_path, config.log_path)
    left = 2 + max(len(found.subject) for found in findings)
    width = max(left + 40, shutil.get_terminal_size((80, 24)).columns)
    for found in findings:
        first, *others = textwrap.wrap(found.finding, width - left, break_long_words=False, break_on_hyphens=False)
        say(f"{found.subject:<{left}}{first}")
        for line in others:
            say(f"{'':<{left}}{line}")
    missing = [found for found in findings if found.cure]
    say("")
    say("what could be added:" if missing else "nothing is missing")
    for found in missing:  # not wrapped: commands are copied
        say(f"  {found.subject:<{left}}{found.cure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
