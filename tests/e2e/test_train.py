"""bulkinfer train and validate through the installed script: runs, stops, what is wrong, and back to infer_launch."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.commands import command, get_model, records, run, run_here
from tests.data_sets import sklearn_digits
from tests.faults.slow_site import held_at_line
from tests.forms import long
from tests.training import VALID, assert_same_weights, checkpoints, runs_in, table, write_digits

ONE_CORE = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
TINY = ["--model", "cifar_resnet8", "--image_size", 8, "--micro_batch_size", 8]


def train(home: Path, *words: object, code: int = 0, name: str = "train", **options: Any) -> Any:
    """Run the command on one core: tiny networks gain nothing from more, and other work on those costs much."""
    found = subprocess.run(
        [*ONE_CORE, *command("bulkinfer", name, *words)],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        **options,
    )
    assert found.returncode == code, (found.stdout, found.stderr)
    return found


def refused(home: Path, *words: object, name: str = "train", code: int = 2) -> str:
    """The one sentence on stderr of a command that is refused."""
    found = train(home, *words, name=name, code=code)
    told: str = found.stderr
    assert told.count("\n") == 1, told
    assert told.startswith(f"bulkinfer {name}: ")
    return told


def only_run(home: Path) -> Path:
    (found,) = runs_in(home / "logs")
    return found


@long
def test_generated_pictures(tmp_path: Path) -> None:
    words = [*TINY, "--dataset", "generated", "--steps", 6, "--gradient_accumulation", 2, "--logs_per_epoch", 6250]
    done = train(tmp_path, *words)
    assert "batches: micro batch 8 x accumulation 2 x replicas 1 = global batch 16" in done.stdout
    assert "data: generated: 50000 pictures, 1000 classes; validation: none" in done.stdout
    assert "length: 6 updates, 3125 an epoch" in done.stdout
    assert done.stderr == ""
    folder = only_run(tmp_path)
    assert len(table(folder, "training.csv", "step")) == 6
    assert sorted(path.name for path in folder.iterdir()) == [
        "arguments.json", "checkpoints", "log.txt", "training.csv", "validation.csv",
    ]  # fmt: skip
    assert checkpoints(folder) == ["step-00000006"]
    assert "it has no validation pictures" in refused(tmp_path, folder, "--again", name="validate")
    again = train(tmp_path, *words, "--seed", 0, "--name_suffix", "again")
    assert again.returncode == 0
    (other,) = set(runs_in(tmp_path / "logs")) - {folder}
    assert_same_weights(folder, other)


@long
def test_scikit_learns_digits_reach_97_percent(tmp_path: Path) -> None:
    train(tmp_path, "--config", "digits_resnet8", "--data_dir", sklearn_digits())
    rows = table(only_run(tmp_path), "validation.csv", "epoch", "accuracy", "count")
    assert [row[0] for row in rows] == [str(epoch) for epoch in range(1, 16)]
    assert {row[2] for row in rows} == {"360"}
    assert float(rows[-1][1]) >= 0.97


def started(home: Path, *words: object, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*ONE_CORE, *command("bulkinfer", "train", *words)],
        cwd=home, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listening,
    )  # fmt: skip


def listening() -> None:
    """Take SIGINT as from a terminal."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for(process: subprocess.Popen[str], begin: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(begin):
            return
    raise AssertionError(process.communicate())


LONG = [*TINY, "--dataset", "digits", "--data_dir", "data", "--steps", 60, "--logs_per_epoch", 5, "--validation", "none"]


@long
def test_killed_in_mid_epoch_and_continued(tmp_path: Path) -> None:
    write_digits(tmp_path / "data")
    straight, cut = tmp_path / "straight", tmp_path / "cut"
    words = [*LONG, "--dropout", 0.2, "--checkpoints_per_epoch", "5/3"]
    train(tmp_path, *words, "--log_path", straight)
    process = started(tmp_path, *words, "--log_path", cut, **held_at_line(tmp_path, "step: 23,", tmp_path / "held"))
    wait_for(process, "step: 23,")
    process.kill()
    process.communicate()
    ((expected,), (found,)) = runs_in(straight), runs_in(cut)
    assert len(table(found, "training.csv", "step")) >= 22
    assert checkpoints(found)[-1] == "step-00000021", "of mid-epoch"
    done = train(tmp_path, "--resume", found)
    assert f"run: {found}" in done.stdout
    assert_same_weights(expected, found)
    columns = ("step", "learning_rate", "loss", "accuracy")
    assert table(expected, "training.csv", *columns) == table(found, "training.csv", *columns)


@long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_that_can_be_continued(number: signal.Signals, tmp_path: Path) -> None:
    write_digits(tmp_path / "data")
    words = [*LONG, "--checkpoints_per_epoch", 0, "--steps", 100_000]
    process = started(tmp_path, *words)
    wait_for(process, "step: 12,")
    process.send_signal(number)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    lines = [line for line in told.splitlines() if ": note: " not in line]
    assert lines[0] == "bulkinfer train: stopping after this update; a second signal stops at once"
    assert len(lines) == 2
    assert lines[1].startswith(f"bulkinfer train: stopped by {number.name} after update ")
    folder = only_run(tmp_path)
    assert lines[1].endswith(f"; bulkinfer train --resume {folder.relative_to(tmp_path)} goes on from there")
    (name,) = checkpoints(folder)
    step = int(name[-8:])
    train(tmp_path, "--resume", folder, "--steps", step + 2)
    assert [int(row[0]) for row in table(folder, "training.csv", "step")] == list(range(1, step + 3))


