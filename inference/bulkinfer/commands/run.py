"""bulkinfer run PHOTOS: the network, made if it is not there, over every picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bulkinfer.commands.after_launch import has_rows, print_next
from bulkinfer.commands.missing_network import make_missing_network
from bulkinfer.commands.run_command import run_command
from bulkinfer.config import RunConfig
from bulkinfer.host.console import say
from bulkinfer.host.process_setup import hide_pandas
from bulkinfer.host.stop_signals import is_own_process


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, as that of infer_launch."""
    return run_command("bulkinfer run", RunConfig, _run, argv, first_word="data_dir")


def _run(config: RunConfig) -> int:
    if config.labels and config.input == "pictures":
        _check_annotations(config)
    if not config.dry_run:
        _make_missing_network(config)
    if is_own_process():
        hide_pandas()  # only now: packages of networks need it
    from bulkinfer.launch.launcher import launch

    result = launch(config, shows_progress=True)
    if config.labels and has_rows(result) and _print_accuracy(config, str(result.output)):
        return print_next(result, "report")
    return print_next(result)


def _check_annotations(config: RunConfig) -> None:
    """Raises UsageError, before pictures are run, if --labels is a file of annotations and holds none of them."""
    import os
    from pathlib import Path

    from bulkinfer.records.data_dir import resolve_data_dir
    from bulkinfer.records.sources.coco import read_annotations
    from bulkinfer.records.sources.labels import is_annotations

    if is_annotations(config.labels):
        read_annotations(Path(config.labels), os.fsencode(resolve_data_dir(config.data_dir, config.command)), "--labels")


def _print_accuracy(config: RunConfig, output: str) -> bool:
    """Score the rows as `bulkinfer score` does. If that is not possible, say why: the rows stay good; returns False."""
    from bulkinfer.commands.score import score_job
    from bulkinfer.errors import BulkinferError
    from bulkinfer.files.addresses import place_path
    from bulkinfer.insight.options import ScoreConfig
    from bulkinfer.records.sources.labels import is_annotations
    from bulkinfer.results.find_output import require_job

    try:
        has_names = "label_classes" in require_job(place_path(output)).content  # else an earlier version began the job
        labels = "" if has_names and not is_annotations(config.labels) else config.labels
        score_job(ScoreConfig(job=output, labels=labels, model_path=config.model_path, log_path=config.log_path))
    except BulkinferError as error:
        say(f"bulkinfer run: no accuracy: {error}", is_error=True)
        return False
    return True


def _make_missing_network(config: RunConfig) -> None:
    """Make the network of `config` if there is no folder of it; what is wrong with an existing one, the launch says.

    Raises UsageError if there are no pictures, before anything is made, or the name is none; RunError that names the command
    to type if a package is missing.
    """
    from bulkinfer.files.addresses import address_of
    from bulkinfer.model.card import CARD
    from bulkinfer.model.names import named_folder
    from bulkinfer.records.data_dir import resolve_data_dir

    if config.input == "pictures":
        resolve_data_dir(config.data_dir, config.command)
    if address_of(config.model_path) or (named_folder(config.model_path, config.model_name)[0] / CARD).exists():
        return
    from bulkinfer.launch.plan import check_at_once

    check_at_once(config)
    make_missing_network(config.model_name, config.model_path, config.batch_size)


if __name__ == "__main__":
    sys.exit(main())
