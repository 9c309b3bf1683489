"""bulkinfer score JOB --labels ...: how often a job's network was right."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.run_command import run_command
from bulkinfer.host.console import say
from bulkinfer.insight.options import ScoreConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 1 if top-1 is below --at_least, else 0."""
    return run_command("bulkinfer score", ScoreConfig, _run, argv, positional="job", uses_arrow=True)


def _run(config: ScoreConfig) -> int:
    from bulkinfer.errors import UsageError
    from bulkinfer.insight.accuracy.figures import lines
    from bulkinfer.insight.accuracy.labels import open_labels
    from bulkinfer.insight.accuracy.score import score
    from bulkinfer.insight.accuracy.score_files import FOLDER, NAMES, write_files
    from bulkinfer.insight.class_names import classes_of
    from bulkinfer.insight.find_job import find_job
    from bulkinfer.insight.output_files import files_folder
    from bulkinfer.results.reader import read_results

    if not config.labels:
        raise UsageError("no labels given: use --labels folder, or --labels FILE with a table or COCO annotations")
    found = find_job(config.job, config.log_path)
    results = read_results(found.output)
    with files_folder(config.to, found, FOLDER, NAMES, overwrite=config.overwrite) as folder:
        figures = score(results, open_labels(config.labels, results), classes_of(found.job, config.model_path))
        facts = {"output": str(found.output), "fingerprint": found.job.fingerprint, "model_name": found.job.model_name}
        write_files(figures, folder, facts | {"at_least": config.at_least or None})
    say(f"job: {found.output}, network {found.job.model_name}")
    for line in lines(figures):
        say(line)
    say(f"files in {folder}: {', '.join(NAMES)}")
    if figures.top1 < config.at_least:
        say(f"bulkinfer score: top-1 is {figures.top1:.4f}, below --at_least {config.at_least:g}", is_error=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
