"""data_dir.py: what names the folder of pictures, and what is said where nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.records.data_dir import pictures_here, resolve_data_dir

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
