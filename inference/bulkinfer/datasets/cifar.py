"""CIFAR-10 and CIFAR-100, in their python form (pickled dicts) or their binary form (label bytes before each picture).

In both forms a picture is 3072 bytes: a plane of 1024 red values, one of green, one of blue, each by rows of 32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bulkinfer.datasets.pickled_arrays import read_pickled_dict
from bulkinfer.datasets.types import ArrayPictures, check_labels, count_notes, open_regular
from bulkinfer.errors import UsageError
from bulkinfer.types import Array, shell_word

_SIDE = 32  # pixels
_PICTURE_BYTES = 3072

CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# fmt: off
CIFAR100_NAMES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl",
    "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee",
    "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant",
    "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower",
    "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom",
    "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate",
    "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark",
    "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower",
    "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor", "train", "trout", "tulip",
    "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
)
# fmt: on


def read_python_rows(path: Path, label_key: str) -> tuple[Array, Array]:
    """Pictures (N x 3072, uint8, planar) and int64 labels of a file in python form.

    Raises UsageError that says what is wrong in the file.
    """
    value = read_pickled_dict(path)
    rows = value.get("data")
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != _PICTURE_BYTES:
        raise UsageError(f"{path} is damaged: its 'data' is not an array of N x {_PICTURE_BYTES} bytes")
    if not len(rows):
        raise UsageError(f"{path} holds no pictures")
    labels = _labels(value.get(label_key))
    if labels is None:
        raise UsageError(f"{path} is damaged: its {label_key!r} is not a list of whole numbers")
    if len(labels) != len(rows):
        raise UsageError(f"{path} is damaged: it holds {len(rows):,} pictures and {len(labels):,} labels")
    return rows, labels


def _labels(value: Any) -> Array | None:
    """Labels as int64, or None if they are not whole numbers. Numbers too large for int64 become -1, never a label."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu":
        return value.astype(np.int64)
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        return None
    return np.array([item if abs(item) < 1 << 62 else -1 for item in value], np.int64)


def read_python_names(path: Path, key: str) -> tuple[str, ...]:
    """The names of the classes."""
    names = read_pickled_dict(path).get(key)
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise UsageError(f"{path} is damaged: its {key!r} is not a list of names")
    return tuple(name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name for name in names)


def read_binary_rows(path: Path, label_bytes: int) -> tuple[Array, Array]:
    """Pictures (N x 3072, uint8, planar) and int64 labels of a file in binary form.

    The label is the last of `label_bytes` bytes before each picture. Raises UsageError if the last record is incomplete.
    """
    record_bytes = label_bytes + _PICTURE_BYTES
    with open_regular(path) as file:
        data = np.frombuffer(file.read(), np.uint8)
    if not len(data):
        raise UsageError(f"{path} is empty: fetch it again")
    count, rest = divmod(len(data), record_bytes)
    if rest:
        raise UsageError(
            f"{path} is damaged: after {count:,} records of {record_bytes:,} bytes, {rest:,} bytes are left over at byte "
            f"{count * record_bytes:,}"
        )
    records = data.reshape(count, record_bytes)
    return records[:, label_bytes:], records[:, label_bytes - 1].astype(np.int64)


def read_binary_names(path: Path) -> tuple[str, ...]:
    """The names of the classes, one on a line."""
    with open_regular(path) as file:
        data = file.read()
    try:
        return tuple(line.strip() for line in data.decode().splitlines() if line.strip())
    except UnicodeDecodeError:
        raise UsageError(f"{path} is damaged: it is not text") from None


@dataclass(frozen=True, slots=True)
class Form:
    """One form in which a set is published: its folder, its files, the file that names the classes, and how to read them.

    `read` returns rows (N x 3072, uint8) and labels, `read_names` the names of the classes.
    """

    folder: str
    train: tuple[str, ...]
    valid: tuple[str, ...]
    names: str
    read: Callable[[Path], tuple[Array, Array]]
    read_names: Callable[[Path], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class CifarSet:
    """CIFAR-10 or CIFAR-100: its forms, the names of the classes, and the number of pictures in a published file by split."""

    forms: tuple[Form, ...]
    class_names: tuple[str, ...]
    published: dict[str, int]

    def holds(self, data_dir: Path) -> bool:
        """Whether a folder holds any file of the set."""
        return self._found(data_dir) is not None

    def _found(self, data_dir: Path) -> tuple[Form, Path] | None:
        """The form that is there and the folder of its files: one below `data_dir`, or `data_dir` itself."""
        for form in self.forms:
            for folder in (data_dir / form.folder, data_dir):
                if any((folder / name).is_file() for name in (*form.train, *form.valid)):
                    return form, folder
        return None

    def read(self, data_dir: Path, split: str) -> ArrayPictures:
        """The pictures of a split, 32 x 32 RGB. Raises UsageError that names the missing or broken file."""
        found = self._found(data_dir)
        if found is None:
            folders = " or ".join(form.folder for form in self.forms)
            command = f"bulkinfer get_dataset cifar{len(self.class_names)} --data_dir {shell_word(data_dir)}"
            raise UsageError(f"{data_dir} holds no {folders}: give the folder that holds it, or fetch it: {command}")
        form, folder = found
        paths = [folder / name for name in (form.train if split == "train" else form.valid)]
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise UsageError(f"{folder} lacks {', '.join(missing)}: the data set is incomplete, fetch it again")
        images_NHWC, labels = self._read_files(form, paths)
        notes = count_notes(paths[0], len(labels) // len(paths), self.published[split])
        return ArrayPictures(images_NHWC, labels, self._class_names(form, folder), notes)

    def _read_files(self, form: Form, paths: list[Path]) -> tuple[Array, Array]:
        images_NHWC, labels, count = np.empty((0, _SIDE, _SIDE, 3), np.uint8), np.empty(0, np.int64), 0
        for number, path in enumerate(paths):
            rows, row_labels = form.read(path)
            check_labels(path, row_labels, len(self.class_names))
            if not number:
                count = len(rows)
                images_NHWC = np.empty((count * len(paths), _SIDE, _SIDE, 3), np.uint8)
                labels = np.empty(count * len(paths), np.int64)
            if len(rows) != count:
                raise UsageError(f"{path} holds {len(rows):,} pictures and {paths[0].name} {count:,}: one of them is cut off")
            part = slice(number * count, (number + 1) * count)
            images_NHWC[part] = rows.reshape(count, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
            labels[part] = row_labels
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
            lambda path: read_python_rows(path, "labels"),
            lambda path: read_python_names(path, "label_names"),
        ),
        Form(
            "cifar-10-batches-bin",
            tuple(f"{name}.bin" for name in _BATCHES),
            ("test_batch.bin",),
            "batches.meta.txt",
            lambda path: read_binary_rows(path, 1),
            read_binary_names,
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
            lambda path: read_python_rows(path, "fine_labels"),
            lambda path: read_python_names(path, "fine_label_names"),
        ),
        Form(
            "cifar-100-binary",
            ("train.bin",),
            ("test.bin",),
            "fine_label_names.txt",
            lambda path: read_binary_rows(path, 2),  # the coarse label, then the fine one
            read_binary_names,
        ),
    ),
    CIFAR100_NAMES,
    {"train": 50_000, "valid": 10_000},
)
