"""Where the picture of a row lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.errors import RunError
from bulkinfer.insight.picture_file import PictureFiles, picture_folder
from bulkinfer.records.dataset import open_dataset
from bulkinfer.records.partitions.make_partitions import partition_dataset

from tests.archives import write_tar
from tests.commands import run_here
from tests.launches import write_photos


def test_a_plain_folder(tmp_path: Path) -> None:
    assert PictureFiles(tmp_path).place(b"a/b.jpg", 0) == os.fsencode(tmp_path) + b"/a/b.jpg"


@pytest.mark.parametrize("mode", ["symlink", "copy", "manifest"])
def test_partitions(tmp_path: Path, mode: str) -> None:
    write_photos(tmp_path / "photos", 6)
    words = ("--data_dir", "photos", "--partitions", 2, "--mode", mode)
    assert run_here("partition_dataset", *words, cwd=tmp_path).returncode == 0
    files = PictureFiles(tmp_path / "datasets")
    for partition in open_dataset(tmp_path / "datasets").partitions:
        for record in partition.manifest.records():
            assert files.place(record.key, partition.index) == record.place
            assert Path(os.fsdecode(record.place)).is_file()
    (tmp_path / "datasets" / "1" / "manifest.parquet").unlink()
    with pytest.raises(RunError):
        PictureFiles(tmp_path / "datasets").place(b"a", 1)


def test_the_folder_is_that_of_a_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA_DIR", raising=False)
    assert picture_folder({}) == Path("datasets")
    monkeypatch.setenv("DATA_DIR", "elsewhere")
    assert picture_folder({}) == Path("elsewhere")
    Path("datasets").mkdir()
    Path("datasets/dataset.json").touch()
    assert picture_folder({"data_dir": ""}) == Path("datasets"), "as a launch has it: before $DATA_DIR"
    assert picture_folder({"data_dir": "photos"}) == Path("photos")
    assert picture_folder({"data_dir": "photos"}, "moved") == Path("moved")


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_pictures_in_archives(tmp_path: Path, is_partitioned: bool) -> None:
    names = {f"{n}/{n}.jpg": b"%d" % n for n in range(6)}
    for number in range(2):
        write_tar(tmp_path / "data" / f"{number}.tar", dict(list(names.items())[number::2]))
    data_dir = tmp_path / "data"
    if is_partitioned:
        partition_dataset(data_dir, partitions=2, output=tmp_path / "parts")
        data_dir = tmp_path / "parts"
    files = PictureFiles(data_dir)
    found = {
        (record.key, part.index): record.place
        for part in open_dataset(data_dir).partitions
        for record in part.manifest.records()
    }
    assert {where: files.place(*where) for where in found} == found
    assert len(found) == 6
    if not is_partitioned:
        assert PictureFiles(data_dir / "1.tar").place(b"1.tar/1/1.jpg", 0) == found[b"1.tar/1/1.jpg", 0]
        assert files.place(b"3.tar/1.jpg", 0) == os.fsencode(data_dir) + b"/3.tar/1.jpg", "read_place says what is wrong"
