"""zip.py: the pictures of an archive are those of the folder that it was made of; broken and hostile archives."""

from __future__ import annotations

import io
import os
import shutil
import stat
import struct
import subprocess
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import pytest
from bulkinfer.errors import RecordError, UsageError
from bulkinfer.records.read_place import read_place
from bulkinfer.records.sources.archives import ListedPicture
from bulkinfer.records.sources.folder import scan_folder
from bulkinfer.records.sources.zip import list_pictures
from bulkinfer.types import Archive, Member

from tests import pictures
from tests.archives import write_zip

JPEG = pictures.jpeg()
LIMIT = 1 << 20


def listed(path: Path, left_out: Counter[str] | None = None) -> list[ListedPicture]:
    with path.open("rb") as file:
        return list(list_pictures(file, os.fsencode(path), Counter() if left_out is None else left_out))


def read(path: Path, picture: ListedPicture, limit: int = LIMIT) -> bytes:
    found = path.stat()
    archive = Archive(os.fsencode(path), "zip", found.st_size, found.st_mtime_ns)
    return read_place(Member(archive, picture.offset, picture.span), limit)


def error(path: Path, picture: ListedPicture, limit: int = LIMIT) -> str:
    with pytest.raises(RecordError) as caught:
        read(path, picture, limit)
    assert caught.value.stage == "read"
    return caught.value.message


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        listed(path)
    return str(caught.value).removeprefix(str(path))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("is_stream", [False, True])
