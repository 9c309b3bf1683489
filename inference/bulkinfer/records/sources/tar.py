"""Tar files as archives: an archive of a folder of pictures, or WebDataset's samples of pictures and labels.

A member counts as a picture by the rules of a folder (folder.py). In WebDataset, members whose names are equal up to the first
dot of the base name are one sample: `a/7.cls` has the label of `a/7.jpg`, as a number or the name of a class, and `a/7.json`
may have it as `label`. Links are followed within the archive. Members that a later one of the same name replaces are left out.
"""

from __future__ import annotations

import io
import json
import posixpath
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from bulkinfer.errors import UsageError, first_line
from bulkinfer.files.magic_bytes import HEAD_BYTES, identify
from bulkinfer.records.sources.archives import ListedPicture, PackedPicture, refuse_compressed
from bulkinfer.records.sources.folder import extension_of, is_ignored, is_picture
from bulkinfer.types import key_text, printable

_GZIP = b"\x1f\x8b"
_MOST_LABEL_BYTES = 1 << 16  # of a .cls or .json; a longer one has no label
_MOST_DIGITS = 20
_ENCODING = ("utf-8", "surrogateescape")
# Of pictures whose names have none, by what identify() calls them.
_EXTENSIONS = {"JPEG": b"jpg", "PNG": b"png", "GIF": b"gif", "WEBP": b"webp", "BMP": b"bmp", "TIFF": b"tif", "JPEG2000": b"jp2",
               "AVIF": b"avif", "PPM": b"ppm", "QOI": b"qoi", "HEIC": b"heic"}  # fmt: skip
_LINKS = 8  # that lead to each other


def picture_in(data: bytes) -> bytes:
    """The picture is what the archive holds."""
    return data


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


def list_pictures(file: Any, path: bytes, left_out: Counter[str]) -> Iterator[ListedPicture]:
    """The pictures of an open archive in order; see archives.Kind."""
    if file.read(2) == _GZIP:
        refuse_compressed(path)
    size = file.seek(0, 2)
    file.seek(0)
    found: dict[bytes, ListedPicture] = {}
    links: dict[bytes, bytes] = {}
    labels: dict[bytes, int | str] = {}
    for member, archive in _members(file, size, printable(path)):
        name = _normal(member.name)
        if any(is_ignored(part, False) for part in name.split(b"/")):
            left_out["hidden or system files"] += not member.isdir()
        elif member.issym() or member.islnk():
            base = posixpath.dirname(name) if member.issym() else b""
            links[name] = _normal(posixpath.join(base, member.linkname.encode(*_ENCODING)).decode(*_ENCODING))
        elif member.isreg():
            _take(member, name, archive, found, labels, left_out)
        elif not member.isdir():
            left_out["pipes, sockets or devices"] += 1
    for name, picture in _with_links(found, links).items():
        label = labels.get(_sample(name))
        if isinstance(label, int):
            yield picture._replace(label=label)
        else:
            yield picture._replace(class_name=label or "")


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


def _normal(name: str) -> bytes:
    """The path of a member relative to the archive, which no `..` leads out of."""
    return posixpath.normpath(b"/" + name.encode(*_ENCODING)).lstrip(b"/")


def _sample(name: bytes) -> bytes:
    """What names of members of one sample have in common."""
    folder, slash, base = name.rpartition(b"/")
    return folder + slash + base.partition(b".")[0]


def _take(
    member: tarfile.TarInfo, name: bytes, archive: tarfile.TarFile, found: dict[bytes, ListedPicture],
    labels: dict[bytes, int | str], left_out: Counter[str],
) -> None:  # fmt: skip
    """Note a picture or a label, and count everything else."""
    extension = extension_of(name)
    if extension in (b"cls", b"json") and (label := _label(member, extension, archive)) is not None:
        labels[_sample(name)] = label
        return

    def head() -> bytes:
        content = archive.extractfile(member)
        assert content is not None, "a regular member has content"
        return content.read(HEAD_BYTES)

    if is_picture(posixpath.basename(name), member.size, head):
        if found.pop(name, None):
            left_out["replaced by a later member of the same name"] += 1
        is_whole = not member.issparse()
        found[name] = ListedPicture(name, member.size, member.offset_data if is_whole else -1, member.size)
    else:
        left_out[f".{key_text(extension)}" if extension else "without extension"] += 1


def _label(member: tarfile.TarInfo, extension: bytes, archive: tarfile.TarFile) -> int | str | None:
    """The label in a .cls or .json member: a number from 0, or the name of a class; None if it holds none."""
    content = archive.extractfile(member)
    if content is None or member.size > _MOST_LABEL_BYTES:
        return None
    text = content.read().decode("utf-8", "replace").strip()
    if extension == b"json":
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        text = str(value.get("label", "")) if isinstance(value, dict) else ""
    if text.isdecimal() and len(text) < _MOST_DIGITS:
        return int(text)
    return text if text and text != "-1" and "\n" not in text else None


def _with_links(found: dict[bytes, ListedPicture], links: dict[bytes, bytes]) -> dict[bytes, ListedPicture]:
    """The pictures, and behind them the links to pictures. One whose target is not there is a picture by its name."""
    for name in links:
        target = name
        for _ in range(_LINKS):
            if target not in links:
                break
            target = links[target]
        if target in found:
            found[name] = found[target]._replace(name=name)
        elif is_picture(posixpath.basename(name), 0, bytes):
            found[name] = ListedPicture(name, None, -1, 0)
    return found
