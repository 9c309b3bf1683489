"""Where the pictures of a command lie: --data_dir, else what the working folder or the environment names."""

from __future__ import annotations

import os
from pathlib import Path

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.records.sources.archive_names import kind_by_name

DATASETS = "datasets"  # where partition_dataset writes if it is not told otherwise


def data_dir_or_environment(data_dir: str, command_to_type: str) -> str:
    """`data_dir`, else $DATA_DIR. Raises UsageError that ends with an example, `command_to_type`."""
    if found := data_dir or os.environ.get("DATA_DIR", ""):
        return found
    raise UsageError(f"no folder of pictures given: use --data_dir or set DATA_DIR, as in: {command_to_type}")


def find_data_dir(data_dir: str) -> Path | None:
    """`data_dir`; if it is empty datasets/ if it holds partitions, else $DATA_DIR, else None. The folder need not exist."""
    if not data_dir and (Path(DATASETS) / "dataset.json").exists():
        return Path(DATASETS)
    found = data_dir or os.environ.get("DATA_DIR", "")
    return Path(found) if found else None


def resolve_data_dir(config: LaunchConfig) -> Path:
    """The folder or archive that find_data_dir finds for --data_dir. Raises UsageError if there is none, or it is neither."""
    found = find_data_dir(config.data_dir)
    if found is None:
        raise UsageError("no pictures given: use --data_dir, set DATA_DIR, or run partition_dataset --data_dir PHOTOS first")
    if not found.is_dir() and not (kind_by_name(os.fsencode(found)) and found.is_file()):
        raise UsageError(f"{found} is not a folder: give --data_dir a folder of pictures or of partitions, or an archive")
    return found
