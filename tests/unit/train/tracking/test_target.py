"""train/tracking/target.py: the time until a run has an accuracy, and a run that ends there."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from bulkinfer.errors import UsageError
from bulkinfer.train import launch
from bulkinfer.train.checkpoints import checkpoint
from bulkinfer.train.training import Training
from bulkinfer.train.validation import during_run

from tests.training import checkpoints, command, config_of, one_thread, table, trained, weights

OPTIONS: dict[str, Any] = {"validation": "during", "keep_last": 0, "steps": 20, "logs_per_epoch": 0.4}  # four epochs


@pytest.fixture
def accuracies(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Validations find these, one after the other."""
    found: list[float] = []

    def evaluate(*_: Any, **__: Any) -> Any:
        class Scores:
            accuracy = found.pop(0)

            def sentence(self) -> str:
                return "made up"

            def as_row(self) -> dict[str, float]:
                return {"accuracy": self.accuracy, "top5": 1.0, "loss": 1.0, "count": 1, "images_per_sec": 1.0, "seconds": 1.0}

        return Scores()

    monkeypatch.setattr(during_run, "evaluate", evaluate)
    return found


def test_the_first_validation_at_the_target_counts(tmp_path: Path, accuracies: list[float]) -> None:
    accuracies += [0.3, 0.5, 0.4, 0.9]
    run = trained(tmp_path, target_accuracy=0.5, **OPTIONS)
    lines = [line.partition(" ")[2] for line in (run / "log.txt").read_text().splitlines() if " target: " in line]
    assert len(lines) == 1
    assert lines[0].startswith("target: top-1 50 % is reached after epoch 2.00, update 10, in ")
    seconds = float(lines[0].removesuffix(" s without loading").rpartition(" ")[2])
    times = {step: checkpoint.read(run / "checkpoints" / f"step-{step:08d}").state for step in (5, 10, 15, 20)}
    assert "time_to_target_s" not in times[5]
    found = {times[step]["time_to_target_s"] for step in (10, 15, 20)}
    assert len(found) == 1
    assert found.pop() == pytest.approx(seconds, abs=0.051)
    assert times[10]["time_to_target_s"] < times[10]["total_s"] < times[15]["total_s"]


def test_a_run_ends_there_and_can_go_on(tmp_path: Path, accuracies: list[float]) -> None:
    accuracies += [0.3, 0.6, 0.7]
    options = {**OPTIONS, "checkpoints_per_epoch": 0.0, "target_accuracy": 0.6, "stop_at_target": True}
    with one_thread():
        result = launch.train(config_of(tmp_path, **options))
    assert (result.exit_code, result.updates, result.best_accuracy) == (0, 10, 0.6)
    assert result.folder is not None
    assert result.time_to_target_s is not None
    run = result.folder
    assert checkpoints(run) == ["step-00000010"], "also where none was due"
    assert [step for (step,) in table(run, "training.csv", "step")] == ["10"]
    state = checkpoint.find(run).state
    assert state["best"] == {"step": 10, "accuracy": 0.6}
    accuracies[:] = [0.8, 0.8]
    assert command("--resume", run) == 0
    assert checkpoints(run)[-1] == "step-00000020", "the target is reached already"
    assert checkpoint.find(run).state["time_to_target_s"] == pytest.approx(result.time_to_target_s)
    accuracies[:] = [0.8, 0.85, 0.9]
    assert command("--resume", run, "--steps", 40, "--target_accuracy", 0.85) == 0
    assert checkpoints(run)[-1] == "step-00000030", "another target"
    assert checkpoint.find(run).state["time_to_target_s"] > result.time_to_target_s


def test_what_it_leaves_is_that_of_a_longer_run(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", **OPTIONS)
    first = float(table(whole, "validation.csv", "accuracy")[0][0])
    cut = trained(tmp_path / "cut", target_accuracy=max(first, 1e-9), stop_at_target=True, **OPTIONS)
    assert checkpoints(cut) == ["step-00000005"]
    expected, found = weights(whole, "step-00000005"), weights(cut)
    assert all(torch.equal(value, found[name]) for name, value in expected.items())


def test_what_comes_before_the_first_update_does_not_count(
    tmp_path: Path, accuracies: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies += [0.9]

    def agree(training: Training, _: object) -> None:
        training.progress.started -= 10_000

    monkeypatch.setattr(launch, "agree", agree)
    run = trained(tmp_path, target_accuracy=0.5, **{**OPTIONS, "steps": 5})
    assert checkpoint.find(run).state["time_to_target_s"] < 10_000


def test_a_target_that_is_missed_is_said(tmp_path: Path, accuracies: list[float]) -> None:
    accuracies += [0.3, 0.4]
    run = trained(tmp_path, target_accuracy=0.5, **{**OPTIONS, "steps": 10})
    last = (run / "log.txt").read_text().splitlines()[-1]
    assert " target: top-1 50 % is not reached after 10 updates, " in last
    assert "time_to_target_s" not in checkpoint.find(run).state


def test_the_average_of_the_weights_decides_where_there_is_one(tmp_path: Path, accuracies: list[float]) -> None:
    accuracies += [0.9, 0.2, 0.9, 0.5, *[0.1] * 4]
    run = trained(tmp_path, target_accuracy=0.5, ema=0.9, **OPTIONS)
    assert "target: top-1 50 % is reached after epoch 2.00" in (run / "log.txt").read_text()


def test_a_validation_that_is_owed_can_end_a_run(tmp_path: Path, accuracies: list[float]) -> None:
    """It was stopped after the update, before its validation."""
    config = config_of(tmp_path, target_accuracy=0.5, stop_at_target=True, **OPTIONS)
    calls = iter(range(1, 99))
    with one_thread():
        stopped = launch.train(config, stopping=lambda: nullcontext(lambda: 143 if next(calls) >= 5 else 0))
    assert stopped.exit_code == 143
    assert stopped.folder is not None
    accuracies += [0.5]
    assert command("--resume", stopped.folder) == 0
    assert checkpoint.find(stopped.folder).step == 5
    assert checkpoint.find(stopped.folder).state["time_to_target_s"] > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"target_accuracy": 75.9}, "--target_accuracy 75.9: give a share from 0 to 1, such as 0.759 for 75.9 %"),
        ({"stop_at_target": True}, "--stop_at_target needs a --target_accuracy: give one, or leave it out"),
        ({"target_accuracy": 0.5, "validation": "none"}, "needs validations, and --validation none has none"),
        ({"target_accuracy": 0.5, "dataset": "generated", "validation": "during"}, "and --dataset generated has none"),
    ],
)
def test_what_cannot_be_reached_is_refused(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        config_of(tmp_path, **options)
