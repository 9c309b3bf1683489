"""tar.py: the pictures and labels of an archive, the same as those of the folder that it was made of; and broken archives."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.sources.archives import ListedPicture
from bulkinfer.records.sources.folder import scan_folder
from bulkinfer.records.sources.tar import list_pictures

from tests import pictures
from tests.archives import add, write_tar

JPEG = pictures.jpeg()


def listed(path: Path, left_out: Counter[str] | None = None) -> list[ListedPicture]:
    with path.open("rb") as file:
        return list(list_pictures(file, os.fsencode(path), Counter() if left_out is None else left_out))


def contents(path: Path, found: Iterable[ListedPicture]) -> dict[bytes, bytes]:
    data = path.read_bytes()
    return {each.name: data[each.offset : each.offset + each.span] for each in found}


def archive_of(tmp_path: Path, *members: tarfile.TarInfo, files: dict[str, bytes]) -> Path:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name, data in files.items():
            add(archive, name, data)
        for member in members:
            archive.addfile(member)
    return tmp_path / "x.tar"


def link(name: str, target: str, *, is_hard: bool = False) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.LNKTYPE if is_hard else tarfile.SYMTYPE, target
    return member


@pytest.mark.parametrize("form", ["gnu", "pax", "ustar", "v7"])
def test_an_archive_of_a_folder_has_the_pictures_of_the_folder(tmp_path: Path, form: str) -> None:
    """As tar makes it, in every format: what counts as a picture, and its bytes."""
    files = {
        "a.jpg": JPEG, "b/photo": JPEG, "b/text.txt": b"P1 is no picture", "b/empty.jpg": b"", "b/.hidden.jpg": JPEG,
        ".git/x.jpg": JPEG, "__MACOSX/a.jpg": JPEG, "._a.jpg": pictures.APPLE_DOUBLE, "b/page.jpg": pictures.HTML_PAGE,
        "b/bl ank\n.PNG": JPEG,
    }  # fmt: skip
    files |= {} if form in ("ustar", "v7") else {f"{'long' * 40}.jpg": JPEG, "caf\udce9.jpg": JPEG}
    pictures.write_files(tmp_path / "folder", files)
    (tmp_path / "folder" / "b" / "hard.jpg").hardlink_to(tmp_path / "folder" / "a.jpg")
    (tmp_path / "folder" / "b" / "soft.jpg").symlink_to("../a.jpg")
    (tmp_path / "folder" / "b" / "dangling.jpg").symlink_to("gone.jpg")
    subprocess.run(["tar", f"--format={form}", "-cf", "x.tar", "-C", "folder", "."], cwd=tmp_path, check=True)
    found = listed(tmp_path / "x.tar")
    scan = scan_folder(tmp_path / "folder")
    assert sorted((each.name, each.size_bytes) for each in found) == [picture[:2] for picture in scan.pictures]
    kept = contents(tmp_path / "x.tar", (each for each in found if each.offset >= 0))
    assert kept == {name: (tmp_path / "folder" / os.fsdecode(name)).read_bytes() for name in kept}
    assert [each.name for each in found if each.offset < 0] == [b"b/dangling.jpg"]


def test_labels_of_samples(tmp_path: Path) -> None:
    """WebDataset's rule: names are of one sample up to the first dot of the base name, wherever the label stands."""
    files = {
        "n/1.cls": b"7\n", "n/1.jpg": JPEG, "n/2.left.jpg": JPEG, "n/2.cls": b" 8", "n/3.png": JPEG, "n/3.cls": b"tabby cat",
        "n/4.jpg": JPEG, "n/4.json": b'{"label": 9, "caption": "x"}', "n/5.jpg": JPEG, "n/5.txt": b"a caption",
        "n/6.jpg": JPEG, "n/6.cls": b"-1", "m/1.jpg": JPEG, "n/7.jpg": JPEG, "n/7.json": b"[3]",
        "n/8.jpg": JPEG, "n/8.json": b"{",
    }  # fmt: skip
    left_out = Counter[str]()
    found = {each.name.decode(): (each.label, each.class_name) for each in listed(archive_of(tmp_path, files=files), left_out)}
    assert found == {
        "n/1.jpg": (7, ""), "n/2.left.jpg": (8, ""), "n/3.png": (None, "tabby cat"), "n/4.jpg": (9, ""), "n/5.jpg": (None, ""),
        "n/6.jpg": (None, ""), "m/1.jpg": (None, ""), "n/7.jpg": (None, ""), "n/8.jpg": (None, ""),
    }  # fmt: skip
    assert left_out == {".txt": 1, ".cls": 1, ".json": 2}


