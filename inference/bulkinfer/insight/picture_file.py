"""Where the picture of a row lies: in the folder of pictures or the shards that its job names, or in a partition of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bulkinfer.records.data_dir import DATASETS, find_data_dir
from bulkinfer.records.layout import MANIFEST_FILE, carries_dataset
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.shard_dataset import ShardLines, shard_root
from bulkinfer.records.shard_index import open_index
from bulkinfer.records.shard_labels import ShardLabels
from bulkinfer.records.sources.shard_names import kind_by_name
from bulkinfer.types import Place


def picture_folder(config: Mapping[str, Any], data_dir: str = "") -> Path:
    """The folder with the pictures of a job, which need not exist: `data_dir`, the one in `config`, or that of a launch.

    `config` is that of the job: see JobFile. Where nothing names a folder it is datasets/.
    """
    return find_data_dir(data_dir or str(config.get("data_dir") or "")) or Path(DATASETS)


class PictureFiles:
    """Finds the pictures of rows below `data_dir`: a plain folder, shards, or partitions, which are opened when needed."""

    def __init__(self, data_dir: Path) -> None:
        self._root = os.path.abspath(os.fsencode(data_dir))
        self._is_partitioned = carries_dataset(self._root)
        self._partitions: dict[int, Manifest] = {}
        self._shards: dict[bytes, Manifest] = {}

    def place(self, key: bytes, partition: int) -> Place:
        """Where the picture should lie. Raises RunError or UsageError if a manifest or shard is missing or damaged."""
        if not self._is_partitioned:
            return self._in_shard(key) or os.path.join(self._root, key)
        if partition not in self._partitions:
            folder = Path(os.fsdecode(self._root), str(partition))
            self._partitions[partition] = Manifest.opened(folder / MANIFEST_FILE)
        manifest = self._partitions[partition]
        return (manifest.find(key) or self._root) if manifest.shards else manifest.path(key)

    def _in_shard(self, key: bytes) -> Place | None:
        """The place of a picture whose key begins with the name of a shard; None for another."""
        root = shard_root(self._root)
        ends = [at for at, byte in enumerate(key) if byte == ord("/")]
        for name in (key[:end] for end in ends if kind_by_name(key[:end])):
            if name not in self._shards and os.path.isfile(os.path.join(root, name)):
                index = open_index(root, [name])
                self._shards[name] = Manifest(ShardLines(index, ShardLabels(())), root, "manifest", "", index.shards)
            if name in self._shards:
                return self._shards[name].find(key)
        return None
