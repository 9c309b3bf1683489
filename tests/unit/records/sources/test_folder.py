"""folder.py: which files are pictures, what is counted instead, and that every error is reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.manifest import Manifest
from bulkinfer.records.manifest_rows import Entry
from bulkinfer.records.sources.folder import Unreadable, counted, scan_folder

JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF"
APPLE_DOUBLE = b"\0\x05\x16\x07\0\x02\0\0Mac OS X"


def put(folder: Path, *names: str, content: bytes = JPEG) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def keys(folder: Path, **options: bool) -> list[bytes]:
    return [picture.key for picture in scan_folder(folder, **options).pictures]


def test_recursive_and_sorted_by_key_bytes(tmp_path: Path) -> None:
    put(tmp_path, "b.jpg", "a/z.JPEG", "a.PNG", "A.Jpg", "a/b/c.webp")
    assert keys(tmp_path) == [b"A.Jpg", b"a.PNG", b"a/b/c.webp", b"a/z.JPEG", b"b.jpg"]


def test_extension_or_content_makes_a_picture(tmp_path: Path) -> None:
    put(tmp_path, "photo", "photo.dat", "noext.x")
    put(tmp_path, "heic", content=b"\0\0\0\x18ftypheic\0\0\0\0heicmif1")
    put(tmp_path, "video.mp4", content=b"\0\0\0\x18ftypisom\0\0\0\0isommp41")
    put(tmp_path, "notes.txt", "P1", content=b"P1 is not a picture")
    put(tmp_path, "BMW", content=b"BMW is a make of cars, not a bitmap")
    put(tmp_path, "bitmap", content=b"BM" + bytes(12) + b"\x28\0\0\0")
    put(tmp_path, "empty.txt", "empty", content=b"")
    result = scan_folder(tmp_path)
    assert [picture.key for picture in result.pictures] == [b"bitmap", b"heic", b"noext.x", b"photo", b"photo.dat"]
    assert result.not_pictures == {".txt": 2, "without extension": 3, ".mp4": 1}
    assert "not pictures: 6 (3 without extension, 2 .txt, 1 .mp4)" in result.summary()


@pytest.mark.parametrize("name", ["a.NEF", "a.dng", "a.cr2", "a.ARW", "a.tif", "a"])
def test_c02_the_content_decides_whatever_the_name_says(tmp_path: Path, name: str) -> None:
    for content in (JPEG, b"MM\0*\0\0\0\x08", b"FUJIFILMCCD-RAW 0201", b"\0\0\0\x18ftypcrx \0\0\0\1crx isom"):
        put(tmp_path, name, content=content)
        assert keys(tmp_path) == [os.fsencode(name)]


def test_c02_what_cameras_put_beside_their_pictures_is_left_out(tmp_path: Path) -> None:
    put(tmp_path, "a.nef", "b.dng", content=b"no picture, whatever its name says")
    put(tmp_path, "a.xmp", content=b"<x:xmpmeta/>")
    put(tmp_path, "empty.dng", content=b"")
    assert scan_folder(tmp_path).not_pictures == {".nef": 1, ".dng": 2, ".xmp": 1}


def test_c02_names_known_as_pictures_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan of millions opens nothing: decoding judges these files."""
    put(tmp_path, "a.jpg", "b.PNG", "c.tiff", "d.heic", "e.tga")
    monkeypatch.setattr("bulkinfer.records.sources.folder.open_regular", lambda *_: pytest.fail("a file was opened"))
    assert len(keys(tmp_path)) == 5


