"""bulkinfer show [JOB]: rows of a job as a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say
from bulkinfer.insight.options import ShowConfig

if TYPE_CHECKING:
    from bulkinfer.insight.find_job import FoundJob
    from bulkinfer.insight.show import Choice


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, also if no row fits."""
    return run_command("bulkinfer show", ShowConfig, _run, argv, positional="job", uses_arrow=True)


def _run(config: ShowConfig) -> int:
    from bulkinfer.host.table import table_lines
    from bulkinfer.insight.find_job import find_job
    from bulkinfer.insight.show import Choice, as_cells, error_cells, first_rows, surest_rows
    from bulkinfer.results.reader import read_results

    found = find_job(config.job, config.log_path)
    results = read_results(found.output)
    say(_headline(found, len(results)))
    choice = Choice(config.class_name, config.key, only_errors=config.errors)
    if count := config.least_sure or config.most_sure:
        table = surest_rows(results, choice, count, least=bool(config.least_sure))
    else:
        table = first_rows(results, choice, min(config.top, max(1, len(results))))
    if table is None or not len(table):
        say(_no_rows(config, choice))
        return 0
    header, rows = error_cells(table) if config.errors else as_cells(table, num_classes=2 if count else 1)
    for line in table_lines(header, rows, numbers=("score", "score 2")):
        say(line)
    return 0


def _headline(found: FoundJob, num_rows: int) -> str:
    counts, job = found.job.count_rows(), found.job
    known = f" ({counts.ok} ok, {counts.errors} errors)" if counts.ok + counts.errors == num_rows else ""  # not yet as it runs
    return f"{found.output}: {num_rows} of {job.num_records} rows{known}, {job.model_name}"


def _no_rows(config: ShowConfig, choice: Choice) -> str:
    import difflib

    near = difflib.get_close_matches(config.class_name, sorted(choice.names_seen), 1, 0.5)
    return "no row fits" + (f"; there are rows of the class {near[0]!r}" if near else "")


if __name__ == "__main__":
    sys.exit(main())
