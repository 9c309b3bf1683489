"""Pictures that cannot be used in class folders: all named before the first update, or left out; advice that works."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.commands import train, validate
from PIL import Image

from tests.training import assert_same_weights, command, one_thread, runs_in, table


def class_folders(home: Path) -> Path:
    """Two classes of ten pictures to train on and four to validate on, as PNG files."""
    random = np.random.default_rng(0)
    for split, count in (("train", 10), ("val", 4)):
        for name in ("cat", "dog"):
            (home / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 256, (12, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(home / split / name / f"{number}.png")
    return home


def damage(*paths: Path) -> None:
    for path in paths:
        path.write_bytes(path.read_bytes()[:60])


def words(home: Path, **options: Any) -> list[object]:
    given = {"model": "cifar_resnet8", "image_size": 8, "data_dir": home, "log_path": home / "logs", "micro_batch_size": 4,
             "epochs": 2, "num_workers": 1, **options}  # fmt: skip
    return [word for name, value in given.items() for word in (f"--{name}", value)]


def only_run(home: Path) -> Path:
    (run,) = runs_in(home / "logs")
    return run


def test_c37_all_bad_pictures_are_named_before_the_first_update(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = class_folders(tmp_path / "data")
    bad = [home / "train/cat/3.png", home / "val/cat/0.png", home / "val/dog/2.png"]
    damage(*bad)
    assert command(*words(home), "--check_pictures") == 2
    told = capsys.readouterr().err
    assert [path for path in bad if f"warning: {path} cannot be used (decode: " in told] == bad
    assert "3 of 28 pictures cannot be used (each is named above)" in told
    assert not (home / "logs").exists()
    assert command(*words(home), "--check_pictures", "--on_bad_picture", "skip") == 0, "what it advises"
    assert table(only_run(home), "validation.csv", "count") == [["6"], ["6"]]


def test_c37_a_run_that_met_a_bad_picture_goes_on_as_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same weights as a run that skipped from the start; an empty file stands for one that was taken out."""
    home, other = class_folders(tmp_path / "data"), tmp_path / "other"
    shutil.copytree(home, other)
    for folder in (home, other):
        damage(folder / "train/cat/3.png", folder / "val/dog/1.png")
    assert command(*words(other), "--on_bad_picture", "skip") == 0
    assert command(*words(home), "--checkpoints_per_epoch", 0) == 1
    told = capsys.readouterr().err
    assert f"{home}/train/cat/3.png cannot be used (decode: " in told
    (home / "train/cat/3.png").unlink()
    assert command("--resume", only_run(home)) == 2
    assert "an empty file in the place of one will do, with --on_bad_picture skip" in capsys.readouterr().err
    (home / "train/cat/3.png").touch()
    advice = re.search(r"bulkinfer train (--resume \S+) goes on; with (--on_bad_picture skip)", told)
    assert advice is not None
    assert command(*shlex.split(f"{advice[1]} {advice[2]}")) == 0
    assert_same_weights(only_run(home), only_run(other))
    assert table(only_run(home), "training.csv", "step", "loss") == table(only_run(other), "training.csv", "step", "loss")


def test_c37_validation_of_a_run_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = class_folders(tmp_path / "data")
    assert command(*words(home)) == 0
    run = only_run(home)
    damage(home / "val/dog/1.png")
    with one_thread():
        assert validate.main([str(run), "--again", "--num_workers", "1"]) == 1
        assert "leave it out with --on_bad_picture skip" in capsys.readouterr().err
        assert validate.main([str(run), "--again", "--num_workers", "1", "--on_bad_picture", "skip"]) == 0
    assert table(run, "validation.csv", "count") == [["7"], ["7"]]


def test_c37_a_batch_without_a_picture(tmp_path: Path) -> None:
    """All pictures of one class are bad: some batches have one picture left, which is left out too, and the run goes on."""
    home = class_folders(tmp_path / "data")
    damage(*(home / "train" / "cat").iterdir(), *(home / "train" / "dog").glob("[0-6].png"))
    with one_thread():
        assert train.main([str(word) for word in words(home, epochs=3, on_bad_picture="skip", logs_per_epoch=5)]) == 0
    assert len(table(only_run(home), "training.csv", "loss")) == 15