def as_pictures(data: Path, folder: Path) -> dict[str, int]:
    """The validation pictures as PNG files; their labels by name."""
    rows = [list(map(int, line.split(","))) for line in (data / "digits.csv").read_text().splitlines()][-VALID:]
    folder.mkdir()
    labels = {}
    for number, row in enumerate(rows):
        greys = (np.array(row[:-1]) * 255 + 8) // 16
        Image.fromarray(greys.reshape(8, 8).astype(np.uint8)).save(folder / f"{number:03d}.png")
        labels[f"{number:03d}.png"] = row[-1]
    return labels


@long
def test_the_circle(tmp_path: Path) -> None:
    """Train, validate, export, run: the accuracy is the same to the last picture, and each picture has the same class."""
    data = write_digits(tmp_path / "data", 200)
    words = [
        *TINY,
        "--image_size",
        16,
        "--dataset",
        "digits",
        "--data_dir",
        "data",
        "--epochs",
        3,
        "--lr",
        0.05,
        "--keep_last",
        0,
    ]
    train(tmp_path, *words, "--validation", "none")
    folder = only_run(tmp_path)
    done = train(tmp_path, folder, name="validate")
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == checkpoints(folder)
    rows = table(folder, "validation.csv", "name", "accuracy", "count")
    assert [row[0] for row in rows] == checkpoints(folder)
    last = checkpoints(folder)[-1]
    confusion = np.loadtxt(folder / f"confusion-{last}.csv", delimiter=",")
    assert confusion.sum() == VALID
    assert np.trace(confusion) / VALID == pytest.approx(float(rows[-1][1]), rel=1e-8)
    assert float(rows[-1][1]) > 0.2, "learnt something"
    assert "3 of 3 checkpoints are in validation.csv already" in train(tmp_path, folder, name="validate").stdout
    again = train(tmp_path, folder, "--again", "--valid_batch_size", 7, name="validate")
    assert again.stdout.count("top-1") == 3
    assert table(folder, "validation.csv", "name", "accuracy", "count") == rows
    labels = as_pictures(data, tmp_path / "pictures")
    made = get_model(tmp_path, "--checkpoint", folder, "--name", "digits", "--batch_size", 16)
    assert "next: infer_launch --model_name digits --batch_size 16" in made.stdout
    launched = run("infer_launch", "--model_name", "digits", "--batch_size", 16, "--data_dir", "pictures", "--output", "out",
                   "--precision", "fp32", "--device", "cpu", cwd=tmp_path)  # fmt: skip
    assert launched.returncode == 0, launched.stderr
    found = {key: row["class_ids"][0] for key, row in records(tmp_path / "out").items()}
    assert found.keys() == labels.keys()
    assert sum(found[key] == label for key, label in labels.items()) == round(float(rows[-1][1]) * VALID)
    served = np.zeros((10, 10))
    for key, label in labels.items():
        served[label, found[key]] += 1
    assert served.tolist() == confusion.tolist()
    assert records(tmp_path / "out")["000.png"]["class_names"][0] == str(found["000.png"])
    assert (
        get_model(tmp_path, "--checkpoint", folder, "--name", "digits", "--batch_size", 16).stdout.count("already there") == 1
    )


