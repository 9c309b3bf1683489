"""Where the picture of a row lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bulkinfer.errors import RunError
from bulkinfer.insight.picture_file import PictureFiles, picture_folder
from bulkinfer.records.manifest import open_dataset

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
