"""data_dir.py: what names the folder of pictures, and what is said where nothing does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.data_dir import pictures_here, resolve_data_dir
from bulkinfer.records.sources.folder import scan_folder

COMMAND = "bulkinfer bench"


def test_where_pictures_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA_DIR", raising=False)
    for name in ("given", "environment", "datasets"):
        (tmp_path / name).mkdir()
    advice = r"use --data_dir or set DATA_DIR, as in: bulkinfer bench --data_dir PHOTOS \(PHOTOS: a folder of pictures\)$"
    with pytest.raises(UsageError, match=rf"^no folder of pictures given: {advice}"):
        resolve_data_dir("", COMMAND)
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "environment"))
    assert resolve_data_dir("", COMMAND) == tmp_path / "environment"
    (tmp_path / "datasets" / "dataset.json").touch()
    assert resolve_data_dir("", COMMAND) == Path("datasets")
    assert resolve_data_dir("given", COMMAND) == Path("given")
    with pytest.raises(UsageError, match="missing does not exist: give a folder of pictures or of partitions, or an archive"):
        resolve_data_dir("missing", COMMAND)


def test_the_folder_of_a_single_picture_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my photos").mkdir()
    for name in ("my photos/one.jpg", "my photos/two.jpg", "my photos/list.txt", "my photos/lists.txt", "my photos/set1.tar"):
        (tmp_path / name).touch()
    for find in (lambda path: resolve_data_dir(path, COMMAND), scan_folder):
        with pytest.raises(UsageError, match=r"one\.jpg is one picture: give the folder that it lies in, '.*my photos'$"):
            find("my photos/one.jpg")
        with pytest.raises(UsageError, match=r"list\.txt is not a folder: give a folder of pictures"):
            find("my photos/list.txt")
        with pytest.raises(UsageError, match=r"set2\.tar does not exist: did you mean '.*my photos/set1\.tar'\?$"):
            find("my photos/set2.tar")


def test_the_one_folder_of_pictures_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA_DIR", raising=False)
    for name in ("notes", ".hidden", "deep/er/and deeper"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "notes" / "a.txt").touch()
    (tmp_path / ".hidden" / "a.jpg").touch()
    (tmp_path / "deep" / "er" / "and deeper" / "a.jpg").touch()
    (tmp_path / "a.jpg").touch()
    assert pictures_here() == ""
    (tmp_path / "my photos" / "cats").mkdir(parents=True)
    (tmp_path / "my photos" / "cats" / "a.JPG").touch()
    assert pictures_here() == "my photos"
    with pytest.raises(UsageError, match=r"no folder of pictures given: .*, as in: bulkinfer bench --data_dir 'my photos'$"):
        resolve_data_dir("", COMMAND)
    with pytest.raises(UsageError, match=r"my phtos does not exist: did you mean 'my photos'\?"):
        resolve_data_dir("my phtos", COMMAND)
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "b.png").touch()
    assert pictures_here() == "", "which of them is not known"


def test_a_working_folder_that_is_gone_holds_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert pictures_here() == ""


def filled(folder: Path, count: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number:04d}.txt").touch()
    return folder


def test_where_too_much_would_have_to_be_read_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(filled(tmp_path, 999))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    assert pictures_here() == "photos"
    (tmp_path / "one more.txt").touch()
    assert pictures_here() == "", "among so many entries another folder could hold pictures, too"
    monkeypatch.chdir(filled(tmp_path / "home", 0))
    (tmp_path / "photos").rename(tmp_path / "home" / "a photos")
    for number in range(4):
        for inner in range(10):
            filled(tmp_path / "home" / f"{number}" / f"{inner}", 80)
    assert pictures_here() == "a photos"
    for inner in range(10):
        filled(tmp_path / "home" / "5" / f"{inner}", 80)
    assert pictures_here() == "", "4000 entries were read before all folders were"


@pytest.mark.parametrize("is_reversed", [False, True])
def test_what_is_read_does_not_depend_on_the_order_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_reversed: bool
) -> None:
    class InOrder:
        """os.scandir, with the entries by name, or the other way round."""

        def __init__(self, folder: str) -> None:
            self.folder = folder

        def __enter__(self) -> Iterator[os.DirEntry[str]]:
            with scandir(self.folder) as entries:
                return iter(sorted(entries, key=lambda entry: entry.name, reverse=is_reversed))

        def __exit__(self, *_: object) -> None: ...

    scandir = os.scandir
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "scandir", InOrder)
    for name in "abcdefghijk":
        (tmp_path / "set" / name).mkdir(parents=True)
    picture = tmp_path / "set" / "k" / "1.png"
    picture.touch()
    assert pictures_here() == "", "it lies in the eleventh folder"
    picture.rename(tmp_path / "set" / "a" / "1.png")
    assert pictures_here() == "set"
