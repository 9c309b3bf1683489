"""bulkinfer compare A B: the rows of two jobs over the same pictures."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import STDOUT, say
from bulkinfer.insight.options import CompareConfig

if TYPE_CHECKING:
    from bulkinfer.insight.comparison.compare import Comparison

_SHOWN = 10  # changed pictures in the terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, however much the jobs differ."""
    return run_command("bulkinfer compare", CompareConfig, _run, argv, positional="jobs", uses_arrow=True)


def _run(config: CompareConfig) -> int:
    from bulkinfer.errors import UsageError
    from bulkinfer.files.json_file import read_json
    from bulkinfer.insight.comparison.compare import FOLDER, NAMES, compare
    from bulkinfer.insight.find_job import find_job
    from bulkinfer.insight.output_files import files_folder, write_stdout

    if len(config.jobs) != 2:
        raise UsageError(
            f"{len(config.jobs)} jobs given: name two, with a blank between them, as in: bulkinfer compare FIRST SECOND"
        )
    one, other = (find_job(job, config.log_path) for job in config.jobs)
    if config.to == STDOUT:
        with tempfile.TemporaryDirectory() as place:
            found = compare(one, other, Path(place), data_dir=config.data_dir)
            write_stdout(read_json(found.files[0]))
    else:
        with files_folder(config.to, one, FOLDER, NAMES, overwrite=config.overwrite) as folder:
            found = compare(one, other, folder, data_dir=config.data_dir)
    say(f"A: {one.output}, network {one.job.model_name}")
    say(f"B: {other.output}, network {other.job.model_name}")
    _print(found)
    if config.to != STDOUT:
        say(f"files in {found.files[0].parent}: {', '.join(path.name for path in found.files)}")
    return 0


def _print(found: Comparison) -> None:
    from bulkinfer.host.number_text import percent_text
    from bulkinfer.insight.comparison.compare import answer_text
    from bulkinfer.records.sources.folder import counted
    from bulkinfer.types import printable

    for name, (a, b) in found.differences.items():
        say(f"differs: {name}: A {a}, B {b}")
    if not found.differences:
        say("differs: nothing that is recorded")
    if not found.has_same_names:
        say("the networks have different class names: answers are compared by the number of the class")
    changes = found.changes
    agreement = percent_text(changes.agreement, 2)
    say(f"same best class: {agreement} ({changes.same:,} of {changes.num_compared:,} pictures ok in both)")
    if changes.num_drift:
        mean = changes.drift_sum / changes.num_drift
        largest = f", largest {changes.drift_largest:.6f} ({changes.drift_key})" if changes.drift_key else ""
        say(f"score of A's best class in B: mean difference {mean:.6f}{largest}, of {changes.num_drift:,} pictures")
    errors = changes.error_in_one, changes.error_in_other, changes.error_in_both
    if any(errors):
        say("error rows: {:,} in A alone, {:,} in B alone, {:,} in both".format(*errors))
    for side, count, named in (
        ("A", changes.only_one, changes.first_only_one),
        ("B", changes.only_other, changes.first_only_other),
    ):
        if count:
            say(f"only in {side}: {counted(count, 'picture')}: {', '.join(named)}{', ...' if count > len(named) else ''}")
    if changes.changed:
        say(f"changed: {changes.changed:,} pictures{f'; the {_SHOWN} that changed most' if changes.changed > _SHOWN else ''}:")
    for change in changes.most_changed()[:_SHOWN]:
        one, other = answer_text(change.one, found.names[0]), answer_text(change.other, found.names[1])
        say(f"  {printable(change.key)}: {one} -> {other}")
    if found.num_shown == 0:
        say("no contact sheet: none of the pictures is where job A found it (--data_dir says where they are now)")


if __name__ == "__main__":
    sys.exit(main())
