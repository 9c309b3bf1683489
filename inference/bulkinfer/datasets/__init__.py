"""Data sets for training: name -> reader; one small file per format."""

from __future__ import annotations

import logging
from pathlib import Path

from bulkinfer.datasets import digits, folders
from bulkinfer.datasets.boxes import BOXES_FILE
from bulkinfer.datasets.cifar import CIFAR10, CIFAR100
from bulkinfer.datasets.idx import FASHION_MNIST, MNIST
from bulkinfer.datasets.types import SPLITS, ArrayPictures, FilePictures, Reader
from bulkinfer.errors import UsageError
from bulkinfer.records.archives.archive_dataset import refuse_columns
from bulkinfer.types import shell_word

log = logging.getLogger("bulkinfer")

READERS = {
    "cifar10": Reader(CIFAR10.holds, CIFAR10.read),
    "cifar100": Reader(CIFAR100.holds, CIFAR100.read),
    "mnist": Reader(MNIST.holds, MNIST.read),
    "fashion_mnist": Reader(FASHION_MNIST.holds, FASHION_MNIST.read),
    "digits": Reader(digits.holds, digits.read, installed_place=digits.installed_place),
    "folder": Reader(folders.holds, folders.read, has_class_folders=True),
}
# Names of the same data sets in other programs.
ALIASES = {"imagenet": "folder", "imagefolder": "folder", "fashion": "fashion_mnist"}


def dataset_name(name: str) -> str:
    """The name of a data set in READERS; case does not matter, `-` is `_`. Raises UsageError with the known names."""
    bare = name.lower().replace("-", "_")
    for key in (bare, ALIASES.get(bare, ""), bare.replace("cifar_", "cifar")):
        if key in READERS:
            return key
    raise UsageError(f"unknown data set {name!r}: known data sets are {', '.join(READERS)}")


def find_reader(name: str) -> Reader:
    """The reader of a data set by any spelling of its name. Raises UsageError with the known names."""
    return READERS[dataset_name(name)]


def read_dataset(
    name: str,
    data_dir: Path,
    split: str,
    *,
    class_order: str = "text",
    with_boxes: bool = False,
    columns: tuple[str, ...] = (),
) -> ArrayPictures | FilePictures:
    """Read one split ("train" or "valid") of a data set; logs notes as warnings. `class_order` is for class folders.

    `with_boxes` reads the boxes of the objects in the pictures as well, which are for class folders and archives.
    `columns` are those of an Archive, for tables. Raises UsageError if there are no boxes or columns, for an unknown name, and
    for a missing or broken file, which it names.
    """
    assert split in SPLITS, split
    reader = find_reader(name)
    _check_folder(data_dir, reader)
    if not reader.has_class_folders:
        if class_order == "number":
            raise UsageError(f"--class_order is for data sets in class folders, and {name} is not one")
        if with_boxes:
            raise UsageError(
                f"--use_boxes is for pictures in class folders and archives, and {name} has no boxes: leave it out"
            )
        refuse_columns(columns, name)
        pictures = reader.read(data_dir, split)
        for note in pictures.notes:
            log.warning(note)
        return pictures
    if class_order not in (*folders.CLASS_ORDERS, folders.BY_NAME):
        raise UsageError(f"--class_order {class_order}: the choices are {' and '.join(folders.CLASS_ORDERS)}")
    pictures = reader.read(data_dir, split, class_order, with_boxes=with_boxes, columns=columns)
    if with_boxes and (isinstance(pictures, ArrayPictures) or pictures.boxes is None):
        raise UsageError(
            f"{data_dir} has no boxes: records with image/object/bbox/*, or {BOXES_FILE}, are needed; leave --use_boxes out"
        )
    return pictures


def holds_any(data_dir: Path) -> bool:
    """Whether a folder holds any data set."""
    return data_dir.is_dir() and any(reader.holds(data_dir) for reader in READERS.values())


def detect(data_dir: Path) -> str:
    """The name of the data set in a folder. Raises UsageError if it holds none or may hold several."""
    _check_folder(data_dir)
    found = [name for name, reader in READERS.items() if reader.holds(data_dir)]
    if not found:
        raise UsageError(
            f"{data_dir} holds none of the known data sets ({', '.join(READERS)}); a folder set has train/ and val/ with a "
            "folder of pictures for each class, or the pictures in val/ and a table of file names and classes in val.csv"
        )
    if len(found) > 1:
        raise UsageError(f"{data_dir} may be {' or '.join(found)}: say which with --dataset")
    return found[0]


def _check_folder(data_dir: Path, reader: Reader | None = None) -> None:
    """Raises UsageError if it is no folder; the message names the folder of an installed package that the reader can read."""
    if data_dir.is_dir():
        return
    what = "is not a folder" if data_dir.exists() else "does not exist"
    if reader and reader.installed_place and (place := reader.installed_place()):
        raise UsageError(f"{data_dir} {what}: give the folder of the data set, as in --data_dir {shell_word(place)}")
    raise UsageError(f"{data_dir} {what}: give the folder of the data set")
