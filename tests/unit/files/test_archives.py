"""archives.py: all members are unpacked, and nothing is written outside the folder."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from bulkinfer.files import archives as module
from bulkinfer.files.archives import ArchiveError, TooLargeError, unpack

from tests.data_sets import deb, tar, zipped

FILES = {"set/a.bin": bytes(range(256)) * 40, "set/sub/b": b"", "c.txt": b"c"}


def unpacked(data: bytes, tmp_path: Path) -> dict[str, bytes]:
    archive, folder = tmp_path / "archive", tmp_path / "out"
    archive.write_bytes(data)
    folder.mkdir()
    count = unpack(archive, folder)
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert count == len(found)
    return found


def refused(data: bytes, tmp_path: Path) -> str:
    with pytest.raises(ArchiveError) as error:
        unpacked(data, tmp_path)
    assert str(tmp_path / "archive") in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} == {"archive", "out"}, "something landed outside"
    return str(error.value)


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
def test_tar(compression: str, tmp_path: Path) -> None:
    assert unpacked(tar(FILES, compression), tmp_path) == FILES


def test_zip(tmp_path: Path) -> None:
    assert unpacked(zipped(FILES), tmp_path) == FILES


@pytest.mark.parametrize("name", ["data.tar.xz", "data.tar.gz"])
def test_debian_package(name: str, tmp_path: Path) -> None:
    assert unpacked(deb(FILES, name), tmp_path) == FILES


@pytest.mark.parametrize("name", ["../evil", "set/../../evil", "set/../b"])
@pytest.mark.parametrize("pack", [tar, zipped, deb])
def test_members_must_stay_inside(name: str, pack: Callable[[dict[str, bytes]], bytes], tmp_path: Path) -> None:
    assert "is not safe to unpack" in refused(pack({"a": b"a", name: b"evil"}), tmp_path)


@pytest.mark.parametrize("pack", [tar, zipped])
def test_members_with_absolute_names(pack: Callable[[dict[str, bytes]], bytes], tmp_path: Path) -> None:
    name = str(tmp_path / "evil")
    assert f"{name!r} would be written outside the folder" in refused(pack({name: b"evil"}), tmp_path)


def special(kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo("odd")
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "member",
    [
        special(tarfile.CHRTYPE),
        special(tarfile.BLKTYPE),
        special(tarfile.FIFOTYPE),
        special(tarfile.SYMTYPE, "/etc/passwd"),
        special(tarfile.SYMTYPE, "../outside"),
        special(tarfile.LNKTYPE, "../outside"),
    ],
    ids=["character device", "block device", "pipe", "link to root", "link out", "hard link out"],
)
def test_devices_and_links_that_lead_out_are_refused(member: tarfile.TarInfo, tmp_path: Path) -> None:
    assert "is not safe to unpack" in refused(tar(FILES, members=[member]), tmp_path)


def test_links_that_stay_inside_are_left_out(tmp_path: Path) -> None:
    assert unpacked(tar(FILES, members=[special(tarfile.SYMTYPE, "c.txt")]), tmp_path) == FILES
    assert not os.path.lexists(tmp_path / "out" / "odd")


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        member = zipfile.ZipInfo("odd")
        member.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(member, "../outside")
    assert "'odd' is a link" in refused(target.getvalue(), tmp_path)


def test_a_member_that_comes_twice(tmp_path: Path) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for _ in range(2):
            archive.addfile(tarfile.TarInfo("a"))
    assert "contains 'a' twice" in refused(target.getvalue(), tmp_path)


NOISE = {"set/noise": os.urandom(200_000)}  # that no compression makes small
PACKED = {
    "tar.gz": tar(NOISE),
    "tar.bz2": tar(NOISE, "bz2"),
    "tar.xz": tar(NOISE, "xz"),
    "zip": zipped(NOISE),
    "deb": deb(NOISE),
}


@pytest.mark.parametrize("kind", PACKED)
def test_half_an_archive(kind: str, tmp_path: Path) -> None:
    assert "is damaged" in refused(PACKED[kind][: len(PACKED[kind]) // 2], tmp_path)


@pytest.mark.parametrize("kind", PACKED)
def test_a_damaged_archive(kind: str, tmp_path: Path) -> None:
    data = bytearray(PACKED[kind])
    for at in range(len(data) // 2, len(data) // 2 + 16):
        data[at] ^= 0xFF
    assert "is damaged" in refused(bytes(data), tmp_path)


@pytest.mark.parametrize(
    "data",
    [b"", b"<html>not found</html>", b"PK\3\4", b"!<arch>\nshort", os.urandom(5000)],
    ids=["empty", "page", "head of a zip", "head of a package", "noise"],
)
def test_what_is_no_archive(data: bytes, tmp_path: Path) -> None:
    assert "is damaged" in refused(data, tmp_path)


def test_a_zip_whose_directory_lies(tmp_path: Path) -> None:
    data = bytearray(zipped(FILES))
    end = data.rindex(b"PK\5\6")  # record of the end; at 16 stands where the directory begins
    place = int.from_bytes(data[end + 16 : end + 20], "little")
    data[end + 16 : end + 20] = (place + 1000).to_bytes(4, "little")
    assert "is damaged" in refused(bytes(data), tmp_path)


def test_an_empty_package(tmp_path: Path) -> None:
    assert "contains no data.tar: it is not a Debian package" in refused(b"!<arch>\n", tmp_path)


def test_packages_of_other_kinds(tmp_path: Path) -> None:
    assert "is compressed with zstd" in refused(deb(FILES).replace(b"data.tar.xz ", b"data.tar.zst"), tmp_path)


def zeros(size_bytes: int) -> dict[str, bytes]:
    return {"small": b"1", "zeros": bytes(size_bytes)}


@pytest.mark.parametrize("pack", [tar, zipped, deb])
def test_c55_an_archive_that_unpacks_to_too_much_is_refused_early(
    pack: Callable[[dict[str, bytes]], bytes], tmp_path: Path
) -> None:
    archive, folder = tmp_path / "archive", tmp_path / "out"
    archive.write_bytes(pack(zeros(1 << 20)))
    folder.mkdir()
    with pytest.raises(TooLargeError, match=r"would unpack to 1,048,577 bytes or more, and 1,048,576 are allowed"):
        unpack(archive, folder, most_bytes=1 << 20)
    assert not (folder / "zeros").exists(), "no byte of it is written"
    shutil.rmtree(folder)
    folder.mkdir()
    assert unpack(archive, folder, most_bytes=1 + (1 << 20)) == 2


def test_c55_a_zip_that_promises_less_than_it_holds_is_cut(tmp_path: Path) -> None:
    archive, folder = tmp_path / "archive", tmp_path / "out"
    data = zipped({"zeros": bytes(1 << 20)})
    archive.write_bytes(data.replace(struct.pack("<I", 1 << 20), struct.pack("<I", 1000)))
    folder.mkdir()
    with pytest.raises(ArchiveError):
        unpack(archive, folder, most_bytes=1000)
    assert sum(path.stat().st_size for path in folder.rglob("*")) <= 1000


def test_c55_headers_take_no_memory(tmp_path: Path) -> None:
    """Long names and attributes are read as a whole; what follows the end of a tar archive is not read for ever."""
    for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME):
        member = tarfile.TarInfo("x")
        member.type, member.size = kind, 100 << 20
        data = gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(100 << 20), 1)
        assert "(a header of 104,857,600 bytes)" in refused(data, tmp_path)
        shutil.rmtree(tmp_path / "out")


def test_c55_what_follows_the_last_member_counts(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(gzip.compress(tar(FILES, "") + bytes(100 << 20), 1))
    (tmp_path / "out").mkdir()
    with pytest.raises(TooLargeError, match="would unpack to"):
        unpack(archive, tmp_path / "out", most_bytes=1 << 20)


def test_c55_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_FILES", 10)
    archive = tmp_path / "archive"
    archive.write_bytes(zipped({str(number): b"" for number in range(11)}))
    (tmp_path / "out").mkdir()
    with pytest.raises(TooLargeError, match="would unpack to more than 10 files"):
        unpack(archive, tmp_path / "out", most_bytes=1)
    assert not list((tmp_path / "out").iterdir())
    assert unpack(archive, tmp_path / "out") == 11
