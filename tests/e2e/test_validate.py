"""bulkinfer validate on networks that were not trained here: published weights, random ones, and faults."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.commands import records, run
from tests.forms import long
from tests.launches import write_photos
from tests.training import write_digits

PICTURES = 12


@pytest.fixture(scope="module")
def home(lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """D/val/<number of class>/...: pictures in the folder of the class that infer_launch finds."""
    place = shutil.copytree(lite0, tmp_path_factory.mktemp("validate") / "validate")
    write_photos(place / "photos", PICTURES)
    words = ("--model_name", "efficientnet_lite0", "--data_dir", "photos", "--output", "out", "--device", "cpu")
    launched = run("infer_launch", *words, "--precision", "fp32", cwd=place)
    assert launched.returncode == 0, launched.stderr
    for key, row in records(place / "out").items():
        folder = place / "D" / "val" / str(row["class_ids"][0])
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(place / "photos" / key, folder / key)
    return place


@long
def test_a_network_of_the_zoo_finds_what_infer_launch_finds(home: Path) -> None:
    done = run("bulkinfer", "validate", "--model", "efficientnet-lite0", "--data_dir", "D", cwd=home)
    assert done.returncode == 0, done.stderr
    assert "efficientnet_lite0: weights efficientnet-lite0-57934424.pth" in done.stdout
    assert f"efficientnet_lite0: top-1 100.00 % ({PICTURES} of {PICTURES})" in done.stdout


@long
def test_random_weights_are_said(tmp_path: Path) -> None:
    write_digits(tmp_path / "data")
    words = ("--model", "cifar_resnet8", "--image_size", 8, "--dataset", "digits", "--data_dir", "data")
    done = run("bulkinfer", "validate", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "warning: cifar_resnet8: RANDOM weights" in done.stdout
    assert " of 360)" in done.stdout


@long
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give a checkpoint or a run, or --model NAME"),
        (["--model", "efficientnet_lite0", "--data_dir", "D", "--image_size", 128], "with its weights is for 224 pixels"),
        (["--model", "efficientnet_lite0", "--data_dir", "D", "--weights", "none.pth"], "no such file"),
        (["--model", "efficientnet_lite0", "--data_dir", "photos"], "holds none of the known data sets"),
        (["--model", "efficientnet_lite0", "--dataset", "generated"], "--generated_data measures the speed"),
        (["logs/x", "--weights", "random"], "--weights is for the accuracy of a network that was not trained here"),
    ],
)
def test_wrong_use_is_one_sentence(home: Path, words: list[object], told: str) -> None:
    done = run("bulkinfer", "validate", *words, cwd=home)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stderr.count("\n") == 1, done.stderr
    assert told in done.stderr
