"""Where the pictures of a command lie: --data_dir, else what the working folder or the environment names."""

from __future__ import annotations

import os
from pathlib import Path

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError


def data_dir_or_environment(data_dir: str, command_to_type: str) -> str:
    """`data_dir`, else $DATA_DIR. Raises UsageError that ends with an example, `command_to_type`."""
    if found := data_dir or os.environ.get("DATA_DIR", ""):
        return found
    raise UsageError(f"no folder of pictures given: use --data_dir or set DATA_DIR, as in: {command_to_type}")


def resolve_data_dir(config: LaunchConfig) -> Path:
    """--data_dir; without it datasets/ if it holds partitions, else $DATA_DIR. Raises UsageError if none is a folder."""
    if config.data_dir:
        found = Path(config.data_dir)
    elif (Path("datasets") / "dataset.json").exists():
        return Path("datasets")
    elif from_environment := os.environ.get("DATA_DIR"):
        found = Path(from_environment)
    else:
        raise UsageError("no pictures given: use --data_dir, set DATA_DIR, or run partition_dataset --data_dir PHOTOS first")
    if not found.is_dir():
        raise UsageError(f"{found} is not a folder: give --data_dir a folder of pictures or of partitions")
    return found
