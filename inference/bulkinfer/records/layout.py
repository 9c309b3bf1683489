"""How we recognise what partition_dataset wrote: dataset.json in an output folder, manifest.parquet in each partition."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

DATASET_FILE = "dataset.json"
DATASET_CONTENT = "bulkinfer partitions"  # the second field of every dataset.json of ours
MANIFEST_FILE = "manifest.parquet"
MANIFEST_CONTENT = b"bulkinfer manifest"  # `content` in the Parquet metadata

_NUMBER = re.compile(rb"0|[1-9][0-9]*")
_RESERVED = re.compile(rb"(manifest\.parquet_*)(?=/|\Z)")


def carries_dataset(directory: bytes) -> bool:
    """True if `directory` holds a dataset.json that partition_dataset wrote (other tools use that name too).

    One that cannot be read is not recognised, so nothing beside it is ever taken for ours.
    """
    try:
        with (Path(os.fsdecode(directory)) / DATASET_FILE).open("rb") as file:
            return f'"{DATASET_CONTENT}"'.encode() in file.read(200)
    except OSError:
        return False


def carries_manifest(directory: bytes) -> bool:
    """True if `directory` holds a manifest.parquet that we wrote. A damaged one is not recognised.

    Raises MemoryError if there is too little memory to tell.
    """
    path = Path(os.fsdecode(directory)) / MANIFEST_FILE
    if not os.path.isfile(path):
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            metadata = pq.read_metadata(file).metadata or {}
    except MemoryError:  # Arrow's is one of the ArrowExceptions too
        raise
    except (OSError, pa.ArrowException):
        return False
    return bool(metadata.get(b"content") == MANIFEST_CONTENT)


def numbered_entries(output: bytes) -> dict[int, bytes]:
    """What in `output` is named like a partition (0, 1, 2, ... without leading zeros): number -> path."""
    with os.scandir(output) as entries:
        return {int(entry.name): entry.path for entry in entries if _NUMBER.fullmatch(entry.name)}


def everything_in(folder: bytes) -> Iterator[tuple[bytes, bool]]:
    """The relative path of all that lies below `folder`, and whether it is a folder itself (a link to one is none)."""
    pending = [b""]
    while pending:
        within = pending.pop()
        prefix = within + b"/" if within else b""
        with os.scandir(os.path.join(folder, within)) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder:
                    pending.append(prefix + entry.name)
                yield prefix + entry.name, is_folder


def link_name(key: bytes) -> bytes:
    """Where the picture `key` lies within its partition: at its key, except that manifest.parquet is our own name.

    A first path component `manifest.parquet` followed by n underscores gets one more, so no two keys meet.
    """
    return _RESERVED.sub(rb"\1_", key, count=1) if _RESERVED.match(key) else key
