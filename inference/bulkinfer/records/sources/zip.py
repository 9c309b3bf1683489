"""Zip files as archives: a folder of pictures that was packed, stored or deflated. packed_folder.py says what is a picture.

The central directory at the end of the file lists the members; no member is read to list them but links, labels, and the first
bytes of those whose name does not say what they are. The place of a picture is its local header and the number of its bytes in
the archive. Sizes are those of APPNOTE.TXT 6.3 by PKWARE, sections 4.3 and 4.4; Zip64 is read.
"""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from bulkinfer.errors import RecordError, UsageError, first_line
from bulkinfer.records.sources.archives import ArchiveFile, ListedPicture, PictureReader, check_size
from bulkinfer.records.sources.packed_folder import PackedFolder, link_target, path_inside
from bulkinfer.types import printable

_LOCAL = struct.Struct("<4s2xHH4xI8xHH")  # signature, flags, method, CRC-32; then lengths of the name and the extra field
_LOCAL_MARK, _DESCRIPTOR_MARK = b"PK\3\4", b"PK\7\x08"
_ENCRYPTED, _SIZES_BEHIND, _UTF8 = 1 << 0, 1 << 3, 1 << 11  # bits of the flags
_STORED, _DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
_AROUND = 30 + 512 + 8  # bytes of a local header with a usual name, and of the CRC-32 behind the data
_MOST_TARGET = 4096  # bytes of what a link leads to
_DOS = 0  # the system of a program that may have written backslashes
_METHODS = {9: "deflate64", 12: "bzip2", 14: "LZMA", 93: "zstd", 95: "xz", 99: "AES encryption"}


def list_pictures(file: Any, path: bytes, left_out: Counter[str], _columns: tuple[str, ...] = ()) -> Iterator[ListedPicture]:
    """The pictures of an open archive in order; see archives.Kind. One that cannot be unpacked is listed all the same."""
    shown = printable(path)
    folder, unreadable, count = PackedFolder(left_out), list[str](), 0
    with _opened(file, shown) as archive:
        end = archive.start_dir
        for member in archive.infolist():
            if member.header_offset < 0 or member.header_offset + member.compress_size > end:
                raise UsageError(f"{shown} is damaged: {member.filename!r} lies outside of it: fetch it again")
            name, mode = path_inside(_raw_name(member)), member.external_attr >> 16
            is_folder = member.filename.endswith("/")  # ZipInfo.is_dir fails for an empty name
            if folder.skips(name, is_folder=is_folder) or is_folder:
                continue
            read = partial(_first_bytes, archive, member)
            if stat.S_ISLNK(mode):
                folder.add_link(name, link_target(name, read(_MOST_TARGET)))
                continue
            count += 1
            if reason := _cannot_unpack(member.flag_bits, member.compress_type):
                unreadable.append(reason)
            folder.add_file(ListedPicture(name, member.file_size, member.header_offset, member.compress_size), read)
    if unreadable and len(unreadable) == count:
        raise UsageError(f"{shown}: none of its members can be read ({unreadable[0]}): unpack it, and give the folder")
    yield from folder.pictures()


def _opened(file: Any, shown: str) -> zipfile.ZipFile:
    begins = file.read(4)
    file.seek(0)
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error) as error:
        is_zip = begins in (_LOCAL_MARK, _DESCRIPTOR_MARK)
        what = "is cut off or damaged" if is_zip else "is no zip file"
        raise UsageError(f"{shown} {what} ({first_line(error)}): fetch it again") from None


def _raw_name(member: zipfile.ZipInfo) -> bytes:
    """The name as its bytes are in the archive: programs of macOS and Linux write UTF-8 and often do not mark it as that."""
    name = member.orig_filename.partition("\0")[0]
    if member.create_system == _DOS and "\\" in name and "/" not in name:
        name = name.replace("\\", "/")
    return name.encode("utf-8" if member.flag_bits & _UTF8 else "cp437", "surrogateescape")


def _cannot_unpack(flags: int, method: int) -> str:
    """Why a member cannot be read; empty if it can."""
    if flags & _ENCRYPTED:
        return "encrypted"
    return "" if method in (_STORED, _DEFLATED) else f"compressed with {_METHODS.get(method, f'method {method}')}"


def _first_bytes(packed: zipfile.ZipFile, member: zipfile.ZipInfo, count: int) -> bytes:
    """The first bytes of a member; none if they cannot be read: its name then decides, and reading it says what is wrong."""
    if _cannot_unpack(member.flag_bits, member.compress_type):
        return b""
    try:
        with packed.open(member) as content:
            return content.read(count)
    except (zipfile.BadZipFile, EOFError, zlib.error, ValueError, RuntimeError, struct.error):  # its own header is damaged
        return b""


def reader(file: ArchiveFile, _columns: tuple[str, ...] = ()) -> PictureReader:
    """Reads stored and deflated pictures, and compares their CRC-32; see archives.Kind."""
    return partial(_read, file)


def _read(file: ArchiveFile, offset: int, span: int, most_bytes: int) -> bytes:
    check_size(span, most_bytes)
    data = file.read(offset, _AROUND + span)
    if len(data) < _LOCAL.size or data[:4] != _LOCAL_MARK:
        raise RecordError("read", f"no member begins at byte {offset} of {file.name}")
    _, flags, method, checksum, name_bytes, extra_bytes = _LOCAL.unpack_from(data)
    start = _LOCAL.size + name_bytes + extra_bytes
    end, where = start + span, f"the member at byte {offset} of {file.name}"
    if end + 8 > len(data):
        data += file.read(offset + len(data), end + 8 - len(data))
    if len(data) < end:
        raise RecordError("read", f"{file.name} ends before the picture does")
    if reason := _cannot_unpack(flags, method):
        raise RecordError("read", f"{where} is {reason}, which is not supported")
    if flags & _SIZES_BEHIND:
        behind = data[end : end + 8]
        behind = behind[4:] if behind.startswith(_DESCRIPTOR_MARK) else behind[:4]
        checksum = int.from_bytes(behind, "little")
    packed = memoryview(data)[start:end]
    picture = bytes(packed) if method == _STORED else _inflated(packed, most_bytes, where)
    if zlib.crc32(picture) != checksum:
        raise RecordError("read", f"{where} does not match its checksum")
    return picture


def _inflated(packed: memoryview, most_bytes: int, where: str) -> bytes:
    """Raises RecordError, before more than `most_bytes` are unpacked, for a larger picture."""
    unpacking = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        picture = unpacking.decompress(packed, most_bytes + 1)
    except zlib.error as error:
        raise RecordError("read", f"{where} cannot be unpacked ({first_line(error)})") from None
    if len(picture) > most_bytes:
        raise RecordError("read", f"too large: more than {most_bytes} bytes when unpacked, limit {most_bytes}")
    if not unpacking.eof:
        raise RecordError("read", f"{where} ends before the picture does")
    return picture