def test_odd_members(tmp_path: Path) -> None:
    fifo = tarfile.TarInfo("pipe.jpg")
    fifo.type = tarfile.FIFOTYPE
    members = (
        link("up.jpg", "a/../a/1.jpg"), link("a/same.jpg", "/a/1.jpg"), link("chain.jpg", "up.jpg"),
        link("loop.jpg", "loop.jpg"), link("hard.jpg", "a/1.jpg", is_hard=True),
        link("gone.jpg", "nowhere.jpg", is_hard=True), link("notes", "nowhere"),
        fifo,
    )  # fmt: skip
    files = {"a/1.jpg": JPEG, "../../out.jpg": JPEG, "/abs.jpg": JPEG, "twice.jpg": b"first", "./twice.jpg": JPEG}
    left_out = Counter[str]()
    found = listed(archive_of(tmp_path, *members, files=files), left_out)
    assert [each.name for each in found if each.offset < 0] == [b"loop.jpg", b"gone.jpg"]
    held = contents(tmp_path / "x.tar", (each for each in found if each.offset >= 0))
    assert held == dict.fromkeys(
        [b"a/1.jpg", b"out.jpg", b"abs.jpg", b"twice.jpg", b"up.jpg", b"a/same.jpg", b"chain.jpg", b"hard.jpg"], JPEG
    )
    assert left_out == {"pipes, sockets or devices": 1, "replaced by a later member at the same place": 1}


def test_a_sparse_member_is_no_stretch_of_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(JPEG + bytes(1 << 20) + JPEG)
    with (tmp_path / "a.jpg").open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 1)
        file.seek(len(JPEG) + (1 << 20))
        file.truncate(1 << 21)
    subprocess.run(["tar", "--sparse", "-cf", "x.tar", "a.jpg"], cwd=tmp_path, check=True)
    with tarfile.open(tmp_path / "x.tar") as archive:
        assert archive.getmembers()[0].issparse()
    assert [(each.name, each.offset) for each in listed(tmp_path / "x.tar")] == [(b"a.jpg", -1)]


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        listed(path)
    return str(caught.value).removeprefix(f"{path} ")


def test_an_archive_that_is_cut_off_is_refused_at_every_length(tmp_path: Path) -> None:
    """However it was cut: what came behind is not known, and a job would be complete without it."""
    whole = write_tar(tmp_path / "whole.tar", {"a.jpg": JPEG, "b.jpg": JPEG}).read_bytes()
    end = len(whole.rstrip(b"\0"))
    end += -end % 512  # the blocks of zeros behind it are the mark of the end
    path = tmp_path / "cut.tar"
    for length in [*range(0, end, 100), 512, 1024, end - 1, end, end + 511]:
        path.write_bytes(whole[:length])
        assert refusal(path).startswith(("is cut off", "cannot be read as a tar file")), length
    path.write_bytes(whole[: end + 512])
    assert len(listed(path)) == 2


def test_damage_in_a_header_is_refused(tmp_path: Path) -> None:
    whole = bytearray(write_tar(tmp_path / "whole.tar", {"a.jpg": JPEG, "b.jpg": JPEG}).read_bytes())
    second = whole.index(b"b.jpg")
    path = tmp_path / "damaged.tar"
    path.write_bytes(whole[: second + 2] + b"X" + whole[second + 3 :])
    assert refusal(path) == f"is damaged: no member begins at byte {second}, where one should: fetch it again"
    path.write_bytes(b"no tar at all " * 100)
    assert refusal(path).startswith("cannot be read as a tar file (")


def test_a_compressed_archive_is_named(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a"), io.BytesIO())
    assert refusal(tmp_path / "x.tar") == (
        f"is compressed by gzip, and its name does not say so: rename it, as with mv {tmp_path}/x.tar {tmp_path}/x.tar.gz"
    )
