"""The folder of a training run, and its files that the page is about."""

from __future__ import annotations

from pathlib import Path

from bulkinfer.files.latest_link import LATEST

ARGUMENTS, TRAINING, VALIDATION = "arguments.json", "training.csv", "validation.csv"


def training_folder(word: str, log_path: str) -> Path | None:
    """The folder of a training run that `word` names, by its path or below `log_path`; the newest run there if it is empty.

    None if what `word` names is no training run.
    """
    places = [Path(word), Path(log_path) / word] if word else [Path(log_path) / LATEST]
    return next((place for place in places if (place / TRAINING).is_file() and (place / ARGUMENTS).is_file()), None)
