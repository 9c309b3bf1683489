"""resume.py: a run that was stopped and continued is the run that was not, bit for bit; what may change and what not."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.train import launch
from bulkinfer.train.runs import lock_run

from tests.forms import long
from tests.training import (
    assert_same_weights,
    checkpoints,
    command,
    config_of,
    cut_back,
    one_thread,
    table,
    trained,
    write_digits,
)

EACH: dict[str, Any] = {"checkpoints_per_epoch": 5, "keep_last": 0, "logs_per_epoch": 5}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "random": {"dropout": 0.3, "block_survival": 0.8, "mixup_alpha": 0.4, "cutmix_alpha": 1.0, "label_smoothing": 0.1},
    "adam": {"optimizer": "adam", "lr": 0.01, "loss_scaling_mode": "dynamic", "weight_decay": 0.01},
    "rmsprop_tf": {"optimizer": "rmsprop_tf", "lr": 0.001, "warmup_epochs": 1.0},
    "lars": {"optimizer": "lars", "lr": 1.0, "lr_schedule": "polynomial"},
    "accumulated": {"norm": "group", "micro_batch_size": 4, "gradient_accumulation": 2, "recompute": ("blocks",)},
    "half": {"precision": "16.16", "train_only": "layer3|fc", "dataset_percentage": 90.0},
    "float16": {"precision": "16.16", "half_type": "float16", "loss_scaling": 1024.0, "optimizer": "adamw"},
    "cropped": {"augment": "resized_crop", "num_workers": 3},
}
ROWS = ("step", "learning_rate", "loss", "accuracy")


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_in_mid_epoch_and_at_its_end(kind: str, tmp_path: Path) -> None:
    straight = trained(tmp_path, **EACH, **KINDS[kind])
    assert len(checkpoints(straight)) == 12
    for step in (5, 8):
        cut = cut_back(straight, step)
        assert command("--resume", cut) == 0
        assert_same_weights(straight, cut)
        assert table(cut, "training.csv", *ROWS) == table(straight, "training.csv", *ROWS), "no row twice, none missing"


def test_b53_the_rates_of_a_continued_run_are_those_of_the_straight_one(tmp_path: Path) -> None:
    """Six epochs of five updates: warm-up over two, cosine over four. The first update has the first rate, once."""
    options = {**EACH, "steps": 0, "epochs": 6.0, "warmup_epochs": 2.0, "lr": 0.2}
    straight = trained(tmp_path, **options)
    rates = [float(rate) for (rate,) in table(straight, "training.csv", "learning_rate")]
    expected = [0.2 * (n + 1) / 10 if n < 10 else 0.1 * (1 + math.cos(math.pi * (n - 10) / 20)) for n in range(30)]
    assert rates == pytest.approx(expected, rel=1e-8)
    cut = cut_back(straight, 15)
    assert command("--resume", cut) == 0
    assert table(cut, "training.csv", *ROWS) == table(straight, "training.csv", *ROWS)
    assert_same_weights(straight, cut)


def test_a_loss_scale_given_now_wins(tmp_path: Path) -> None:
    straight = trained(tmp_path, **EACH, loss_scaling_mode="dynamic")
    scales = {float(scale) for (scale,) in table(straight, "training.csv", "loss_scale")}
    assert scales == {65536.0}
    cut = cut_back(straight, 5)
    assert command("--resume", cut, "--loss_scaling", 1024) == 0
    assert [float(scale) for (scale,) in table(cut, "training.csv", "loss_scale")] == [65536.0] * 5 + [1024.0] * 7
    plain = cut_back(trained(tmp_path, **EACH), 5)
    assert command("--resume", plain, "--loss_scaling_mode", "ramp", "--loss_scaling", 8) == 0
    assert [float(scale) for (scale,) in table(plain, "training.csv", "loss_scale")][:6] == [1.0] * 5 + [2.0]


def test_a_checkpoint_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    straight = trained(tmp_path, **EACH)
    cut = cut_back(straight, 5)
    monkeypatch.chdir(cut / "checkpoints")
    assert command("--resume", "step-00000005") == 0
    assert_same_weights(straight, cut)
    assert {path.name for path in (cut / "checkpoints").iterdir()} == set(checkpoints(straight))


@long
def test_one_process_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = cut_back(trained(tmp_path, **EACH), 5)
    lock = lock_run(cut)
    code = "import sys; from bulkinfer.commands.train import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, "--resume", cut], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert f"{cut} is being trained by pid {os.getpid()} on " in done.stderr
    lock.release()
    assert command("--resume", cut) == 0
    assert not (cut / "_lock.json").exists()


def test_what_another_process_trained_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has finished and gone between our look at the checkpoints and our lock."""
    straight = trained(tmp_path, **EACH)
    cut = cut_back(straight, 5)
    last = checkpoints(straight)[-1]

    def locked_late(folder: Path) -> Any:
        shutil.copytree(straight / "checkpoints" / last, cut / "checkpoints" / last)
        return lock_run(folder)

    monkeypatch.setattr(launch, "lock_run", locked_late)
    assert command("--resume", cut) == 2
    assert f"{cut} has a later checkpoint, {last}" in capsys.readouterr().err
    assert last in checkpoints(cut)
    assert not (cut / "_lock.json").exists()


