"""CIFAR-10 and CIFAR-100, in their python or their binary form, beside each other's names.

Both forms hold rows of 3072 bytes: a plane of 1024 red values, one of green, one of blue, each by rows of 32.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bulkinfer.datasets import cifar_binary, cifar_python
from bulkinfer.datasets.cifar_names import CIFAR10_NAMES, CIFAR100_NAMES
from bulkinfer.datasets.types import ArrayPictures, check_labels, told_fewer
from bulkinfer.errors import UsageError
from bulkinfer.types import Array

log = logging.getLogger("bulkinfer")

_SIDE = 32  # pixels


@dataclass(frozen=True, slots=True)
class Form:
    """One way in which a set is published: its folder, its files, which of them names the classes, and how one is read.

    `read` gives rows (N x 3072, uint8) and labels; `read_names` the names of the classes.
    """

    folder: str
    train: tuple[str, ...]
    valid: tuple[str, ...]
    names: str
    read: Callable[[Path], tuple[Array, Array]]
    read_names: Callable[[Path], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class CifarSet:
    """CIFAR-10 or CIFAR-100: forms, the names of the classes, pictures in a published file of each split."""

    forms: tuple[Form, ...]
    class_names: tuple[str, ...]
    published: dict[str, int]

    def holds(self, data_dir: Path) -> bool:
        """Whether a folder holds any file of the set."""
        return self._found(data_dir) is not None

    def _found(self, data_dir: Path) -> tuple[Form, Path] | None:
        """The form and the folder of its files: below `data_dir`, or `data_dir` itself."""
        for form in self.forms:
            for folder in (data_dir / form.folder, data_dir):
                if any((folder / name).is_file() for name in (*form.train, *form.valid)):
                    return form, folder
        return None

    def read(self, data_dir: Path, split: str) -> ArrayPictures:
        """The pictures of a split, 32 x 32 RGB. Raises UsageError naming the file that is missing or broken."""
        found = self._found(data_dir)
        if found is None:
            folders = " or ".join(form.folder for form in self.forms)
            raise UsageError(
                f"{data_dir} holds no {folders}: give the folder in which it lies, or fetch it: bulkinfer get_dataset"
            )
        form, folder = found
        paths = [folder / name for name in (form.train if split == "train" else form.valid)]
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise UsageError(f"{folder} lacks {', '.join(missing)}: the data set is not whole, fetch it again")
        images_NHWC, labels = self._read_files(form, paths, split)
        return ArrayPictures(images_NHWC, labels, self._class_names(form, folder))

    def _read_files(self, form: Form, paths: list[Path], split: str) -> tuple[Array, Array]:
        images_NHWC, labels, count = np.empty((0, _SIDE, _SIDE, 3), np.uint8), np.empty(0, np.int64), 0
        for number, path in enumerate(paths):
            rows, row_labels = form.read(path)
            check_labels(path, row_labels, len(self.class_names))
            if not number:
                count = len(rows)
                images_NHWC = np.empty((count * len(paths), _SIDE, _SIDE, 3), np.uint8)
                labels = np.empty(count * len(paths), np.int64)
            if len(rows) != count:
                raise UsageError(f"{path} holds {len(rows):,} pictures and {paths[0].name} {count:,}: one of them was cut")
            part = slice(number * count, (number + 1) * count)
            images_NHWC[part] = rows.reshape(count, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
            labels[part] = row_labels
        told_fewer(paths[0], count, self.published[split])
        return images_NHWC, labels

    def _class_names(self, form: Form, folder: Path) -> tuple[str, ...]:
        path = folder / form.names
        if not path.is_file():
            return self.class_names
        names = form.read_names(path)
        if len(names) != len(self.class_names):
            raise UsageError(f"{path} is damaged: it names {len(names)} classes, not {len(self.class_names)}")
        return names


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

CIFAR10 = CifarSet(
    (
        Form(
            "cifar-10-batches-py",
            _BATCHES,
            ("test_batch",),
            "batches.meta",
            lambda path: cifar_python.read_rows(path, "labels"),
            lambda path: cifar_python.read_names(path, "label_names"),
        ),
        Form(
            "cifar-10-batches-bin",
            tuple(f"{name}.bin" for name in _BATCHES),
            ("test_batch.bin",),
            "batches.meta.txt",
            lambda path: cifar_binary.read_rows(path, 1),
            cifar_binary.read_names,
        ),
    ),
    CIFAR10_NAMES,
    {"train": 10_000, "valid": 10_000},
)

CIFAR100 = CifarSet(
    (
        Form(
            "cifar-100-python",
            ("train",),
            ("test",),
            "meta",
            lambda path: cifar_python.read_rows(path, "fine_labels"),
            lambda path: cifar_python.read_names(path, "fine_label_names"),
        ),
        Form(
            "cifar-100-binary",
            ("train.bin",),
            ("test.bin",),
            "fine_label_names.txt",
            lambda path: cifar_binary.read_rows(path, 2),  # the coarse label, then the fine one
            cifar_binary.read_names,
        ),
    ),
    CIFAR100_NAMES,
    {"train": 50_000, "valid": 10_000},
)
