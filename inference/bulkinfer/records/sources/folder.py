"""The pictures in a folder: a recursive scan that counts every file it leaves out and reports every error.

Symbolic links to files are followed. Links to folders are followed too, after all real folders. Each folder counts once, under
its real path if that is inside the root, so a loop of links ends.
"""

from __future__ import annotations

import heapq
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bulkinfer.errors import UsageError, os_error_reason
from bulkinfer.files.guarded import open_regular
from bulkinfer.files.magic_bytes import CAMERA_RAW, HEAD_BYTES, identify
from bulkinfer.files.user_path import did_you_mean
from bulkinfer.host.number_text import size_text
from bulkinfer.records.layout import DATASET_FILE, MANIFEST_FILE, carries_dataset, carries_manifest
from bulkinfer.records.sources.archive_names import is_archive_name, kind_by_name
from bulkinfer.types import key_text, printable, printable_path, shell_word

PICTURE_EXTENSIONS = frozenset(
    b"jpg jpeg jpe jfif jif png apng webp bmp dib gif tif tiff heic heif hif avif avifs mpo jp2 j2k j2c jpc jpf jpx jxl "
    b"pnm ppm pgm pbm pfm tga icb vda ico icns cur pcx psd sgi dds qoi xbm xpm".split()
)
_WEAK_MAGIC = {  # two letters may also begin a text: without a picture's extension more bytes must match
    "BMP": re.compile(rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0", re.DOTALL),
    "PPM": re.compile(rb"P[1-6]\s+[0-9#]"),
}

_OF_CAMERAS = ("HEIC", CAMERA_RAW)

_DirectoryId = tuple[int, int]  # device and inode


class Picture(NamedTuple):
    """A file that counts as a picture: its path relative to the root, its size and the time of its last change.

    `size_bytes` is None if it could not be read, `mtime_ns` also where nobody asked for it.
    """

    key: bytes
    size_bytes: int | None
    mtime_ns: int | None = None


class Unreadable(NamedTuple):
    """A folder that could not be read, or a file whose kind only its content can show."""

    key: bytes
    reason: str


@dataclass
class Scan:
    """The pictures under `root`, sorted by key bytes, and what was left out.

    A file or folder that is ignored (hidden, AppleDouble, .DS_Store, Thumbs.db, __MACOSX) counts once. `not_pictures` counts by
    extension; `archives` are those of them that are named like files of many pictures, and `lines` says what is in those, where
    they are the data set. `left_out` are outputs of bulkinfer, `repeated` folders that were reached again. The size of a
    picture is None if it could not be read (a broken link): its record will be an error row of stage read.
    """

    root: bytes
    pictures: list[Picture] = field(default_factory=list)
    ignored: int = 0
    not_pictures: Counter[str] = field(default_factory=Counter)
    unreadable: list[Unreadable] = field(default_factory=list)
    left_out: list[bytes] = field(default_factory=list)
    archives: list[bytes] = field(default_factory=list)
    repeated: list[bytes] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def shown_root(self) -> str:
        """The root for messages."""
        return printable(self.root)

    def summary(self) -> list[str]:
        """Lines to print: what was found and what was left out. Unreadable folders are in `unreadable_lines`."""
        if self.lines:
            return self.lines
        return found_lines(len(self.pictures), sum(picture.size_bytes or 0 for picture in self.pictures), self)

    def unreadable_lines(self) -> list[str]:
        """One line for each folder that could not be searched."""
        return [f"unreadable, its pictures are missing: {printable(key)} ({reason})" for key, reason in self.unreadable]


def found_lines(num_pictures: int, size_bytes: int, scan: Scan) -> list[str]:
    """Lines to print about a scan that found so many pictures."""
    lines = [f"found {counted(num_pictures, 'picture')} ({size_text(size_bytes)}) in {scan.shown_root}"]
    if scan.ignored:
        lines.append(f"ignored {scan.ignored:,} hidden or system files and folders")
    if scan.not_pictures:
        most_first = sorted(scan.not_pictures.items(), key=lambda item: (-item[1], item[0]))
        kinds = [f"{count:,} {kind}" for kind, count in most_first]
        dots = ", ..." if len(kinds) > 5 else ""
        lines.append(f"not pictures: {scan.not_pictures.total():,} ({', '.join(kinds[:5])}{dots})")
    lines += [f"left out: {printable(key) or '.'}/ (an output of bulkinfer)" for key in scan.left_out]
    if scan.repeated:
        lines.append(f"reached twice through links, counted once: {first_names(scan.repeated)}")
    return lines


def counted(number: int, word: str, one_does: str = "", many_do: str = "") -> str:
    """`1 picture`, `2 pictures`, `2 classes`, `2 copies`; with verbs `1 row has`, `2 rows have`."""
    many = f"{word}es" if word.endswith("s") else f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{number:,} {word} {one_does}".rstrip() if number == 1 else f"{number:,} {many} {many_do}".rstrip()


def first_names(keys: Sequence[bytes]) -> str:
    """The first five keys for a message, and how many more."""
    return ", ".join(printable(key) for key in keys[:5]) + (f" and {len(keys) - 5:,} more" if len(keys) > 5 else "")


def scan_folder(folder: str | bytes | os.PathLike[str], *, exclude: bytes | None = None, include_hidden: bool = False) -> Scan:
    """Find the pictures under `folder`, leaving out the folder `exclude` and output of bulkinfer: partitions, logs of jobs.

    The content decides, as it does for lists. A file whose extension is in PICTURE_EXTENSIONS is not opened here, since
    decoding judges it: it has a row in any case. Of every other file the first HEAD_BYTES are read, and it is a picture if
    these say so. Raises UsageError if `folder` cannot be searched at all.
    """
    root = os.path.realpath(os.fsencode(folder))
    result = Scan(root)
    seen = _ancestors(root)
    excluded = _directory_id(os.stat(exclude)) if exclude is not None and os.path.isdir(exclude) else None
    pending, links = [(b"", _root_id(root))], list[tuple[bytes, _DirectoryId]]()
    while pending or links:
        directory, identity = pending.pop() if pending else heapq.heappop(links)
        if identity == excluded:
            result.left_out.append(directory)
            continue
        if identity in seen:
            result.repeated.append(directory)
            continue
        seen.add(identity)
        folders = _scan_directory(directory, result, include_hidden)
        for key, child, is_link in sorted(folders, reverse=True):
            if is_link:
                heapq.heappush(links, (key, child))
            else:
                pending.append((key, child))
    result.pictures.sort()
    result.archives.sort()
    result.unreadable.sort()
    return result


def _root_id(root: bytes) -> _DirectoryId:
    try:
        os.scandir(root).close()
        return _directory_id(os.stat(root))
    except (FileNotFoundError, NotADirectoryError):
        raise no_folder(Path(os.fsdecode(root)), "a folder of pictures, or an archive") from None
    except OSError as error:
        raise UsageError(f"{printable(root)} cannot be searched: {os_error_reason(error)}") from None


def no_folder(path: Path, wanted: str) -> UsageError:
    """The error of a place of pictures that is not there, or is a file and no archive; `wanted` is what to give."""
    if path.is_file() and extension_of(os.fsencode(path.name)) in PICTURE_EXTENSIONS:
        folder = shell_word(path.parent)
        return UsageError(f"{printable_path(path)} is one picture: give the folder that it lies in, {folder}")
    what = "is not a folder" if path.exists() else "does not exist"
    meant = did_you_mean(path, takes_file=is_archive_name) or f"give {wanted}"
    return UsageError(f"{printable_path(path)} {what}: {meant}")


def _directory_id(status: os.stat_result) -> _DirectoryId:
    return status.st_dev, status.st_ino


def _ancestors(root: bytes) -> set[_DirectoryId]:
    """The folders above the root; a link to one of them would be a loop."""
    found = set()
    while (parent := os.path.dirname(root)) != root:
        found.add(_directory_id(os.stat(parent)))
        root = parent
    return found


def _scan_directory(directory: bytes, result: Scan, include_hidden: bool) -> list[tuple[bytes, _DirectoryId, bool]]:
    """Sort the entries of one folder into `result`; returns its sub-folders (key, identity, reached by a link)."""
    path = os.path.join(result.root, directory)
    try:
        with os.scandir(path) as iterator:
            entries = list(iterator)
    except OSError as error:
        result.unreadable.append(Unreadable(directory, error.strerror or str(error)))
        return []
    if _is_output(path, entries):
        result.left_out.append(directory)
        return []
    prefix = directory + b"/" if directory else b""
    return list(_take_entries(entries, prefix, result, include_hidden))


def _is_output(path: bytes, entries: list[os.DirEntry[bytes]]) -> bool:
    names = {entry.name for entry in entries}
    if DATASET_FILE.encode() in names and carries_dataset(path):
        return True
    return MANIFEST_FILE.encode() in names and carries_manifest(path)


def _take_entries(
    entries: list[os.DirEntry[bytes]], prefix: bytes, result: Scan, include_hidden: bool
) -> Iterator[tuple[bytes, _DirectoryId, bool]]:
    for entry in entries:
        key = prefix + entry.name
        if is_ignored(entry.name, include_hidden):
            result.ignored += 1
            continue
        try:
            status = entry.stat()
        except OSError as error:
            _take_broken(entry, key, error, result)
            continue
        if stat.S_ISDIR(status.st_mode):
            yield key, _directory_id(status), entry.is_symlink()
        elif stat.S_ISREG(status.st_mode):
            _take_file(entry, Picture(key, status.st_size, status.st_mtime_ns), result)
        else:  # a pipe named x.jpg would hang its reader
            result.not_pictures["pipes, sockets or devices"] += 1


def is_ignored(name: bytes, include_hidden: bool) -> bool:
    """True if a file or folder of this name is not part of a data set: hidden, or made by an operating system for itself."""
    if name == b".DS_Store" or name == b"__MACOSX" or name.lower() == b"thumbs.db":
        return True
    return name.startswith(b".") and not include_hidden


def extension_of(name: bytes) -> bytes:
    """The extension of a file, in lower case, without its dot."""
    return name.rpartition(b".")[2].lower() if b"." in name else b""


def _take_broken(entry: os.DirEntry[bytes], key: bytes, error: OSError, result: Scan) -> None:
    """An entry that cannot be looked at, such as a broken link: a picture by its name will be an error row."""
    if extension_of(entry.name) in PICTURE_EXTENSIONS and not entry.is_dir(follow_symlinks=False):
        result.pictures.append(Picture(key, None))
    else:
        reason = "broken link" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        result.unreadable.append(Unreadable(key, reason))


def _take_file(entry: os.DirEntry[bytes], found: Picture, result: Scan) -> None:
    def head() -> bytes:
        with open_regular(os.fsdecode(entry.path)) as file:
            return file.read(HEAD_BYTES)

    try:
        is_one = is_picture(entry.name, found.size_bytes or 0, head)
    except OSError as error:
        if extension_of(entry.name) in PICTURE_EXTENSIONS:
            result.pictures.append(found)
        else:
            result.unreadable.append(Unreadable(found.key, error.strerror or str(error)))
        return
    if is_one:
        result.pictures.append(found)
    elif is_one is None:
        result.ignored += 1
    else:
        if kind_by_name(entry.name):
            result.archives.append(found.key)
        extension = extension_of(entry.name)
        result.not_pictures[f".{key_text(extension)}" if extension else "without extension"] += 1


def is_picture(name: bytes, size_bytes: int, head: Callable[[], bytes]) -> bool | None:
    """True if a file counts as a picture: by its extension, else by its first bytes; None for AppleDouble files.

    `head()` gives the first HEAD_BYTES; it is called where the name does not decide.
    """
    by_name, is_apple = extension_of(name) in PICTURE_EXTENSIONS, name.startswith(b"._")
    if by_name and not is_apple:
        return True
    first = head() if size_bytes else b""
    if is_apple and identify(first).name in ("AppleDouble file", "AppleSingle file"):
        return None
    return by_name or _begins_as_picture(first)


def _begins_as_picture(head: bytes) -> bool:
    """True for a readable picture format, or one of cameras that must be reported as not readable; false for text."""
    content = identify(head)
    weak = _WEAK_MAGIC.get(content.name)
    return (content.readable or content.name in _OF_CAMERAS) and (weak is None or weak.match(head) is not None)