def test_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path) -> None:
    write_digits(tmp_path / "data")
    words = [
        "--model-size",
        18,
        "--model",
        "resnet",
        "--data_dir",
        "data",
        "--dataset",
        "digits",
        "--image-size",
        32,
        "--dry_run",
    ]
    done = train(tmp_path, *words, "--total_batch_size", 8, "--gradient-accumulation-count", 2, "--base-learning-rate", -6,
                 "--epochs", 2, "--lr-schedule", "stepped", "--warmup_epochs", 1)  # fmt: skip
    data = str(tmp_path / "data")
    assert done.stdout.splitlines() == [
        "note: not given, so ours: norm batch, optimiser nesterov, L2 0.0005, precision 32.32; --like tf1 takes its defaults",
        "network: resnet18, 11,181,642 parameters, input 32x32",
        "norm: batch (default), momentum 0.1, epsilon 1e-05",
        "data: digits: 40 pictures, 10 classes; validation: 360 pictures",
        "batches: micro batch 4 x accumulation 2 x replicas 1 = global batch 8",
        "length: 10 updates, 5 an epoch",
        "rate: stepped, 0.125 at its peak, first 0.025, last 0.00125",
        "optimiser: nesterov (default), momentum 0.9, L2 0.0005 (default)",
        "precision: 32.32 on cpu",
        f"options: --model resnet --model_size 18 --image_size 32 --dataset digits --data_dir {data} --gradient_accumulation 2 "
        "--global_batch_size 8 --epochs 2 --base_learning_rate -6 --lr_schedule stepped --warmup_epochs 1",
        "warning: batch norm's averages still keep 12 % of their first values after 20 batches, and a validation takes them: "
        "train longer, or give --norm_momentum 0.2",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


DIGITS = ["--dataset", "digits", "--data_dir", "data", *TINY]


def test_wrong_uses(tmp_path: Path) -> None:
    """The others are in tests/unit/test_train_refusals.py."""
    for words, sentence in (
        (("train", "--dataset", "mnis"), "bulkinfer train: unknown data set 'mnis': known data sets are cifar10,"),
        (("validate",), "bulkinfer validate: give a checkpoint or a run"),
    ):
        done = run_here("bulkinfer", *words, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done
        assert done.stderr.startswith(sentence)


@long
def test_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    write_digits(tmp_path / "data")
    words = [*DIGITS, "--steps", 8, "--validation", "none", "--lr", 1e30, "--momentum", 0, "--optimizer", "sgd"]
    told = train(tmp_path, *words, code=1).stderr.splitlines()[-1]
    assert told.startswith("bulkinfer train: the loss or a gradient is not finite in update ")
    assert told.endswith("or go on over such updates with --on_nonfinite skip")
    done = train(tmp_path, *words, "--on_nonfinite", "skip")
    assert ": skipped\n" in done.stdout


@long
def test_a_network_that_cannot_be_compiled(tmp_path: Path) -> None:
    write_digits(tmp_path / "data")
    environment = {**os.environ, "CXX": "/bin/false", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    told = train(tmp_path, *DIGITS, "--steps", 2, "--compile", code=1, env=environment).stderr.splitlines()[-1]
    assert told.startswith("bulkinfer train: --compile: the network cannot be compiled here (")
    assert told.endswith("): leave it out")


@long
def test_speed_of_a_network_on_made_up_pictures(tmp_path: Path) -> None:
    words = ["--model", "cifar_resnet8", "--image_size", 8, "--generated_data", "--repeat", 1, "--valid_batch_size", 1]
    done = train(tmp_path, *words, name="validate")
    assert "random weights: only the speed has a meaning" in done.stdout
    assert re.search(r"images/sec; latency of a batch in ms: mean [\d.]+, p50 [\d.]+, p95 [\d.]+, p99 [\d.]+\n", done.stdout)


@long
def test_class_folders(tmp_path: Path) -> None:
    """Pictures of files, resized and cropped by threads; a broken one ends the run with its name."""
    random = np.random.default_rng(0)
    for split, count in (("train", 8), ("val", 3)):
        for name in ("cat", "dog"):
            (tmp_path / "data" / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 256, (20, 30, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "data" / split / name / f"{number}.jpg")
    words = ["--model", "cifar_resnet8", "--data_dir", "data", "--image_size", 16, "--micro_batch_size", 4, "--epochs", 2]
    done = train(tmp_path, *words, "--augment", "resized_crop", "--num_workers", 2)
    assert "data: folder: 16 pictures, 2 classes; validation: 6 pictures" in done.stdout
    assert table(only_run(tmp_path), "validation.csv", "count") == [["6"], ["6"]]
    broken = tmp_path / "data" / "train" / "dog" / "3.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    told = train(tmp_path, *words, code=1).stderr
    assert f"{broken} cannot be used (decode: " in told
    shutil.copy(tmp_path / "data" / "train" / "dog" / "4.jpg", broken)
    broken = tmp_path / "data" / "val" / "dog" / "1.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    told = train(tmp_path, *words, "--checkpoints_per_epoch", 0, "--validation", "after", "--log_path", "kept", code=1).stderr
    assert f"{broken} cannot be used (decode: " in told
    (folder,) = runs_in(tmp_path / "kept")
    assert checkpoints(folder) == ["step-00000008"], "the updates are not lost"


@long
def test_a_full_disk_leaves_the_checkpoints_that_are_there(tmp_path: Path) -> None:
    """A small tmpfs that the second checkpoint does not fit on."""
    write_digits(tmp_path / "data")
    logs = tmp_path / "logs"
    logs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", logs], check=True)
    try:
        told = train(tmp_path, *DIGITS, "--validation", "none", "--epochs", 3, "--keep_last", 0, code=1).stderr.splitlines()[-1]
        assert "No space left on device" in told
        assert checkpoints(only_run(tmp_path)) == ["step-00000005"]
        train(tmp_path, "--resume", only_run(tmp_path), "--keep_last", 1, "--epochs", 2, code=1)
        assert checkpoints(only_run(tmp_path)) == ["step-00000005"]
    finally:
        subprocess.run(["umount", logs], check=True)


@long
def test_time_of_a_run_goes_on(tmp_path: Path) -> None:
    write_digits(tmp_path / "data")
    train(tmp_path, *DIGITS, "--validation", "none", "--steps", 3, "--logs_per_epoch", 5)
    folder = only_run(tmp_path)
    time.sleep(0.1)
    train(tmp_path, "--resume", folder, "--steps", 5)
    seconds = [float(row[0]) for row in table(folder, "training.csv", "total_s")]
    assert seconds == sorted(seconds)
