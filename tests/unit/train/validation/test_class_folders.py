"""Validation folders that lack a class of training, or have one more, in every command that reads them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bulkinfer.commands import validate

from tests.training import command, one_thread, table
from tests.unit.train.test_bad_pictures import class_folders, only_run, words


def validated(*given: object) -> int:
    with one_thread():
        return validate.main([str(word) for word in (*given, "--num_workers", 1)])


def test_c43_a_class_without_a_folder_and_one_too_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = class_folders(tmp_path / "data")
    shutil.rmtree(home / "val" / "cat")
    assert command(*words(home, epochs=1)) == 0
    assert "val has no folder for 1 of the 2 classes: cat" in capsys.readouterr().err
    run = only_run(home)
    assert table(run, "validation.csv", "count") == [["4"]]
    assert validated(run, "--again") == 0
    accuracy = capsys.readouterr().out.partition("top-1 ")[2].split()[0]
    other = tmp_path / "other"  # the same pictures without those of training
    shutil.copytree(home / "val", other / "val")
    assert validated(run, "--data_dir", other) == 0
    told = capsys.readouterr()
    assert f"warning: {other} has no pictures of 1 of the 2 classes: cat" in told.err
    assert told.out.partition("top-1 ")[2].split()[0] == accuracy
    shutil.copytree(home / "val" / "dog", other / "val" / "ox")
    assert validated(run, "--data_dir", other) == 2
    assert f"{other}: the run was trained on other classes: it does not know ox" in capsys.readouterr().err
    shutil.copytree(home / "val" / "dog", home / "val" / "ox")
    assert command(*words(home, epochs=1)) == 2
    assert "val has 1 class folder that" in capsys.readouterr().err
    assert validated(run, "--again") == 2
    assert "lacks: ox" in capsys.readouterr().err
