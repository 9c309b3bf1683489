"""bulkinfer score JOB --labels ...: how often a job's network was right."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import STDOUT, say
from bulkinfer.insight.options import ScoreConfig

if TYPE_CHECKING:
    from bulkinfer.insight.accuracy.figures import Figures


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 1 if top-1 is below --at_least, else 0."""
    return run_command("bulkinfer score", ScoreConfig, score_job, argv, positional="job", uses_arrow=True)


def score_job(config: ScoreConfig) -> int:
    """Score a job, print the figures and write their files; returns the exit code. Raises the errors of score()."""
    from bulkinfer.insight.accuracy.figures import lines
    from bulkinfer.insight.accuracy.labels import open_labels
    from bulkinfer.insight.accuracy.score import score
    from bulkinfer.insight.accuracy.score_files import FOLDER, NAMES, write_files
    from bulkinfer.insight.class_names import classes_of
    from bulkinfer.insight.find_job import find_job
    from bulkinfer.insight.output_files import files_folder, write_stdout
    from bulkinfer.results.reader import read_results

    found = find_job(config.job, config.log_path)
    results = read_results(found.output)
    facts = {"output": str(found.output), "fingerprint": found.job.fingerprint, "model_name": found.job.model_name,
             "at_least": config.at_least or None}  # fmt: skip

    def figures_of() -> Figures:
        names = classes_of(found.job, config.model_path)
        return score(results, open_labels(config.labels, results, names), names)

    if config.to == STDOUT:
        figures, written = figures_of(), ""
        write_stdout({**facts, **figures.as_json()})
    else:
        with files_folder(config.to, found, FOLDER, NAMES, overwrite=config.overwrite) as folder:
            figures, written = figures_of(), f"files in {folder}: {', '.join(NAMES)}"
            write_files(figures, folder, facts)
    say(f"job: {found.output}, network {found.job.model_name}")
    for line in lines(figures):
        say(line)
    if written:
        say(written)
    if figures.top1 < config.at_least:
        say(f"bulkinfer score: top-1 is {figures.top1:.4f}, below --at_least {config.at_least:g}", is_error=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
