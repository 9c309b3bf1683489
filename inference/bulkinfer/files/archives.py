"""Unpack archives from untrusted sources: tar (plain, gzip, bzip2, xz), zip and Debian packages.

Only regular files are written, each below the given folder. An archive is refused as a whole if a member would be written
outside the folder, is a device, or is a link that points outside. Links that stay inside are left out.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from bulkinfer.errors import RunError, first_line
from bulkinfer.files.atomic import naming
from bulkinfer.files.guarded import open_regular

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip", ".deb")

_AR_MAGIC = b"!<arch>\n"
_AR_HEADER_BYTES = 60
_BLOCK_BYTES = 1 << 20
_MOST_FILES = 1_000_000  # where there is a bound at all: empty files take no bytes, but a place on the disk each
_HEADERS_BYTES = 64 << 20
_IN_MEMORY = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_COMPRESSED: tuple[tuple[bytes, Callable[..., Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
)
_DAMAGES = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    ValueError,  # raised for invalid headers
    NotImplementedError,  # raised for an unknown compression
)


class ArchiveError(RunError):
    """The archive is damaged, of an unsupported kind, or not safe to unpack."""


class TooLargeError(ArchiveError):
    """The archive holds more than it may; nothing beyond that was written."""


class _Target:
    """The folder to unpack to, and how much may still be written: at most `most_bytes` in files of any number up to a bound."""

    def __init__(self, archive: Path, folder: Path, most_bytes: int | None) -> None:
        self.archive, self.folder, self.most_bytes = archive, folder, most_bytes
        self.count = 0
        self._claimed_bytes = 0

    def claim(self, size_bytes: int) -> None:
        """Account for one more file before it is written. Raises TooLargeError if it does not fit."""
        self.count += 1
        self._claimed_bytes += size_bytes
        if self.most_bytes is None:
            return
        if self._claimed_bytes > self.most_bytes:
            raise self.too_large(f"to {self._claimed_bytes:,} bytes or more, and {self.most_bytes:,} are allowed")
        if self.count > _MOST_FILES:
            raise self.too_large(f"to more than {_MOST_FILES:,} files")

    def too_large(self, how: str) -> TooLargeError:
        return TooLargeError(f"{self.archive} would unpack {how}")

    def write(self, source: Any, name: str, size_bytes: int) -> None:
        """Write one member, which was claimed, as a new file."""
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with naming(path), path.open("xb") as target:
                shutil.copyfileobj(source, target, _BLOCK_BYTES)
                written = target.tell()
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise ArchiveError(f"{self.archive} contains {name!r} twice") from None
        if written != size_bytes:
            raise ArchiveError(f"{self.archive} is damaged: it ends within {name!r}, after {written:,} of {size_bytes:,} bytes")


class _Window:
    """A read-only file: the next `size_bytes` bytes of an open file."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file, self._left = file, size_bytes

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size`; none after the end of the window."""
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


def unpack(archive: Path, folder: Path, *, most_bytes: int | None = None) -> int:
    """Write the files of the archive below `folder`, which must exist; returns the number of files.

    Raises ArchiveError; the files written before the error stay, so the folder should be a temporary one. Its subclass
    TooLargeError means that they would have more than `most_bytes`, of which a zip archive is refused before anything is
    written, and others before the file that is too much.
    """
    target = _Target(archive, folder, most_bytes)
    with open_regular(archive, error=ArchiveError) as file:
        head = file.read(len(_AR_MAGIC))
        file.seek(0)
        try:
            if head.startswith(b"PK"):
                _unzip(target, file)
            elif head == _AR_MAGIC:
                _undeb(target, file)
            else:
                _untar(target, file)
            return target.count
        except _DAMAGES as error:
            raise ArchiveError(_damaged(archive, error)) from None
        except OSError as error:
            if error.errno not in (
                None,
                errno.EINVAL,
            ):  # None: damage found by bz2 or gzip; EINVAL: a seek before the first byte
                raise
            raise ArchiveError(_damaged(archive, error)) from None


def _damaged(archive: Path, error: Exception) -> str:
    return f"{archive} is damaged or not a supported archive ({first_line(error)})"


def _untar(target: _Target, file: Any) -> None:
    """Unpack the members one after another: the file needs no seek."""
    stream: Any = _Counted(_decompressed(file), target)
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as tar:
        for member in tar:
            try:
                checked = tarfile.data_filter(member, str(target.folder))
            except tarfile.FilterError as error:
                raise ArchiveError(f"{target.archive} is not safe to unpack: {first_line(error)}") from None
            if checked.isreg():
                _check_name(target.archive, member.name)
                target.claim(member.size)
                source = tar.extractfile(member)
                assert source is not None
                target.write(source, checked.name, member.size)
    while stream.read(_BLOCK_BYTES):  # to the end of the stream, where the checksum of the compression is
        pass


class _Member(tarfile.TarInfo):
    """A header of a tar archive. One that is to be read into memory as a whole (long names, attributes) must be small."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        found = super().frombuf(buf, encoding, errors)
        if found.type in _IN_MEMORY and found.size > _BLOCK_BYTES:
            raise ValueError(f"a header of {found.size:,} bytes")
        return found


class _Counted:
    """A read-only file, unpacked: gives no more than the headers and the files that the target allows."""

    def __init__(self, file: Any, target: _Target) -> None:
        self._file, self._target, self._read_bytes = file, target, 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size`."""
        data: bytes = self._file.read(size)
        self._read_bytes += len(data)
        most_bytes = self._target.most_bytes
        if most_bytes is not None and self._read_bytes > 2 * most_bytes + _HEADERS_BYTES:
            raise self._target.too_large(f"to {self._read_bytes:,} bytes or more, and {most_bytes:,} are allowed")
        return data


def _decompressed(file: Any) -> Any:
    """The file, decompressed if its first bytes say that it is compressed."""
    buffered = _Peeked(file)
    for mark, opened in _COMPRESSED:
        if buffered.head.startswith(mark):
            return opened(buffered, "rb")
    return buffered


class _Peeked:
    """A read-only file whose first bytes can be looked at before they are read."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.head = self._rest = file.read(6)

    def read(self, size: int = -1) -> bytes:
        """The next bytes, fewer than `size` only at the end of the file."""
        first, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return bytes(first + self._file.read(-1 if size < 0 else size - len(first)))


