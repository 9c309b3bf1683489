"""bulkinfer report [JOB]: one HTML page about a job or a training run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say
from bulkinfer.host.number_text import size_text
from bulkinfer.insight.options import ReportConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command("bulkinfer report", ReportConfig, _run, argv, positional="job", uses_arrow=True)


def _run(config: ReportConfig) -> int:
    from bulkinfer.insight.report.report import write_report

    path, size_bytes = write_report(config)
    if path is None:
        return 0
    say(f"report: {path} ({size_text(size_bytes)}): open it in a browser, it needs no other file")
    return 0


if __name__ == "__main__":
    sys.exit(main())
