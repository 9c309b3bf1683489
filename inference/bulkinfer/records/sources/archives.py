"""Archives: files that hold many pictures. How each kind is read, and which archives of a set are missing."""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple, Protocol

from bulkinfer.errors import RecordError, UsageError
from bulkinfer.files.addresses import address_of
from bulkinfer.records.open_place import size_and_time
from bulkinfer.records.sources.archive_names import COMPRESSED, COUNTED, kind_by_name
from bulkinfer.records.sources.folder import first_names
from bulkinfer.types import Archive, printable, shell_word

# A kind of archives -> its module, which has the functions of a Kind.
KINDS = {
    "tar": "bulkinfer.records.sources.tar",
    "tar.gz": "bulkinfer.records.sources.tar_gz",
    "zip": "bulkinfer.records.sources.zip",
    "tfrecord": "bulkinfer.records.sources.tfrecord",
    "parquet": "bulkinfer.records.sources.parquet",
    "arrow": "bulkinfer.records.sources.arrow",
}
TABLES = ("parquet", "arrow")  # kinds whose pictures are the values of a column

# The program that unpacks a file, by the end of its name.
_UNPACKING = {b".gz": "gunzip", b".bz2": "bunzip2", b".tbz2": "bunzip2", b".xz": "unxz", b".txz": "unxz", b".zst": "unzstd"}
_MOST_NAMED = 99  # missing archives that are counted
_ASKED_AT_ONCE = 32  # of a store


class ListedPicture(NamedTuple):
    """A picture of an archive: its name there, its size in bytes (None: not known), and where it lies, as in Member.

    `offset` is -1 where the archive names the picture and does not hold it. `label` and `class_name` are as the archive has
    them. `boxes` are left, top, right and bottom of each object in it, as shares of width and height.
    """

    name: bytes
    size_bytes: int | None
    offset: int
    span: int
    label: int | None = None
    class_name: str = ""
    boxes: tuple[float, ...] = ()


class PackedPicture(NamedTuple):
    """A picture that goes into an archive: its key, the bytes of its file, and its class, if known: number and name."""

    key: bytes
    data: bytes
    label: int | None = None
    class_name: str = ""


class ArchiveFile(Protocol):
    """An open archive: as it was listed, with its whole path; its name for messages, its size, and its bytes."""

    @property
    def archive(self) -> Archive: ...

    @property
    def name(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset` on, fewer at the end of the file. Raises RecordError if it has changed."""


# A function of offset, span and the most bytes of a picture, which gives the picture there. Raises RecordError if it cannot.
PictureReader = Callable[[int, int, int], bytes]


class Kind(NamedTuple):
    """How a kind of archives is read. `columns` are those of an Archive.

    `list_pictures(file, path, left_out, columns)` yields the pictures of an open archive in order and counts in `left_out` what
    is none, by kind. It raises UsageError, which names `path`, for an archive that cannot be read as a whole.
    `reader(file, columns)` reads its pictures, from several threads at once.
    """

    list_pictures: Callable[[Any, bytes, Counter[str], tuple[str, ...]], Iterator[ListedPicture]]
    reader: Callable[[ArchiveFile, tuple[str, ...]], PictureReader]


def kind(name: str) -> Kind:
    """A kind of KINDS. Raises UsageError for another, as of a manifest that a newer bulkinfer has made."""
    module = _module(name)
    return Kind(module.list_pictures, module.reader)


def write_archive(name: str, file: Any, pictures: Iterable[PackedPicture]) -> None:
    """Write an archive of a kind that partition_dataset packs: config.PACKED."""
    _module(name).write(file, pictures)


def _module(name: str) -> Any:
    if name not in KINDS:
        raise UsageError(f"archives of kind {name!r} are not known here: install a newer bulkinfer")
    return importlib.import_module(KINDS[name])


def read_part(file: ArchiveFile, offset: int, span: int, most_bytes: int) -> bytes:
    """The `span` bytes from `offset` on. Raises RecordError if there are fewer, or more than `most_bytes` are wanted."""
    check_size(span, most_bytes)
    data = file.read(offset, span)
    if len(data) < span:
        raise RecordError("read", f"{file.name} ends before the picture does")
    return data


def check_size(size_bytes: int, most_bytes: int) -> None:
    """Raises RecordError for a picture of more than `most_bytes`."""
    if size_bytes > most_bytes:
        raise RecordError("read", f"too large: {size_bytes} bytes, limit {most_bytes}")


def check_names(root: bytes, names: Iterable[bytes]) -> None:
    """Raises UsageError, before an archive is opened, if one is compressed, or if one of a set x-00000-of-00012 is missing."""
    names = sorted(names)
    if packed := [name for name in names if kind_by_name(name) == COMPRESSED]:
        refuse_compressed(os.path.join(root, packed[0]))
    sets: dict[tuple[bytes, bytes, bytes], set[int]] = {}
    for name in names:
        if match := COUNTED.fullmatch(name):
            sets.setdefault((match["stem"], match["count"], match["end"] or b""), set()).add(int(match["number"]))
    for (stem, count, end), numbers in sets.items():
        absent = (number for number in range(int(count)) if number not in numbers)
        if missing := [b"%b%0*d-of-%b%b" % (stem, len(count), number, count, end) for number in islice(absent, _MOST_NAMED)]:
            shown = printable(os.path.basename(stem))
            there = f"{printable(root)} holds {len(numbers):,} of the {int(count):,} archives {shown}*"
            raise UsageError(
                f"{there}: {first_names(missing)} is missing: fetch it, or give a single archive as the place of the pictures"
            )


def refuse_compressed(path: bytes) -> None:
    """Raises UsageError for a compressed archive."""
    word, end = shell_word(os.fsdecode(path)), os.path.splitext(path)[1].lower()
    name = os.fsdecode(path) + ".gz"
    how = f"{_UNPACKING[end]} {word}" if end in _UNPACKING else f"mv {word} {shell_word(name)} && gunzip {shell_word(name)}"
    raise UsageError(
        f"{printable(path)} is compressed, and no picture can be found in it without reading all before it: unpack it first, "
        f"as with {how}"
    )


def archive_at(root: bytes, name: bytes, columns: tuple[str, ...] = ()) -> Archive:
    """An archive as it is now, its path relative to `root`; `columns` are those of a table.

    Raises UsageError if it cannot be looked at.
    """
    path = os.path.join(root, name)
    try:
        found = size_and_time(path)
    except OSError as error:
        raise UsageError(f"{printable(path)} cannot be read: {error.strerror}: put it back, or give another folder") from None
    kind_of = kind_by_name(name)
    return Archive(name, kind_of, *found, columns if kind_of in TABLES else ())


def archives_at(root: bytes, named: Sequence[tuple[bytes, tuple[str, ...]]]) -> list[Archive]:
    """Archives as they are now, by name and columns; see archive_at. Of a store many are asked for at once."""
    if not address_of(root):
        return [archive_at(root, *each) for each in named]
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        return list(pool.map(lambda each: archive_at(root, *each), named))
