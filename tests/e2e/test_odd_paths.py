"""Folders and links that no program expects: one sentence, before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

import bulkinfer
import pytest

from tests.commands import run_here
from tests.launches import write_photos
from tests.models import write_tiny_model


def test_a_loop_of_links_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    write_tiny_model(tmp_path / "models")
    write_photos(tmp_path / "photos", 2)
    launch = ("infer_launch", "--model_name", "tiny", "--data_dir", "photos", "--device", "cpu")
    for words, told in (
        (("verify", "loop"), "loop does not exist: name a job by its results, its log folder or its name"),
        (("verify", "loop/x"), "loop/x does not exist: name a job by its results"),
        (("verify", "loop", "photos"), "loop does not exist: name a job by its results"),
        (("retry", "loop"), "loop does not exist: name a job by its results"),
        ((*launch, "--skip_done", "loop"), "--skip_done: loop does not exist: name a job by its results"),
        (("get_dataset", "cifar10", "--data_dir", "loop"), "--data_dir: loop is a link to loop, which does not exist"),
        (("get_model", "--model_name", "resnext101_32x4d", "--model_path", "loop"), "loop is a link to loop, which does"),
    ):
        done = run_here(*words, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), (words, done.stderr)
        assert told in done.stderr
    for open_it in (bulkinfer.verify, bulkinfer.read_results):
        with pytest.raises(bulkinfer.UsageError, match=r"loop holds no _job\.json"):
            open_it(tmp_path / "loop")


def test_a_folder_whose_name_is_not_utf8_is_refused_before_anything_starts(tmp_path: Path) -> None:
    home = Path(os.fsdecode(os.fsencode(tmp_path) + b"/d\xff"))
    write_tiny_model(home / "models")
    write_photos(home / "photos", 2)
    words = ("--model_name", "tiny", "--data_dir", "photos", "--device", "cpu")
    done = run_here("infer_launch", *words, cwd=home)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert r"--model_path: onnxruntime cannot open a path that is not UTF-8, such as " in done.stderr
    write_tiny_model(tmp_path / "models")
    assert run_here("infer_launch", *words, "--model_path", "../models", cwd=home).returncode == 0


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_what_is_no_name_of_a_network(tmp_path: Path, name: str) -> None:
    (tmp_path / "models").mkdir()
    write_photos(tmp_path / "photos", 1)
    for words in (("infer_launch", "--data_dir", "photos"), ("get_model",)):
        done = run_here(*words, "--model_name", name, cwd=tmp_path)
        refused = f"{words[0]}: --model_name {name!r} is no name of a network: give one, such as resnet18\n"
        assert (done.returncode, done.stderr) == (2, refused)


def test_a_run_without_the_files_of_its_checkpoints_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints" / "step-00000005").mkdir(parents=True)
    done = run_here("validate", "run", cwd=tmp_path)
    told = "damaged and not validated: step-00000005: remove them, or give one of the others\n"
    assert done.returncode == 1
    assert done.stderr.endswith(f"bulkinfer validate: {tmp_path / 'run'}: {told}")