def test_validation_is_continued_too(tmp_path: Path) -> None:
    options = {"validation": "during", "checkpoints_per_epoch": 1, "keep_last": 0}
    straight = trained(tmp_path, **options)
    cut = cut_back(straight, 5)
    assert command("--resume", cut) == 0
    columns = ("name", "step", "accuracy", "top5", "loss", "count")
    rows = table(straight, "validation.csv", *columns)
    assert [row[:2] for row in rows] == [["step-00000005", "5"], ["step-00000010", "10"], ["step-00000012", "12"]]
    assert {row[-1] for row in rows} == {"360"}
    assert table(cut, "validation.csv", *columns) == rows
    kept = [json.loads((run / "checkpoints" / "step-00000012" / "state.json").read_text())["best"] for run in (straight, cut)]
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "cifar_resnet14"],
        ["--norm", "group"],
        ["--dataset", "mnist"],
        ["--seed", "1"],
        ["--optimizer", "adam"],
        ["--image_size", "16"],
        ["--dataset_percentage", "50"],
    ],
)
def test_what_would_change_the_past_is_refused_by_name(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = cut_back(trained(tmp_path, **EACH, steps=3), 2)
    capsys.readouterr()
    assert command("--resume", run, *words, "--nodownload") == 2
    told = capsys.readouterr()
    assert f"{words[0]} cannot be changed" in told.err or (words[0] == "--dataset" and "mnist" in told.err)
    assert told.err.count("\n") == 1
    assert checkpoints(run) == ["step-00000001", "step-00000002"]


def test_a_batch_that_would_cut_the_epoch_otherwise_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = cut_back(trained(tmp_path, **EACH, steps=3), 2)
    assert command("--resume", run, "--micro_batch_size", 4) == 2
    assert "the run has global_batch 8, it would have 4 now" in capsys.readouterr().err
    assert command("--resume", run, "--micro_batch_size", 4, "--gradient_accumulation", 2) == 0


def test_flags_given_win_and_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = cut_back(trained(tmp_path, **EACH, steps=3), 2)
    capsys.readouterr()
    assert command("--resume", run, "--epochs", "1", "--lr", "0.01", "--lr_schedule", "constant") == 0
    told = capsys.readouterr().out.splitlines()
    assert [line for line in told if line.startswith("changed: ")] == [
        "changed: --epochs 1.0 (so far 0.0)",
        "changed: --steps 0 (so far 3)",
        "changed: --lr 0.01 (so far 0.1)",
        "changed: --lr_schedule constant (so far cosine)",
    ]
    assert [row for row in table(run, "training.csv", "step", "learning_rate") if int(row[0]) > 2] == [
        ["3", "0.01"],
        ["4", "0.01"],
        ["5", "0.01"],
    ]
    arguments = json.loads((run / "arguments-2.json").read_text())
    assert arguments["from_step"] == 2
    assert (run / "arguments.json").exists()


def test_a_run_goes_beyond_its_end_only_where_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path, **EACH, steps=3)
    capsys.readouterr()
    assert command("--resume", run) == 0
    assert "nothing is left to do: a larger --epochs or --steps makes the run longer" in capsys.readouterr().out
    assert command("--resume", run, "--steps", 2) == 2
    assert "is at update 3, but the run would end at 2" in capsys.readouterr().err
    assert command("--resume", run, "--steps", 5) == 0
    assert [step for (step,) in table(run, "training.csv", "step")] == ["1", "2", "3", "4", "5"]