def test_an_archive_of_a_folder_has_the_pictures_of_the_folder(tmp_path: Path, method: int, *, is_stream: bool) -> None:
    """What counts as a picture, and its bytes; also where the sizes lie behind the data, as in an archive from a pipe."""
    files = {
        "a.jpg": JPEG, "b/photo": JPEG, "b/text.txt": b"P1 is no picture", "b/empty.jpg": b"", "b/.hidden.jpg": JPEG,
        ".git/x.jpg": JPEG, "__MACOSX/a.jpg": JPEG, "._a.jpg": pictures.APPLE_DOUBLE, "b/page.jpg": pictures.HTML_PAGE,
        "b/bl ank.PNG": JPEG, "caf\u00e9.jpg": JPEG,
    }  # fmt: skip
    pictures.write_files(tmp_path / "folder", files)
    path = tmp_path / "x.zip"
    with path.open("wb") as target, zipfile.ZipFile(Unseekable(target) if is_stream else target, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    left_out = Counter[str]()
    found = listed(path, left_out)
    scan = scan_folder(tmp_path / "folder")
    assert sorted((each.name, each.size_bytes) for each in found) == [each[:2] for each in scan.pictures]
    for each in found:
        if each.size_bytes:
            assert read(path, each) == files[os.fsdecode(each.name)]
    assert left_out == {"hidden or system files": 4, ".txt": 1}


class Unseekable(io.RawIOBase):
    """A file that is written as a pipe is."""

    def __init__(self, file: io.BufferedWriter) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return self._file.write(data)


def test_names_are_paths_inside_of_the_archive(tmp_path: Path) -> None:
    """As their bytes are: macOS writes UTF-8 and does not mark it; DOS wrote backslashes."""
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("../../out.jpg", "/abs.jpg", "a/./b.jpg", "twice.jpg", "./twice.jpg"):
            archive.writestr(zipfile.ZipInfo(name), JPEG)
        dos = zipfile.ZipInfo("sub")
        dos.filename, dos.create_system = "sub\\a.jpg", 0
        archive.writestr(dos, JPEG)
        archive.writestr("cafe0.jpg", JPEG)
    content = path.read_bytes()
    assert content.count(b"cafe0") == 2
    path.write_bytes(content.replace(b"cafe0", "caf\u00e9".encode()))
    left_out = Counter[str]()
    found = listed(path, left_out)
    names = [b"out.jpg", b"abs.jpg", b"a/b.jpg", b"twice.jpg", b"sub/a.jpg", "caf\u00e9.jpg".encode()]
    assert [each.name for each in found] == names
    assert left_out == {"replaced by a later member at the same place": 1}
    assert all(read(path, each) == JPEG for each in found)


def test_links_and_labels(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", {"n/1.jpg": JPEG, "n/2.jpg": JPEG}, {"n/1.jpg": 7, "n/2.jpg": "tabby cat"})
    with zipfile.ZipFile(path, "a") as archive:
        for name, target in (("m/soft.jpg", "../n/1.jpg"), ("m/gone.jpg", "nowhere.jpg")):
            link = zipfile.ZipInfo(name)
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(link, target)
    found = {each.name: each for each in listed(path)}
    assert {name: (each.label, each.class_name) for name, each in found.items()} == {
        b"n/1.jpg": (7, ""), b"n/2.jpg": (None, "tabby cat"), b"m/soft.jpg": (None, ""), b"m/gone.jpg": (None, ""),
    }  # fmt: skip
    assert read(path, found[b"m/soft.jpg"]) == JPEG
    assert found[b"m/gone.jpg"].offset == -1


def with_flag(content: bytes, name: bytes, flag: int) -> bytes:
    """The archive with a flag of the first member set, in its local header and in the directory."""
    changed = bytearray(content)
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        begin = changed.index(mark)
        changed[begin + at] |= flag
    return bytes(changed)


def test_members_that_cannot_be_unpacked_are_error_rows(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", {"a.jpg": JPEG, "b.jpg": JPEG})
    path.write_bytes(with_flag(path.read_bytes(), b"a.jpg", 1))
    first, second = listed(path)
    assert error(path, first) == "the member at byte 0 of x.zip is encrypted, which is not supported"
    assert read(path, second) == JPEG
    for method, name in ((zipfile.ZIP_BZIP2, "bzip2"), (zipfile.ZIP_LZMA, "LZMA")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.jpg", JPEG, method)
            archive.writestr("b.jpg", JPEG)
        reason = f"compressed with {name}"
        assert error(path, listed(path)[0]) == f"the member at byte 0 of x.zip is {reason}, which is not supported"
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("a.jpg", JPEG)
        assert refusal(path) == f": none of its members can be read ({reason}): unpack it, and give the folder"


def test_an_archive_that_is_cut_off_is_refused_at_every_length(tmp_path: Path) -> None:
    whole = write_zip(tmp_path / "whole.zip", {"a.jpg": JPEG, "b.jpg": JPEG}).read_bytes()
    path = tmp_path / "cut.zip"
    for length in [*range(4, len(whole), 90), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert refusal(path).startswith(" is cut off or damaged ("), length
    path.write_bytes(b"no zip at all " * 100)
    assert refusal(path).startswith(" is no zip file (")
    path.write_bytes(b"")
    assert refusal(path).startswith(" is no zip file (")


def flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damage_in_a_member_is_an_error_of_that_member(tmp_path: Path, method: int) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.jpg", JPEG)
        archive.writestr("b.jpg", JPEG)
    whole = path.read_bytes()
    found = listed(path)
    start = 30 + len("a.jpg")
    for at in range(start, start + found[0].span, 37):
        path.write_bytes(flip(whole, at))
        assert error(path, found[0]).startswith("the member at byte 0 of x.zip "), at
        assert read(path, found[1]) == JPEG
    path.write_bytes(b"XX" + whole[2:])
    assert error(path, found[0]) == "no member begins at byte 0 of x.zip"


def test_a_member_that_unpacks_to_more_than_allowed(tmp_path: Path) -> None:
    """It stops there, whatever the directory says of its size."""
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jpg", bytes(50 << 20))
    (bomb,) = listed(path)
    assert bomb.span < 1 << 17
    assert error(path, bomb) == f"too large: more than {LIMIT} bytes when unpacked, limit {LIMIT}"
    assert error(path, bomb, 1000) == f"too large: {bomb.span} bytes, limit 1000"


@pytest.mark.parametrize(("field", "value"), [(20, b"\xff\xff\xff\x7f"), (42, b"\xff\xff\xff\x7f")])
def test_members_outside_of_the_archive_are_refused(tmp_path: Path, field: int, value: bytes) -> None:
    """By their size, and by where they begin."""
    path = write_zip(tmp_path / "x.zip", {"a.jpg": JPEG})
    content = bytearray(path.read_bytes())
    begin = content.index(b"PK\1\2")
    content[begin + field : begin + field + 4] = value
    path.write_bytes(content)
    assert refusal(path) == " is damaged: 'a.jpg' lies outside of it: fetch it again"


def test_sizes_of_64_bits_and_bytes_before_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive, archive.open("a.jpg", "w", force_zip64=True) as file:
        file.write(JPEG)
    assert read(path, listed(path)[0]) == JPEG
    path.write_bytes(b"#!/bin/sh\nexit\n" + path.read_bytes())  # as programs that unpack themselves are made
    assert read(path, listed(path)[0]) == JPEG


def test_archives_of_other_programs(tmp_path: Path) -> None:
    command = ["zip", "-q", "-r"] if shutil.which("zip") else ["python3", "-m", "zipfile", "-c"]
    files = {"a.jpg": JPEG, "b/1.jpg": pictures.jpeg(90, 80, 3)}
    pictures.write_files(tmp_path, files)
    subprocess.run([*command, "x.zip", "a.jpg", "b"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    path = tmp_path / "x.zip"
    assert {os.fsdecode(each.name): read(path, each) for each in listed(path)} == files


def test_a_local_header_with_a_long_extra_field(tmp_path: Path) -> None:
    """The field may be longer there than in the directory."""
    extra, name = struct.pack("<HH", 0xCAFE, 3000) + bytes(3000), b"a.jpg"
    checksum = zlib.crc32(JPEG)
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, checksum, len(JPEG), len(JPEG), len(name), len(extra))
    begin = local + name + extra + JPEG
    entry = struct.pack(
        "<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 0, checksum, len(JPEG), len(JPEG), len(name), 0, 0, 0, 0, 0, 0
    ) + name  # fmt: skip
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(entry), len(begin), 0)
    path = tmp_path / "x.zip"
    path.write_bytes(begin + entry + end)
    assert read(path, listed(path)[0]) == JPEG


def test_a_label_whose_own_header_is_damaged_leaves_its_picture_without_one(tmp_path: Path) -> None:
    """The flag for UTF-8 in the header before the label, and a name that is none."""
    path = write_zip(tmp_path / "x.zip", {"a.jpg": JPEG}, {"a.jpg": 3})
    data = bytearray(path.read_bytes())
    start = data.index(b"PK\3\4", 1)
    data[start + 7] |= 8
    data[start + 30] = 0x92
    path.write_bytes(data)
    (picture,) = listed(path)
    assert (picture.label, read(path, picture)) == (None, JPEG)


def test_a_member_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("?"), JPEG)
    data = path.read_bytes()
    local, central = 30, data.index(b"PK\1\2") + 46
    for name_length, name in ((central - 18, central), (26, local)):
        data = data[:name_length] + b"\0\0" + data[name_length + 2 : name] + data[name + 1 :]
    end = data.index(b"PK\5\6")
    size, offset = struct.unpack_from("<LL", data, end + 12)
    path.write_bytes(data[: end + 12] + struct.pack("<LL", size - 1, offset - 1) + data[end + 20 :])
    (picture,) = listed(path)
    assert read(path, picture) == JPEG
