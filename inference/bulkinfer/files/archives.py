"""Archives unpacked without trust: tar (plain, gzip, bzip2, xz), zip and Debian packages.

Only regular files are written, each below the folder given. An archive with a member that would land elsewhere, a device,
or a link that leads out is refused as a whole; links that stay inside are left out.
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
    ValueError,  # of headers that make no sense
    NotImplementedError,  # of a kind of compression
)


class ArchiveError(RunError):
    """The archive is broken, of a kind we do not read, or not safe to unpack."""


class _Window:
    """`size_bytes` of an open file from where it stands, as a file that can only be read."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file, self._left = file, size_bytes

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size`, none behind the window."""
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


def unpack(archive: Path, folder: Path) -> int:
    """Write the files of the archive below `folder`, which exists; returns their number.

    Raises ArchiveError. What was written until then stays: give a temporary folder.
    """
    with archive.open("rb") as file:
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
            if error.errno not in (None, errno.EINVAL):  # so bz2 and gzip tell damage, and a place before the first byte
                raise
            raise ArchiveError(_damaged(archive, error)) from None


def _damaged(archive: Path, error: Exception) -> str:
    return f"{archive} is damaged, or no archive that can be read ({first_line(error)})"


def _untar(archive: Path, file: Any, folder: Path) -> int:
    """Members one after another, so that nothing but reading is asked of the file."""
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
    while stream.read(_BLOCK_BYTES):  # to its end, where the checksum of the compression is
        pass
    return count


def _decompressed(file: Any) -> Any:
    """The file, or what decompresses it, by its first bytes."""
    buffered = _Peeked(file)
    for mark, opened in _COMPRESSED:
        if buffered.head.startswith(mark):
            return opened(buffered, "rb")
    return buffered


class _Peeked:
    """A file that can only be read, with its first bytes known beforehand."""

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
                raise ArchiveError(f"{archive} is packed with zstd, which is not read here: unpack it with dpkg -x")
            return _untar(archive, _Window(file, size_bytes), folder)
        file.seek(size_bytes + size_bytes % 2, os.SEEK_CUR)
    raise ArchiveError(f"{archive} holds no data.tar: it is no Debian package, or a part of one")


def _check_name(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ArchiveError(f"{archive} is not safe to unpack: {name!r} would land outside the folder")


def _write(archive: Path, source: Any, folder: Path, name: str, size_bytes: int) -> None:
    """One member, whole, as a new file."""
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as target:
            shutil.copyfileobj(source, target, _BLOCK_BYTES)
            written = target.tell()
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise ArchiveError(f"{archive} holds {name!r} twice") from None
    if written != size_bytes:
        raise ArchiveError(f"{archive} is damaged: it ends within {name!r}, after {written:,} of {size_bytes:,} bytes")
