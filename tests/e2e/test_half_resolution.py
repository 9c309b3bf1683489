"""The recipe of docs/training.md: train on small pictures, average, and fine-tune the last layers on large ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.commands import command
from tests.data_sets import sklearn_digits
from tests.forms import long
from tests.training import runs_in, table, weights

ONE_CORE = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]


def run(home: Path, *words: object) -> str:
    done = subprocess.run(
        [*ONE_CORE, *command("bulkinfer", *words)], cwd=home, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), (done.stdout, done.stderr)
    return done.stdout


@long
def test_digits_of_8_and_then_16_pixels(tmp_path: Path) -> None:
    digits = ("--dataset", "digits", "--data_dir", sklearn_digits(), "--model", "cifar_resnet8", "--micro_batch_size", 32)
    run(tmp_path, "train", *digits, "--image_size", 8, "--epochs", 5, "--keep_last", 0, "--validation", "none")
    (first,) = runs_in(tmp_path / "logs")
    run(tmp_path, "average", first, "--last", 3)
    average = first / "checkpoints" / "average-00000225-3-mean"
    assert float(table(first, "validation.csv", "accuracy")[-1][0]) >= 0.9
    shown = run(
        tmp_path, "train", *digits, "--image_size", 16, "--init_checkpoint", average, "--train_from", "layer3",
        "--optimizer", "sgd", "--lr_schedule", "cosine", "--lr", 0.2, "--epochs", 2,
    )  # fmt: skip
    assert "input 16x16" in shown
    (tuned,) = set(runs_in(tmp_path / "logs")) - {first}
    accuracies = [float(accuracy) for (accuracy,) in table(tuned, "validation.csv", "accuracy")]
    assert accuracies[-1] >= 0.7, "at least that; 0.88 once"
    before, after = weights(first, average.name), weights(tuned)
    changed = {name for name, value in before.items() if not value.equal(after[name])}
    assert changed == {name for name in before if name.startswith(("layer3", "fc"))}
