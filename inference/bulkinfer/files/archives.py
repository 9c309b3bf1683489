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
from bulkinfer.files.guarded import open_regular

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip", ".deb")

_AR_MAGIC = b"!<arch>\n"
_AR_HEADER_BYTES = 60
_BLOCK_BYTES = 1 << 20
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


class _Window:
    """A read-only file: the next `size_bytes` bytes of an open file."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file, self._left = file, size_bytes

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size`; none after the end of the window."""
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


def unpack(archive: Path, folder: Path) -> int:
    """Write the files of the archive below `folder`, which must exist; returns the number of files.

    Raises ArchiveError; the files written before the error stay, so the folder should be a temporary one.
    """
    with open_regular(archive, error=ArchiveError) as file:
        head = file.read(len(_AR_MAGIC))
        file.seek(0)
        try:
            if head.startswith(b"PK"):
                return _unzip(archive, file, folder)
            if head == _AR_MAGIC:
                return _undeb(archive, file, folder)
            return _untar(archive, file, folder)
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


def _untar(archive: Path, file: Any, folder: Path) -> int:
    """Unpack the members one after another: the file needs no seek."""
    stream = _decompressed(file)
    count = 0
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            try:
                checked = tarfile.data_filter(member, str(folder))
            except tarfile.FilterError as error:
                raise ArchiveError(f"{archive} is not safe to unpack: {first_line(error)}") from None
            if checked.isreg():
                _check_name(archive, member.name)
                source = tar.extractfile(member)
                assert source is not None
                _write(archive, source, folder, checked.name, member.size)
                count += 1
    while stream.read(_BLOCK_BYTES):  # to the end of the stream, where the checksum of the compression is
        pass
    return count


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


def _unzip(archive: Path, file: BinaryIO, folder: Path) -> int:
    count = 0
    with zipfile.ZipFile(file) as packed:
        for member in packed.infolist():
            _check_name(archive, member.filename)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                what = "link" if kind == stat.S_IFLNK else "device"
                raise ArchiveError(f"{archive} is not safe to unpack: {member.filename!r} is a {what}")
            if member.flag_bits & 1:
                raise ArchiveError(f"{archive} is encrypted: unpack it yourself")
            if not member.is_dir():
                with packed.open(member) as source:
                    _write(archive, source, folder, member.filename, member.file_size)
                count += 1
    return count


def _undeb(archive: Path, file: BinaryIO, folder: Path) -> int:
    """The files of a Debian package: the member data.tar.* of an ar archive."""
    file.seek(len(_AR_MAGIC))
    while header := file.read(_AR_HEADER_BYTES):
        size_text = header[48:58].strip()
        if len(header) < _AR_HEADER_BYTES or header[58:] != b"`\n" or not size_text.isdigit():
            raise ArchiveError(f"{archive} is damaged: no member begins at byte {file.tell() - len(header):,}")
        name, size_bytes = header[:16].decode("ascii", "replace").strip().rstrip("/"), int(size_text)
        if name.startswith("data.tar"):
            if name.endswith(".zst"):
                raise ArchiveError(f"{archive} is compressed with zstd, which is not supported: unpack it with dpkg -x")
            return _untar(archive, _Window(file, size_bytes), folder)
        file.seek(size_bytes + size_bytes % 2, os.SEEK_CUR)
    raise ArchiveError(f"{archive} contains no data.tar: it is not a Debian package, or it is cut short")


def _check_name(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ArchiveError(f"{archive} is not safe to unpack: {name!r} would be written outside the folder")


def _write(archive: Path, source: Any, folder: Path, name: str, size_bytes: int) -> None:
    """Write one member as a new file."""
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as target:
            shutil.copyfileobj(source, target, _BLOCK_BYTES)
            written = target.tell()
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise ArchiveError(f"{archive} contains {name!r} twice") from None
    if written != size_bytes:
        raise ArchiveError(f"{archive} is damaged: it ends within {name!r}, after {written:,} of {size_bytes:,} bytes")
