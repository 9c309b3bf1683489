"""bulkinfer watch [JOB]: how far a job has come, until it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say
from bulkinfer.insight.options import WatchConfig

if TYPE_CHECKING:
    from bulkinfer.insight.watch import JobStatus

_EVERY_S = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: that of the job, 1 if it was stopped or killed; with --once 4 while it runs."""
    return run_command("bulkinfer watch", WatchConfig, _run, argv, positional="job", uses_arrow=True)


def _run(config: WatchConfig) -> int:
    from bulkinfer.insight.watch import find_watched, job_status

    folder = find_watched(config.job, config.log_path)
    seen = job_status(folder) if config.once else follow(lambda: job_status(folder))
    say(seen.line)
    return seen.exit_code


def follow(read: Callable[[], JobStatus], *, wait: Callable[[float], None] = time.sleep) -> JobStatus:
    """Show what `read` returns every second until the job has ended: as a view on a terminal, else as a line every 30 s."""
    from bulkinfer.host.live_view import open_view
    from bulkinfer.host.screen import LINE_S

    view, line_due = open_view(), 0.0
    try:
        while not (seen := read()).has_ended:
            if view is not None:
                view.show(seen.status, seen.heading)
            elif (now_s := time.monotonic()) >= line_due:
                line_due = now_s + LINE_S
                say(seen.line)
            wait(_EVERY_S)
    finally:
        if view is not None:
            view.close()
    return seen


if __name__ == "__main__":
    sys.exit(main())
