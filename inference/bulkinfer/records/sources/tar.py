"""Tar files as archives: a folder of pictures that was packed, or WebDataset's samples of pictures and labels.

packed_folder.py says which members are pictures, and what their labels are.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from bulkinfer.errors import UsageError, first_line
from bulkinfer.files.magic_bytes import HEAD_BYTES, identify
from bulkinfer.records.sources.archives import (
    ArchiveFile,
    ListedPicture,
    PackedPicture,
    PictureReader,
    read_part,
)
from bulkinfer.records.sources.packed_folder import PackedFolder, link_target, path_inside
from bulkinfer.types import printable, shell_word

_GZIP = b"\x1f\x8b"
_ENCODING = ("utf-8", "surrogateescape")
# Of pictures whose names have none, by what identify() calls them.
_EXTENSIONS = {"JPEG": b"jpg", "PNG": b"png", "GIF": b"gif", "WEBP": b"webp", "BMP": b"bmp", "TIFF": b"tif", "JPEG2000": b"jp2",
               "AVIF": b"avif", "PPM": b"ppm", "QOI": b"qoi", "HEIC": b"heic"}  # fmt: skip


def reader(file: ArchiveFile, _columns: tuple[str, ...] = ()) -> PictureReader:
    """Reads pictures as they lie in the archive; see archives.Kind."""
    return partial(read_part, file)


def write(file: Any, pictures: Iterable[PackedPicture]) -> None:
    """Write pictures as WebDataset's samples: a picture, then its label in a .cls. Equal pictures give equal bytes."""
    names = set[bytes]()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT, encoding=_ENCODING[0], errors=_ENCODING[1]) as archive:
        for picture in pictures:
            sample, extension = _sample_name(picture, names)
            _add(archive, sample + b"." + extension, picture.data)
            if picture.label is not None:
                _add(archive, sample + b".cls", b"%d" % picture.label)


def _sample_name(picture: PackedPicture, names: set[bytes]) -> tuple[bytes, bytes]:
    """What a picture is called in an archive, and its extension, so that WebDataset takes it for a sample of its own.

    That reads the name of a sample up to the first dot of the base name, and no file without an extension.
    """
    folder, slash, base = picture.key.rpartition(b"/")
    stem, dot, extension = base.rpartition(b".")
    if not dot:
        stem, extension = base, _EXTENSIONS.get(identify(picture.data[:HEAD_BYTES]).name, b"bin")
    sample = folder + slash + (stem.replace(b".", b"_") or b"_")
    number = 1
    while sample in names:
        number += 1
        sample = folder + slash + (stem.replace(b".", b"_") or b"_") + b"-%d" % number
    names.add(sample)
    return sample, extension


def _add(archive: tarfile.TarFile, name: bytes, data: bytes) -> None:
    member = tarfile.TarInfo(name.decode(*_ENCODING))
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def list_pictures(file: Any, path: bytes, left_out: Counter[str], _columns: tuple[str, ...] = ()) -> Iterator[ListedPicture]:
    """The pictures of an open archive in order; see archives.Kind."""
    if file.read(2) == _GZIP:
        word, renamed = shell_word(os.fsdecode(path)), shell_word(os.fsdecode(path) + ".gz")
        raise UsageError(
            f"{printable(path)} is compressed by gzip, and its name does not say so: rename it, as with mv {word} {renamed}"
        )
    size = file.seek(0, 2)
    file.seek(0)
    folder = PackedFolder(left_out)
    for member, archive in _members(file, size, printable(path)):
        name = path_inside(member.name.encode(*_ENCODING))
        if folder.skips(name, is_folder=member.isdir()):
            continue
        if member.issym():
            folder.add_link(name, link_target(name, member.linkname.encode(*_ENCODING)))
        elif member.islnk():
            folder.add_link(name, path_inside(member.linkname.encode(*_ENCODING)))
        elif member.isreg():
            offset = -1 if member.issparse() else member.offset_data
            folder.add_file(ListedPicture(name, member.size, offset, member.size), partial(_first_bytes, archive, member))
        elif not member.isdir():
            left_out["pipes, sockets or devices"] += 1
    yield from folder.pictures()


def _members(file: Any, size: int, shown: str) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """The members of an archive. Raises UsageError for one that is cut off or damaged: what is behind that is not known."""
    try:
        with tarfile.open(fileobj=file, mode="r:", encoding=_ENCODING[0], errors=_ENCODING[1]) as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # a member takes a kilobyte, and there may be millions
                if member.isreg() and not member.issparse() and member.offset_data + member.size > size:
                    end = member.offset_data + member.size
                    raise UsageError(f"{shown} is cut off: its pictures go on to byte {end}, and it has {size}: fetch it again")
                yield member, archive
            end = archive.offset
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        raise UsageError(f"{shown} cannot be read as a tar file ({first_line(error)}): fetch it again") from None
    file.seek(end)
    mark = file.read(tarfile.BLOCKSIZE)
    if len(mark) < tarfile.BLOCKSIZE:
        raise UsageError(f"{shown} is cut off: it ends at byte {size} without the mark that ends a tar file: fetch it again")
    if mark.strip(b"\0"):
        raise UsageError(f"{shown} is damaged: no member begins at byte {end}, where one should: fetch it again")


def _first_bytes(archive: tarfile.TarFile, member: tarfile.TarInfo, count: int) -> bytes:
    content = archive.extractfile(member)
    assert content is not None, "a regular member has content"
    return content.read(count)
