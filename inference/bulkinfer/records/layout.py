"""The files by which output of partition_dataset is recognised: dataset.json in its folder, manifest.parquet in a partition."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from bulkinfer.errors import DamagedError
from bulkinfer.files.guarded import open_regular

DATASET_FILE = "dataset.json"
DATASET_CONTENT = "bulkinfer partitions"  # the field `content`, the second one in every dataset.json
MANIFEST_FILE = "manifest.parquet"
MANIFEST_CONTENT = b"bulkinfer manifest"  # `content` in the Parquet metadata

_NUMBER = re.compile(rb"0|[1-9][0-9]*")
_RESERVED = re.compile(rb"(manifest\.parquet_*)(?=/|\Z)")


def carries_dataset(directory: bytes) -> bool:
    """True if `directory` holds a dataset.json that partition_dataset wrote (other tools use that name too).

    False for a file that cannot be read, so that nothing beside it is treated as output of partition_dataset.
    """
    try:
        with open_regular(Path(os.fsdecode(directory)) / DATASET_FILE) as file:
            return f'"{DATASET_CONTENT}"'.encode() in file.read(200)
    except (OSError, DamagedError):
        return False


def carries_manifest(directory: bytes) -> bool:
    """True if `directory` holds a manifest.parquet that partition_dataset wrote; False for a damaged file.

    Raises MemoryError if there is too little memory to read it.
    """
    path = Path(os.fsdecode(directory)) / MANIFEST_FILE
    if not os.path.isfile(path):
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_regular(path) as file:
            metadata = pq.read_metadata(file).metadata or {}
    except MemoryError:  # Arrow's MemoryError is also an ArrowException
        raise
    except (OSError, pa.ArrowException, DamagedError):
        return False
    return bool(metadata.get(b"content") == MANIFEST_CONTENT)


def numbered_entries(output: bytes) -> dict[int, bytes]:
    """Entries of `output` named like a partition (0, 1, 2, ... without leading zeros): number -> path."""
    with os.scandir(output) as entries:
        return {int(entry.name): entry.path for entry in entries if _NUMBER.fullmatch(entry.name)}


def everything_in(folder: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yields (relative path, is a folder) for everything below `folder`; a link to a folder is not a folder."""
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


def remove_tree(folder: bytes) -> None:
    """Remove a folder and all in it. shutil.rmtree keeps each folder above open: too many for a path of 1,000."""
    for name, is_folder in reversed([*everything_in(folder)]):
        path = os.path.join(folder, name)
        os.rmdir(path) if is_folder else os.unlink(path)
    os.rmdir(folder)


def link_name(key: bytes) -> bytes:
    """The path of the picture `key` within its partition: its key, unless that collides with manifest.parquet.

    A first path component `manifest.parquet` followed by n underscores gets one more, so that names stay distinct.
    """
    return _RESERVED.sub(rb"\1_", key, count=1) if _RESERVED.match(key) else key
