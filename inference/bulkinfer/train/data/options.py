"""Options of get_dataset, and the folder of data sets for training."""

from __future__ import annotations

import os
from dataclasses import dataclass

from bulkinfer.config import check_values, option
from bulkinfer.errors import UsageError


@dataclass(frozen=True)
class GetDatasetConfig:
    """Fetch a data set: resumed, checked, unpacked, and published whole or not at all."""

    dataset: str = option(
        "", "cifar10, cifar100, mnist, fashion_mnist or coco_val2014 (also as a plain argument)", group="input", value="NAME"
    )
    url: str = option(
        "",
        "where to fetch it instead: a mirror, the address of an archive, or a local archive (tar, zip, deb) or folder",
    )
    checksum: str = option(
        "", "md5 or sha256 that the archive at --url must have instead of the published one; none: any file is accepted"
    )
    any_size: bool = option(
        False, "take files and archives of any size; without it, of about twice the published sizes at most"
    )
    data_dir: str = option(
        "", "folder of data sets, in which the set gets its own folder; default $DATA_DIR, else data", group="output"
    )
    force: bool = option(False, "fetch it again and replace what is there")

    def __post_init__(self) -> None:
        check_values(self)
        if self.checksum and not self.url:
            raise UsageError("--checksum is for --url alone: the checksums of published files are known")


def training_data_dir(data_dir: str) -> str:
    """The folder of data sets for training: `data_dir`, else $DATA_DIR, else `data`."""
    return data_dir or os.environ.get("DATA_DIR", "") or "data"
