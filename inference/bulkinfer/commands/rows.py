"""bulkinfer rows [JOB] --format FORMAT --to FILE: the rows of a job in another format."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say
from bulkinfer.insight.options import RowsConfig

if TYPE_CHECKING:
    from bulkinfer.insight.find_job import FoundJob


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 written, also if the job is not complete."""
    return run_command("bulkinfer rows", RowsConfig, _run, argv, positional="job", uses_arrow=True)


def _run(config: RowsConfig) -> int:
    from bulkinfer.insight.export_rows import export_rows
    from bulkinfer.records.sources.folder import counted
    from bulkinfer.results.reader import read_results

    results = read_results(_job(config).output)
    if not results.is_complete:
        missing = int(results.job["num_records"]) - len(results)
        say(
            f"bulkinfer rows: warning: the job is not complete: {counted(missing, 'record', 'has', 'have')} no row yet",
            is_error=True,
        )
    written = export_rows(results, config)
    say(f"{'stdout' if written.path is None else written.path}: {counted(written.num_rows, 'row')} of {results.output}")
    if written.beside is not None:
        say(f"{written.beside}: {written.beside_holds}")
    return 0


def _job(config: RowsConfig) -> FoundJob:
    """The job that is named; else the newest, of a format that writes a saved output the newest that saved it."""
    from bulkinfer.insight.find_job import find_job, newest_with
    from bulkinfer.insight.rows_format import FORMATS

    wanted = (config.column,) if config.column else FORMATS[config.format].columns
    if config.job or not wanted:
        return find_job(config.job, config.log_path)
    found = newest_with(wanted, config.log_path)
    say(f"job: {found.output}, the newest one that saved {' or '.join(wanted)}")
    return found


if __name__ == "__main__":
    sys.exit(main())
