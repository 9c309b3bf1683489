"""Data sets for training: name -> reader; one small file per format."""

from __future__ import annotations

import logging
from pathlib import Path

from bulkinfer.datasets import digits, folders
from bulkinfer.datasets.cifar import CIFAR10, CIFAR100
from bulkinfer.datasets.idx import FASHION_MNIST, MNIST
from bulkinfer.datasets.types import SPLITS, ArrayPictures, FilePictures, Reader
from bulkinfer.errors import UsageError

log = logging.getLogger("bulkinfer")

READERS = {
    "cifar10": Reader(CIFAR10.holds, CIFAR10.read),
    "cifar100": Reader(CIFAR100.holds, CIFAR100.read),
    "mnist": Reader(MNIST.holds, MNIST.read),
    "fashion_mnist": Reader(FASHION_MNIST.holds, FASHION_MNIST.read),
    "digits": Reader(digits.holds, digits.read),
    "folder": Reader(folders.holds, folders.read, has_class_folders=True),
}
# What the same is called elsewhere.
ALIASES = {"imagenet": "folder", "imagefolder": "folder", "fashion": "fashion_mnist"}


def dataset_name(name: str) -> str:
    """Our name of a data set: `-` is `_`, and letters may be large. Raises UsageError with the legal names."""
    bare = name.lower().replace("-", "_")
    for key in (bare, ALIASES.get(bare, ""), bare.replace("cifar_", "cifar")):
        if key in READERS:
            return key
    raise UsageError(f"unknown data set {name!r}: legal are {', '.join(READERS)}")


def find_reader(name: str) -> Reader:
    """The reader of a name, however it is spelled. Raises UsageError with the legal names."""
    return READERS[dataset_name(name)]


def read_dataset(name: str, data_dir: Path, split: str, *, class_order: str = "text") -> ArrayPictures | FilePictures:
    """One split ("train" or "valid") of a data set. Notes are logged as warnings; `class_order` is for class folders.

    Raises UsageError for an unknown name, and with one sentence that names the file which is missing or broken, and where.
    """
    assert split in SPLITS, split
    reader = find_reader(name)
    _check_folder(data_dir)
    if not reader.has_class_folders:
        if class_order == "number":
            raise UsageError(f"--class_order belongs to data sets in class folders, and {name} is none")
        return reader.read(data_dir, split)
    if class_order not in (*folders.CLASS_ORDERS, folders.BY_NAME):
        raise UsageError(f"--class_order {class_order}: legal are {' and '.join(folders.CLASS_ORDERS)}")
    return reader.read(data_dir, split, class_order)


def holds_any(data_dir: Path) -> bool:
    """Whether a folder holds any data set."""
    return data_dir.is_dir() and any(reader.holds(data_dir) for reader in READERS.values())


def detect(data_dir: Path) -> str:
    """The name of the data set in a folder. Raises UsageError if there is none, or more than one."""
    _check_folder(data_dir)
    found = [name for name, reader in READERS.items() if reader.holds(data_dir)]
    if not found:
        raise UsageError(f"{data_dir} holds no data set that is known ({', '.join(READERS)})")
    if len(found) > 1:
        raise UsageError(f"{data_dir} may be {' or '.join(found)}: say which with --dataset")
    return found[0]


def _check_folder(data_dir: Path) -> None:
    if not data_dir.is_dir():
        what = "is not a folder" if data_dir.exists() else "does not exist"
        raise UsageError(f"{data_dir} {what}: give the folder of the data set")