def _unzip(target: _Target, file: BinaryIO) -> None:
    archive = target.archive
    with zipfile.ZipFile(file) as packed:
        members = packed.infolist()
        for member in members:
            _check_name(archive, member.filename)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                what = "link" if kind == stat.S_IFLNK else "device"
                raise ArchiveError(f"{archive} is not safe to unpack: {member.filename!r} is a {what}")
            if member.flag_bits & 1:
                raise ArchiveError(f"{archive} is encrypted: unpack it yourself")
            if not member.is_dir():
                target.claim(member.file_size)
        for member in members:
            if not member.is_dir():
                with packed.open(member) as source:  # it gives no more bytes than the member's size
                    target.write(source, member.filename, member.file_size)


def _undeb(target: _Target, file: BinaryIO) -> None:
    """The files of a Debian package: the member data.tar.* of an ar archive."""
    archive = target.archive
    file.seek(len(_AR_MAGIC))
    while header := file.read(_AR_HEADER_BYTES):
        size_text = header[48:58].strip()
        if len(header) < _AR_HEADER_BYTES or header[58:] != b"`\n" or not size_text.isdigit():
            raise ArchiveError(f"{archive} is damaged: no member begins at byte {file.tell() - len(header):,}")
        name, size_bytes = header[:16].decode("ascii", "replace").strip().rstrip("/"), int(size_text)
        if name.startswith("data.tar"):
            if name.endswith(".zst"):
                raise ArchiveError(f"{archive} is compressed with zstd, which is not supported: unpack it with dpkg -x")
            _untar(target, _Window(file, size_bytes))
            return
        file.seek(size_bytes + size_bytes % 2, os.SEEK_CUR)
    raise ArchiveError(f"{archive} contains no data.tar: it is not a Debian package, or it is cut short")


def _check_name(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ArchiveError(f"{archive} is not safe to unpack: {name!r} would be written outside the folder")
