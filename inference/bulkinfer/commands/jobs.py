"""bulkinfer jobs: the jobs in the folder of job logs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say
from bulkinfer.host.number_text import size_text
from bulkinfer.host.table import table_lines
from bulkinfer.insight.options import JobsConfig

if TYPE_CHECKING:
    from bulkinfer.insight.jobs import LoggedJob


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, also if there is no job."""
    return run_command("bulkinfer jobs", JobsConfig, _run, argv, positional="log_path", uses_arrow=True)


def _run(config: JobsConfig) -> int:
    from bulkinfer.insight.jobs import list_jobs
    from bulkinfer.results.job_place import no_job
    from bulkinfer.types import printable_path

    jobs = list_jobs(config.log_path)
    if not jobs:
        say(no_job(config.log_path))
        return 0
    header = ["job", "state", "rows", "errors", "last launch", "size"]
    for line in table_lines(header, map(_cells, jobs), numbers=header[2:], breaks=False):
        say(line)
    for job in jobs:
        if job.output is not None and job.output.parent != job.log_dir:
            say(f"{printable_path(job.log_dir)} has its results in {printable_path(job.output)}")
    return 0


def _cells(job: LoggedJob) -> list[str]:
    rows, errors = (f"{job.done} of {job.total}", f"{job.errors}") if job.total else ("-", "-")
    size = "-" if job.output is None else size_text(job.size_bytes)
    return [job.log_dir.name, job.state, rows, errors, _date(job.date), size]


def _date(date: datetime) -> str:
    """As ls shows it: with the time if it is of this year, else with the year."""
    return f"{date:%m-%d %H:%M}" if date.year == datetime.now().year else f"{date:%Y-%m-%d}"


if __name__ == "__main__":
    sys.exit(main())