def test_an_earlier_checkpoint_is_refused_while_there_are_later_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, **EACH, steps=3)
    assert command("--resume", run / "checkpoints" / "step-00000002") == 2
    assert "has a later checkpoint, step-00000003" in capsys.readouterr().err
    assert command("--resume", run / "checkpoints" / "step-00000003" / "state.json", "--steps", 4) == 0


def test_data_that_moved_are_found_where_one_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = cut_back(trained(tmp_path, **EACH, steps=3), 2)
    (tmp_path / "data").rename(tmp_path / "moved")
    assert command("--resume", run) == 2
    assert "does not exist: give the folder of the data set" in capsys.readouterr().err
    assert command("--resume", run, "--data_dir", tmp_path / "moved") == 0
    assert f"changed: --data_dir {tmp_path / 'moved'}" in capsys.readouterr().out


def test_other_data_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = cut_back(trained(tmp_path, **EACH, steps=3), 2)
    write_digits(tmp_path / "more", 48)
    assert command("--resume", run, "--data_dir", tmp_path / "more") == 2
    assert "the run has num_samples 40, it would have 48 now" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--config", "digits_resnet8"], ["--init_checkpoint", "x"], ["--log_path", "x"]])
def test_what_belongs_to_a_new_run(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--resume", tmp_path, *words) == 2
    assert f"{words[0]} is for a new run" in capsys.readouterr().err


def test_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--resume", tmp_path / "nothing") == 2
    assert "holds no checkpoint that can be read: give a run folder below logs/" in capsys.readouterr().err


@pytest.mark.parametrize("step", [3, 5, 12])
def test_c56_the_tables_of_a_stopped_run_are_those_of_the_straight_one(step: int, tmp_path: Path) -> None:
    """Rows every two updates, validation every five: stopped between two rows, on a validation, and on the last update."""
    options = {"logs_per_epoch": 2.5, "validation": "during", "keep_last": 0}
    straight = trained(tmp_path, **options)
    config = config_of(tmp_path / "stopped", **options)
    asked: list[int] = []

    def stop() -> int:
        asked.append(1)
        return 130 if len(asked) == step else 0

    with one_thread():
        result = launch.train(config, stopping=lambda: nullcontext(stop))
    assert (result.exit_code, result.updates) == (130, step)
    assert result.folder is not None
    assert command("--resume", result.folder) == 0
    assert_same_weights(straight, result.folder)
    columns = ("name", "step", "accuracy", "top5", "loss", "count")
    assert table(result.folder, "validation.csv", *columns) == table(straight, "validation.csv", *columns)
    assert table(result.folder, "training.csv", *ROWS) == table(straight, "training.csv", *ROWS)
    kept = [json.loads((run / "checkpoints" / "step-00000012" / "state.json").read_text()) for run in (straight, result.folder)]
    assert kept[0]["best"] == kept[1]["best"]
    assert not kept[1]["owes_validation"]
