"""Where the picture of a row lies: in the folder of pictures that its job names, or in a partition of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bulkinfer.records.data_dir import DATASETS, find_data_dir
from bulkinfer.records.layout import MANIFEST_FILE, carries_dataset, link_name
from bulkinfer.records.manifest_file import open_manifest
from bulkinfer.types import Place


def picture_folder(config: Mapping[str, Any], data_dir: str = "") -> Path:
    """The folder with the pictures of a job, which need not exist: `data_dir`, the one in `config`, or that of a launch.

    `config` is that of the job: see JobFile. Where nothing names a folder it is datasets/.
    """
    return find_data_dir(data_dir or str(config.get("data_dir") or "")) or Path(DATASETS)


class PictureFiles:
    """Finds the files of pictures below `data_dir`: a plain folder, or partitions, whose manifests are opened when needed."""

    def __init__(self, data_dir: Path) -> None:
        self._root = os.path.abspath(os.fsencode(data_dir))
        self._is_partitioned = carries_dataset(self._root)
        self._partitions: dict[int, tuple[bytes, bool]] = {}  # the folder, and whether pictures are there by their keys

    def place(self, key: bytes, partition: int) -> Place:
        """Where the picture should lie. Raises RunError or UsageError if the manifest is missing or damaged."""
        if not self._is_partitioned:
            return os.path.join(self._root, key)
        if partition not in self._partitions:
            self._partitions[partition] = self._opened(partition)
        folder, is_by_key = self._partitions[partition]
        return os.path.join(folder, key if is_by_key else link_name(key))

    def _opened(self, partition: int) -> tuple[bytes, bool]:
        folder = os.path.join(self._root, b"%d" % partition)
        _, metadata = open_manifest(Path(os.fsdecode(folder), MANIFEST_FILE))
        if metadata["mode"] == "manifest":
            return bytes.fromhex(metadata["root"]), True
        return bytes.fromhex(metadata["root"]) or folder, False
