"""What a reader returns: pictures in memory, or paths of picture files, with labels and the names of the classes."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bulkinfer.errors import UsageError, os_error_reason
from bulkinfer.files import guarded
from bulkinfer.types import Archive, Array, Member, Place

if TYPE_CHECKING:
    from bulkinfer.datasets.boxes import BoxTable
    from bulkinfer.records.archives.archive_index import ArchiveIndex

SPLITS = ("train", "valid")


def short_hash(*data: bytes | Array) -> str:
    """The first 16 digits of the sha256 of some data."""
    found = hashlib.sha256()
    for part in data:
        found.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
    return found.hexdigest()[:16]


@dataclass(frozen=True, slots=True, eq=False)
class PathTable:
    """Paths of many files below the folder `root`: all names in one block of bytes, and where each name ends in it.

    Forked loader workers share the memory of the block. They would not share a list of names, since counting references
    writes to each object. A name of ImageNet takes some 40 bytes. `ends` is int64 of N + 1 numbers that begins with 0.
    """

    root: bytes
    names: bytes
    ends: Array

    @classmethod
    def of(cls, root: bytes, names: Iterable[bytes]) -> PathTable:
        """Make the table of `names`, which are relative to the folder `root`."""
        block, ends = bytearray(), array("q", [0])
        for name in names:
            block += name
            ends.append(len(block))
        return cls(root, bytes(block), np.frombuffer(ends, np.int64))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def relative_names(self) -> Iterator[bytes]:
        """The names, in order."""
        return (self.names[start:end] for start, end in pairwise(self.ends.tolist()))

    def __getitem__(self, index: int) -> bytes:
        """The full path of one file. Raises IndexError beyond the last."""
        number = index if index >= 0 else index + len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"path {index} of {len(self)}")
        return self.root + b"/" + self.names[self.ends[number] : self.ends[number + 1]]

    def digest(self) -> str:
        """A hash of the names, in their order."""
        return short_hash(self.names, self.ends)


class Places(Protocol):
    """Where the pictures of a data set lie, by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Place: ...

    def digest(self) -> str:
        """A hash of the places below the folder of the set, in their order."""


@dataclass(frozen=True, slots=True, eq=False)
class MemberTable:
    """Places of many pictures in archives: the number of each one's archive, and the part of it. Some 20 bytes a picture."""

    archives: tuple[Archive, ...]
    numbers: Array
    offsets: Array
    spans: Array

    @classmethod
    def of(cls, index: ArchiveIndex, numbers: Array, offsets: Array, spans: Array) -> MemberTable:
        """The table of pictures in archives of `index`."""
        archives = tuple(replace(archive, path=index.root + b"/" + archive.path) for archive in index.archives)
        return cls(archives, numbers.astype(np.int32), offsets.astype(np.int64), spans.astype(np.int64))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Member:
        """The place of one picture."""
        return Member(self.archives[self.numbers[index]], int(self.offsets[index]), int(self.spans[index]))

    def digest(self) -> str:
        """A hash of the names of the archives, and of the place of each picture in them."""
        names = b"\0".join(os.path.basename(archive.path) for archive in self.archives)
        return short_hash(names, self.numbers, self.offsets, self.spans)


@dataclass(frozen=True, slots=True, eq=False)
class ArrayPictures:
    """A data set in memory: uint8 pictures N x H x W x C (C is 1 for grey, 3 for RGB), int64 labels, names of classes.

    `notes` are sentences for the user about what the files hold.
    """

    images_NHWC: Array
    labels: Array
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.images_NHWC.dtype == np.uint8, self.images_NHWC.dtype
        assert self.images_NHWC.ndim == 4, self.images_NHWC.shape
        assert self.labels.shape == (len(self.images_NHWC),), self.labels.shape

    def __len__(self) -> int:
        return len(self.labels)

    def digest(self) -> str:
        """A hash of the pixels."""
        return short_hash(self.images_NHWC)


@dataclass(frozen=True, slots=True, eq=False)
class FilePictures:
    """A data set in files or archives: places, sorted by class and then by name; int64 labels, names of classes, notes as
    above.

    `boxes` are those of the objects in each picture, if they were asked for and the data set has any.
    """

    places: Places
    labels: Array
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    boxes: BoxTable | None = None

    def __post_init__(self) -> None:
        assert self.labels.shape == (len(self.places),), self.labels.shape

    def __len__(self) -> int:
        return len(self.labels)

    def digest(self) -> str:
        """A hash of the places below the folder of the set, in their order."""
        return self.places.digest()


@dataclass(frozen=True, slots=True)
class Reader:
    """One format of data sets.

    `holds(folder)` says whether a folder holds a set of this format, `read(folder, split)` returns the pictures of a split.
    With `has_class_folders`, `read` takes `class_order` too. `installed_place()` is the folder of a package that comes with the
    set; None if that is not installed.
    """

    holds: Callable[[Path], bool]
    read: Callable[..., ArrayPictures | FilePictures]
    has_class_folders: bool = False
    installed_place: Callable[[], Path | None] | None = None


def check_labels(path: Path, labels: Array, num_classes: int) -> None:
    """Raises UsageError that names the first label outside of 0 .. num_classes - 1."""
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        first = int(wrong[0])
        raise UsageError(
            f"{path} is damaged: picture {first:,} has label {int(labels[first])}, but there are only the classes 0 to "
            f"{num_classes - 1}"
        )


def open_regular(path: Path) -> Any:
    """Open a file for reading bytes. Raises UsageError if it cannot be opened, or is a pipe or a device."""
    try:
        return guarded.open_regular(path, error=UsageError)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {os_error_reason(error)}") from None


def count_notes(path: Path, count: int, published: int) -> tuple[str, ...]:
    """A note if a file holds another number of pictures than the published one."""
    return () if count == published else (f"note: {path} holds {count:,} pictures, the published file {published:,}",)
