"""checkpoint.py: the same bits come back, an interrupted save leaves the older one, a broken one is named."""

from __future__ import annotations

import errno
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from bulkinfer.errors import RunError, UsageError
from bulkinfer.host.versions import versions
from bulkinfer.train.checkpoints import checkpoint
from bulkinfer.train.data.recipes import recipe_for
from bulkinfer.train.network.networks import NetworkOptions
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.update.optimisers import OptimiserOptions, make_optimiser, update
from safetensors import SafetensorError
from torch import nn

from tests.temporaries import temporary_name
from tests.training import assert_same_weights, checkpoints, command, cut_back, trained

STATE: dict[str, Any] = {
    "config": asdict(TrainConfig()),
    "network": asdict(NetworkOptions("cifar_resnet8", 1)),
    "dataset": "digits",
    "num_samples": 8,
    "global_batch": 4,
    "class_names": ["ß"],
    "recipe": asdict(recipe_for("digits", 8, whole=True)),
    "versions": versions(),
    "epoch": 1.5,
    "loss_scale": {"value": 1.0, "good_steps": 0},
    "best": {"step": 1, "accuracy": 0.5},
    "total_s": 1.25,
}
OPTIMISERS = ("sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop", "rmsprop_tf", "lars")


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    return layers.to(memory_format=torch.channels_last)


def go_on(model: nn.Module, optimiser: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        torch.manual_seed(step)
        optimiser.zero_grad()
        model(torch.randn(4, 3, 8, 8)).square().mean().backward()
        update(optimiser, 0.01)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_what_was_saved_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    options = OptimiserOptions(name, l2=1e-4)
    straight = network()
    optimiser = make_optimiser(straight.parameters(), options)
    go_on(straight, optimiser, range(3))
    folder = checkpoint.save(tmp_path, straight, checkpoint.flatten_optimiser(optimiser), {**STATE, "step": 3})
    assert folder == tmp_path / "checkpoints" / "step-00000003"
    go_on(straight, optimiser, range(3, 6))
    found = checkpoint.find(tmp_path)
    assert (found.step, found.state["best"], found.state["class_names"]) == (3, STATE["best"], ["ß"])
    continued = network()
    continued.load_state_dict(found.weights)
    again = make_optimiser(continued.parameters(), options)
    checkpoint.restore_optimiser(again, found)
    go_on(continued, again, range(3, 6))
    expected = straight.state_dict()
    assert all(torch.equal(expected[key], value) for key, value in continued.state_dict().items())


def saved(run: Path, *steps: int) -> nn.Module:
    model = network()
    optimiser = make_optimiser(model.parameters(), OptimiserOptions("momentum"))
    for step in steps:
        go_on(model, optimiser, range(step, step + 1))
        checkpoint.save(run, model, checkpoint.flatten_optimiser(optimiser), {**STATE, "step": step})
    return model


@pytest.mark.parametrize(
    ("function", "error", "raised"),
    [
        ("write_json", OSError(errno.ENOSPC, "No space left on device"), OSError),
        ("save_file", SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"), RunError),
        ("file_sha256", KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_b52_an_interrupted_save_leaves_the_older_one(
    function: str, error: BaseException, raised: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 1)

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(checkpoint, function, fails)
    with pytest.raises(raised):
        saved(tmp_path, 2)
    monkeypatch.undo()
    assert checkpoints(tmp_path) == ["step-00000001"]
    assert checkpoint.find(tmp_path).step == 1


@pytest.mark.parametrize("name", ["weights.safetensors", "optimiser.safetensors", "state.json"])
def test_b52_the_newest_that_loads_is_taken_and_the_broken_one_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path, 1, 2)
    broken = tmp_path / "checkpoints" / "step-00000002" / name
    os.truncate(broken, broken.stat().st_size // 2)
    assert checkpoint.find(tmp_path).step == 1
    told = capsys.readouterr().err
    assert str(broken) in told
    assert "looking for an earlier one" in told
    with pytest.raises(RunError, match="damaged"):
        checkpoint.read(broken.parent)


def test_b52_a_run_goes_on_from_the_older_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    straight = trained(tmp_path, checkpoints_per_epoch=5, keep_last=0)
    cut = cut_back(straight, 8)
    os.truncate(cut / "checkpoints" / "step-00000008" / "weights.safetensors", 1000)
    left_over = cut / "checkpoints" / temporary_name("abcdef12")  # of a process that is gone
    left_over.mkdir()
    capsys.readouterr()
    assert command("--resume", cut) == 0
    told = capsys.readouterr()
    assert "step-00000008/weights.safetensors is damaged" in told.err
    assert "resume: 7 of 12 updates are done" in told.out
    assert not left_over.exists()
    assert "broken-step-00000008" in checkpoints(cut)
    assert_same_weights(straight, cut)


def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3, 4, 5)
    checkpoint.prune(tmp_path, keep_last=0, best_step=-1)
    assert len(checkpoints(tmp_path)) == 5
    checkpoint.prune(tmp_path, keep_last=2, best_step=2)
    assert checkpoints(tmp_path) == ["step-00000002", "step-00000004", "step-00000005"]


def test_a_step_that_is_saved_again_is_replaced(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    before = checkpoint.find(tmp_path).weights
    saved(tmp_path, 5, 1)
    assert checkpoints(tmp_path) == ["step-00000001", "step-00000005"]
    after = checkpoint.read(tmp_path / "checkpoints" / "step-00000001").weights
    assert not torch.equal(before["0.weight"], after["0.weight"])


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="holds no checkpoint that can be read"):
            checkpoint.find(path)