def test_b49_empty_and_wrong_files_with_a_picture_extension_stay_in(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg", "3.jpg", "4.jpg", "6.jpg")
    put(tmp_path, "2.jpg", "5.jpg", content=b"")
    assert [(picture.key, picture.size_bytes) for picture in scan_folder(tmp_path).pictures] == [
        (b"%d.jpg" % number, 0 if number in (2, 5) else len(JPEG)) for number in range(1, 7)
    ]


def test_b14_system_files_are_ignored_and_counted(tmp_path: Path) -> None:
    put(tmp_path, "001.jpg", ".hidden/x.jpg", "__MACOSX/y.jpg", ".z.jpg")
    put(tmp_path, "._001.jpg", ".DS_Store", "Thumbs.db", content=APPLE_DOUBLE)
    result = scan_folder(tmp_path)
    assert [picture.key for picture in result.pictures] == [b"001.jpg"]
    assert result.ignored == 6
    assert not result.not_pictures
    assert not result.unreadable


def test_b14_hidden_pictures_on_request_but_never_apple_double(tmp_path: Path) -> None:
    put(tmp_path, "001.jpg", ".hidden/x.jpg", "__MACOSX/y.jpg", ".z.jpg", "._real.jpg")
    put(tmp_path, "._001.jpg", ".DS_Store", "Thumbs.db", content=APPLE_DOUBLE)
    assert keys(tmp_path, include_hidden=True) == [b"._real.jpg", b".hidden/x.jpg", b".z.jpg", b"001.jpg"]
    assert scan_folder(tmp_path, include_hidden=True).ignored == 4


def test_links_to_files_are_pictures_and_broken_ones_become_error_rows(tmp_path: Path) -> None:
    put(tmp_path, "a.jpg")
    (tmp_path / "b.jpg").symlink_to("a.jpg")
    (tmp_path / "gone.jpg").symlink_to("nowhere.jpg")
    (tmp_path / "disk").symlink_to("unmounted")
    result = scan_folder(tmp_path)
    assert [picture[:2] for picture in result.pictures] == [(b"a.jpg", len(JPEG)), (b"b.jpg", len(JPEG)), (b"gone.jpg", None)]
    changed = (tmp_path / "a.jpg").stat().st_mtime_ns
    assert [picture.mtime_ns for picture in result.pictures] == [changed, changed, None], "those of the file, not of the link"
    assert result.unreadable == [Unreadable(b"disk", "broken link")]


def test_linked_folders_count_once_and_loops_end(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(tmp_path, "root/real/1.jpg", "outside/2.jpg", "outside/deep/3.jpg")
    (root / "again").symlink_to("real")
    (root / "real/up").symlink_to("..")
    (root / "above").symlink_to("../..")
    (root / "linked").symlink_to(tmp_path / "outside")
    (tmp_path / "outside/back").symlink_to(root)
    result = scan_folder(root)
    assert [picture.key for picture in result.pictures] == [b"linked/2.jpg", b"linked/deep/3.jpg", b"real/1.jpg"]
    assert sorted(result.repeated) == [b"above", b"again", b"linked/back", b"real/up"]
    assert any("counted once" in line for line in result.summary())


def test_pipes_are_not_opened(tmp_path: Path) -> None:
    put(tmp_path, "a.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    os.mkfifo(tmp_path / "pipe")
    result = scan_folder(tmp_path)
    assert len(result.pictures) == 1
    assert result.not_pictures.total() == 2


def test_an_unreadable_folder_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.jpg", "shut/b.jpg")
    real = os.scandir

    def scandir(path: bytes) -> os._ScandirIterator[bytes]:
        if path.endswith(b"/shut"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    result = scan_folder(tmp_path)
    assert result.unreadable == [Unreadable(b"shut", "Permission denied")]
    assert result.unreadable_lines() == ["unreadable, its pictures are missing: shut (Permission denied)"]
    assert len(result.pictures) == 1


def test_outputs_of_ours_stay_out(tmp_path: Path) -> None:
    put(tmp_path, "a.jpg", "out/b.jpg", "made/0/c.jpg", "theirs/d.jpg", "half/0/e.jpg")
    put(tmp_path, "made/dataset.json", content=b'{\n "format": 1,\n "content": "bulkinfer partitions"}')
    put(tmp_path, "theirs/dataset.json", content=b'{"images": []}')
    put(tmp_path, "theirs/manifest.parquet", content=b"PAR1")
    Manifest.from_entries([Entry(b"e.jpg", 1)], b"/x").write(tmp_path / "half/0/manifest.parquet")
    result = scan_folder(tmp_path, exclude=os.fsencode(tmp_path / "out"))
    assert [picture.key for picture in result.pictures] == [b"a.jpg", b"theirs/d.jpg"]
    assert sorted(result.left_out) == [b"half/0", b"made", b"out"]


def test_the_logs_of_a_job_are_called_no_output_of_partition_dataset(tmp_path: Path) -> None:
    put(tmp_path, "a.jpg", "logs/tiny-1/b.jpg")
    put(tmp_path, "logs/tiny-1/run.json", content=b"{}")
    Manifest.from_entries([Entry(b"a.jpg", 1)], b"/x").write(tmp_path / "logs/tiny-1/manifest.parquet")
    assert "left out: logs/tiny-1/ (an output of bulkinfer)" in scan_folder(tmp_path).summary()


def test_a_root_that_cannot_be_searched(tmp_path: Path) -> None:
    put(tmp_path, "a.jpg")
    with pytest.raises(UsageError, match="does not exist"):
        scan_folder(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"a\.jpg is one picture: give the folder"):
        scan_folder(tmp_path / "a.jpg")


def test_very_deep_folders(tmp_path: Path) -> None:
    deep = "/".join(["d" * 20] * 60)
    put(tmp_path, f"{deep}/x.jpg")
    assert keys(tmp_path) == [f"{deep}/x.jpg".encode()]


@pytest.mark.parametrize(
    ("number", "word", "text"),
    [(1, "picture", "1 picture"), (2000, "picture", "2,000 pictures"), (1, "class", "1 class"), (0, "class", "0 classes"),
     (2, "copy", "2 copies"), (1, "symbolic link", "1 symbolic link")],
)  # fmt: skip
def test_one_is_not_many(number: int, word: str, text: str) -> None:
    assert counted(number, word) == text
