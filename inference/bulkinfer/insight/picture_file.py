"""Where the picture of a row lies: in the folder of pictures or the archives that its job names, or in a partition of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bulkinfer.files.addresses import whole_path
from bulkinfer.files.user_path import DATASETS, find_data_dir
from bulkinfer.records.archives.archive_dataset import ArchiveLines, archive_root, is_archive_file, wanted_columns
from bulkinfer.records.archives.archive_index import open_index
from bulkinfer.records.archives.archive_labels import ArchiveLabels
from bulkinfer.records.layout import MANIFEST_FILE, carries_dataset
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.sources.archive_names import kind_by_name
from bulkinfer.types import Place


def picture_folder(config: Mapping[str, Any], data_dir: str = "") -> Path:
    """The folder with the pictures of a job, which need not exist: `data_dir`, the one in `config`, or that of a launch.

    `config` is that of the job: see JobFile. Where nothing names a folder it is datasets/.
    """
    return find_data_dir(data_dir or str(config.get("data_dir") or "")) or Path(DATASETS)


def picture_columns(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns that a job named for the tables of its pictures, see Archive. `config` is that of the job: see JobFile."""
    return wanted_columns(str(config.get("image_column") or ""), str(config.get("label_column") or ""))


class PictureFiles:
    """Finds the pictures of rows below `data_dir`: a plain folder, archives, or partitions, which are opened when needed.

    `columns` are those of the job, see Archive.
    """

    def __init__(self, data_dir: Path, columns: tuple[str, ...] = ()) -> None:
        self._columns = columns
        self._root = whole_path(data_dir)
        self._is_partitioned = carries_dataset(self._root)
        self._partitions: dict[int, Manifest] = {}
        self._archives: dict[bytes, Manifest] = {}

    def place(self, key: bytes, partition: int) -> Place:
        """Where the picture should lie. Raises RunError or UsageError if a manifest or archive is missing or damaged."""
        if not self._is_partitioned:
            return self._in_archive(key) or os.path.join(self._root, key)
        if partition not in self._partitions:
            folder = Path(os.fsdecode(self._root), str(partition))
            self._partitions[partition] = Manifest.opened(folder / MANIFEST_FILE)
        manifest = self._partitions[partition]
        return (manifest.find(key) or self._root) if manifest.archives else manifest.path(key)

    def _in_archive(self, key: bytes) -> Place | None:
        """The place of a picture whose key begins with the name of an archive; None for another."""
        root = archive_root(self._root)
        ends = [at for at, byte in enumerate(key) if byte == ord("/")]
        for name in (key[:end] for end in ends if kind_by_name(key[:end])):
            if name not in self._archives and is_archive_file(os.fsdecode(os.path.join(root, name))):
                index = open_index(root, [name], self._columns)
                self._archives[name] = Manifest(ArchiveLines(index, ArchiveLabels(())), root, "manifest", "", index.archives)
            if name in self._archives:
                return self._archives[name].find(key)
        return None
