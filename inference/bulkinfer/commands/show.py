"""bulkinfer show [JOB]: rows of a job as a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say
from bulkinfer.insight.options import ShowConfig

if TYPE_CHECKING:
    from bulkinfer.insight.find_job import FoundJob
    from bulkinfer.insight.show import Choice
    from bulkinfer.results.reader import Results


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, also if no row fits."""
    return run_command("bulkinfer show", ShowConfig, _run, argv, positional="job", uses_arrow=True)


def _run(config: ShowConfig) -> int:
    from bulkinfer.host.table import table_lines
    from bulkinfer.insight.class_columns import keeps_classes, saved_outputs
    from bulkinfer.insight.find_job import find_job
    from bulkinfer.insight.saving import again_with
    from bulkinfer.insight.show import as_cells, error_cells, surest_rows
    from bulkinfer.results.reader import read_results

    found = find_job(config.job, config.log_path)
    results, choice, cut = read_results(found.output), _choice(config, found), ""
    say(_headline(found, len(results)))
    if not keeps_classes(results):
        say(f"saved: {', '.join(saved_outputs(results)) or 'keys'}; no classes: {again_with(results, 'topk')}")
    if count := config.least_sure or config.most_sure:
        table = surest_rows(results, choice, count, least=bool(config.least_sure))
    else:
        table, cut = _first_rows(config, results, choice)
    if table is None or not len(table):
        _require_known_class(choice)
        say("no row fits")
        return 0
    header, rows = error_cells(table) if config.errors else as_cells(table, num_classes=2 if count else 1)
    for line in table_lines(header, rows, numbers=("score", "score 2")):
        say(line)
    if cut:
        say(cut)
    return 0


def _choice(config: ShowConfig, found: FoundJob) -> Choice:
    """The rows that are asked for. Raises UsageError for a class that the network does not have, with the nearest one."""
    from bulkinfer.errors import UsageError
    from bulkinfer.insight.class_names import classes_of
    from bulkinfer.insight.show import Choice

    names = classes_of(found.job) if config.class_name else ()
    if not names:  # not asked for, or not known
        return Choice(config.class_name, key=config.key, only_errors=config.errors)
    if not (classes := names.find(config.class_name)):
        near = names.nearest(config.class_name)
        advice = f"did you mean {near!r}?" if near else f"give a name, or a number from 0 to {len(names) - 1}"
        raise UsageError(f"--class {config.class_name}: {found.job.model_name} has no such class; {advice}")
    return Choice(config.class_name, classes, config.key, only_errors=config.errors)


def _first_rows(config: ShowConfig, results: Results, choice: Choice) -> tuple[Any, str]:
    """The table of the first rows, and a line that says what it leaves out."""
    from bulkinfer.insight.show import first_rows

    if not (config.class_name or config.key or config.errors):
        total, top = len(results), config.top
        left_out = f"{top:,} of {total:,} rows; --top {total} shows all" if total > top else ""
        return first_rows(results, choice, min(top, max(1, total))), left_out
    most = min(config.top, max(1, len(results)))
    table = first_rows(results, choice, most + 1)
    if table is None or len(table) <= most:
        return table, ""
    return table.slice(0, most), f"more rows fit; --top {2 * most} shows more of them"


def _headline(found: FoundJob, num_rows: int) -> str:
    from bulkinfer.files.output_lock import launcher_in
    from bulkinfer.insight.published import published_rows

    counts, job = found.job.count_rows(), found.job
    errors = counts.errors
    is_known = counts.ok + errors == num_rows
    if not is_known and not launcher_in(found.output):  # its launch was killed
        published = published_rows(found.output, job)
        errors, is_known = published.num_errors, published.rows == num_rows
    known = f" ({num_rows - errors} ok, {errors} errors)" if is_known else ""
    return f"{found.output}: {num_rows} of {job.num_records} rows{known}, {job.model_name}"


def _require_known_class(choice: Choice) -> None:
    """Raises UsageError if no row has the class, and nothing else says that the network has it."""
    import difflib

    from bulkinfer.errors import UsageError

    if not choice.class_name or choice.classes or not choice.names_seen:
        return
    near = difflib.get_close_matches(choice.class_name, sorted(choice.names_seen), 1, 0.5)
    advice = f"did you mean {near[0]!r}?" if near else "give a class of other rows"
    raise UsageError(f"--class {choice.class_name}: no row has such a class; {advice}")


if __name__ == "__main__":
    sys.exit(main())
