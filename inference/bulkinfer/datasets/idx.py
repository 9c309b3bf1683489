"""MNIST and Fashion-MNIST: idx files, plain or gzipped; grey pictures."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bulkinfer.datasets.types import ArrayPictures, check_labels, count_notes, open_regular
from bulkinfer.errors import UsageError, first_line
from bulkinfer.files.user_path import real_path
from bulkinfer.types import Array, shell_word

_IMAGES_MAGIC, _LABELS_MAGIC = 0x0803, 0x0801
_PREFIXES = {"train": "train", "valid": "t10k"}
_PUBLISHED = {"train": 60_000, "valid": 10_000}
# The authors' name of a file, and its name after some browsers replaced the dash by a dot.
_IMAGES, _LABELS = ("images-idx3-ubyte", "images.idx3-ubyte"), ("labels-idx1-ubyte", "labels.idx1-ubyte")
_BLOCK_BYTES = 1 << 24
_MOST_BYTES = 1 << 30  # of a file; twice as much as the largest set of this kind, EMNIST, has
_MOST_PIXELS = 65_535  # of a side; a larger number means a damaged header


@dataclass(frozen=True, slots=True)
class IdxSet:
    """MNIST or Fashion-MNIST: the folders in which its files may lie, and the names of its classes."""

    folders: tuple[str, ...]
    is_fashion: bool
    class_names: tuple[str, ...]

    def holds(self, data_dir: Path) -> bool:
        """Whether a folder holds any file of the set. Both sets use the same file names, so the folder's name decides."""
        folder = self._folder(data_dir)
        if folder is None:
            return False
        place = str(real_path(folder)).lower() if folder == data_dir else ""
        return "mnist" not in place or ("fashion" in place) == self.is_fashion

    def _folder(self, data_dir: Path) -> Path | None:
        for folder in (*(data_dir / name for name in self.folders), data_dir):
            if any(_find(folder, prefix, kind) for prefix in _PREFIXES.values() for kind in (_IMAGES, _LABELS)):
                return folder
        return None

    def read(self, data_dir: Path, split: str) -> ArrayPictures:
        """The pictures of a split, N x H x W x 1. Raises UsageError that names the missing or broken file."""
        folder = self._folder(data_dir)
        prefix = _PREFIXES[split]
        if folder is None:
            words = (
                "bulkinfer get_dataset",
                "fashion_mnist" if self.is_fashion else "mnist",
                "--data_dir",
                shell_word(data_dir),
            )
            raise UsageError(
                f"{data_dir} holds no {prefix}-{_IMAGES[0]} (.gz or plain): give the folder of the idx files, or fetch them: "
                f"{' '.join(words)}"
            )
        images_path, labels_path = _find(folder, prefix, _IMAGES), _find(folder, prefix, _LABELS)
        if images_path is None or labels_path is None:
            name = (_IMAGES if images_path is None else _LABELS)[0]
            raise UsageError(f"{folder} lacks {prefix}-{name}.gz: the data set is incomplete, fetch it again")
        images = _read(images_path, _IMAGES_MAGIC, 3)
        labels = _read(labels_path, _LABELS_MAGIC, 1).astype(np.int64)
        if len(images) != len(labels):
            raise UsageError(
                f"{images_path} holds {len(images):,} pictures and {labels_path.name} {len(labels):,} labels: they do not "
                "belong together, or one of them is cut off"
            )
        check_labels(labels_path, labels, len(self.class_names))
        notes = count_notes(images_path, len(images), _PUBLISHED[split])
        return ArrayPictures(images[..., np.newaxis], labels, self.class_names, notes)


def _find(folder: Path, prefix: str, kind: tuple[str, ...]) -> Path | None:
    paths = (folder / f"{prefix}-{name}{end}" for name in kind for end in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def _read(path: Path, magic: int, num_sizes: int) -> Array:
    """The array of an idx file of unsigned bytes."""
    with open_regular(path) as file:
        stream = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        try:
            return _read_stream(path, stream, magic, num_sizes)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UsageError(f"{path} is damaged: it cannot be read to its end as a gzip file ({first_line(error)})") from None


def _read_stream(path: Path, stream: Any, magic: int, num_sizes: int) -> Array:
    mark = stream.read(4)
    sizes_bytes = stream.read(4 * num_sizes) if int.from_bytes(mark) == magic else b""
    if len(mark) == 4 and int.from_bytes(mark) != magic:
        kind = "pictures" if num_sizes == 3 else "labels"
        raise UsageError(f"{path} is not an idx file of {kind}: it begins with {int.from_bytes(mark):#010x}, not {magic:#010x}")
    if len(sizes_bytes) < 4 * num_sizes:
        raise UsageError(f"{path} is damaged: it ends within its header, at byte {len(mark) + len(sizes_bytes)}")
    sizes = struct.unpack(f">{num_sizes}I", sizes_bytes)
    if any(not 0 < size <= _MOST_PIXELS for size in sizes[1:]) or not sizes[0]:
        raise UsageError(f"{path} is damaged: its header gives the sizes {' x '.join(map(str, sizes))}")
    expected = math.prod(sizes)
    if expected > _MOST_BYTES:
        raise UsageError(
            f"{path} is damaged: its header promises {expected:,} bytes, and such a set has at most {_MOST_BYTES:,}"
        )
    data = _read_up_to(stream, expected + 1)
    if len(data) != expected:
        found = f"{len(data):,} follow" if len(data) < expected else "more follow"
        raise UsageError(f"{path} is damaged: its header promises {expected:,} bytes of pixels or labels, but {found}")
    return np.frombuffer(data, np.uint8).reshape(sizes)


def _read_up_to(stream: Any, size_bytes: int) -> bytearray:
    """Read at most so many bytes, and use no more memory than the file has bytes."""
    data = bytearray()
    while len(data) < size_bytes and (block := stream.read(min(_BLOCK_BYTES, size_bytes - len(data)))):
        data += block
    return data


MNIST = IdxSet(("mnist", "MNIST/raw"), False, ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"))
FASHION_MNIST = IdxSet(
    ("fashion_mnist", "FashionMNIST/raw", "fashion-mnist"),
    True,
    ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
