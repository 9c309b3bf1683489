"""bulkinfer clean JOB...: remove results folders and log folders of jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import ask, say
from bulkinfer.host.number_text import size_text
from bulkinfer.insight.options import CleanConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 removed, 1 not, because the answer was no or a job is running."""
    return run_command("bulkinfer clean", CleanConfig, _run, argv, positional="job", uses_arrow=True)


def _run(config: CleanConfig) -> int:
    from bulkinfer.errors import UsageError
    from bulkinfer.insight.clean import plan_removals, remove
    from bulkinfer.types import printable_path

    if not config.job:
        raise UsageError("no job is given: name one that bulkinfer jobs lists")
    removals = plan_removals(config.job, config.what, config.log_path)
    for removal in removals:
        say(f"{removal}")
    if not config.yes:
        if not sys.stdin.isatty():
            raise UsageError("this cannot ask without a terminal: give --yes to remove them")
        if not ask("remove them?"):
            say("nothing is removed")
            return 1
    for removal in removals:
        size = removal.size_bytes
        left = remove(removal)
        say(f"removed {size_text(size)}")
        for path in left:
            say(f"  left, since bulkinfer did not write it: {printable_path(path)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
