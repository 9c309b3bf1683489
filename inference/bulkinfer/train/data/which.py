"""Which data set a run is trained on."""

from __future__ import annotations

import os
from pathlib import Path

from bulkinfer.train.data.options import training_data_dir

FAKE = ("generated", "synthetic")
_LARGE = ("folder",)  # data sets whose pictures are larger than about 32 x 32


def dataset_of(name: str, data_dir: str) -> str:
    """The data set that --dataset names, or that lies in --data_dir, else cifar10.

    Raises UsageError for an unknown name, and for a folder that holds none or may hold several.
    """
    from bulkinfer.datasets import dataset_name, detect, holds_any

    place = Path(training_data_dir(data_dir))
    if name:
        return name.lower() if name.lower() in FAKE else dataset_name(name)
    if data_dir or (os.environ.get("DATA_DIR") and holds_any(place)):
        return detect(place)
    return "cifar10"


def has_large_pictures(dataset: str) -> bool:
    """Whether the pictures of a data set are larger than about 32 x 32 pixels."""
    return dataset in _LARGE
