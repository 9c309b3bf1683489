"""infer_launch: parse, launch, exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bulkinfer.commands.after_launch import has_rows, print_next
from bulkinfer.commands.run_command import run_command
from bulkinfer.config import LaunchConfig
from bulkinfer.host.console import say

if TYPE_CHECKING:
    from bulkinfer.launch.reporting.summary import LaunchResult


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command("infer_launch", LaunchConfig, _run, argv, first_word="data_dir", uses_arrow=True)


def _run(config: LaunchConfig) -> int:
    from bulkinfer.launch.launcher import launch

    result = launch(config, shows_progress=True)
    is_scored_next = config.labels and "topk" in config.save and has_rows(result) and _can_be_scored(config, result)
    return print_next(result, "score" if is_scored_next else "show")


def _can_be_scored(config: LaunchConfig, result: LaunchResult) -> bool:
    """False if `bulkinfer score` would refuse the rows. That no label is a class of the network is said."""
    from bulkinfer.errors import BulkinferError
    from bulkinfer.insight.accuracy.labels import are_of_no_class
    from bulkinfer.insight.class_names import classes_of
    from bulkinfer.results.find_output import require_job

    assert result.output is not None, "what has rows has an output"
    if not result.ok:
        return False
    try:
        job = require_job(result.output)
        is_in_vain = are_of_no_class(job, classes_of(job, config.model_path))
    except BulkinferError as error:
        say(f"infer_launch: the labels cannot be compared with the classes of the network: {error}", is_error=True)
        return False
    if is_in_vain:
        labels = ", ".join(repr(name) for _, name in job.content["label_classes"][:2])
        say(f"labels: none is a class of {job.model_name}, which has other classes than {labels}: the rows cannot be scored")
    return not is_in_vain


if __name__ == "__main__":
    sys.exit(main())
