"""train/averages/ema.py: the average that follows a run, in its checkpoints, validations and exports."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bulkinfer.commands import validate
from bulkinfer.errors import UsageError
from bulkinfer.train import loop
from bulkinfer.train.averages.ema import Ema, warn_if_slow
from bulkinfer.train.checkpoints import checkpoint
from bulkinfer.train.checkpoints.first_weights import load_first_weights
from bulkinfer.train.network.networks import NetworkOptions, build
from safetensors.torch import load_file

from tests.data_sets import sklearn_digits
from tests.forms import long
from tests.training import (
    assert_same_weights,
    checkpoints,
    command,
    config_of,
    cut_back,
    one_thread,
    runs_in,
    table,
    trained,
)

EVERY_UPDATE: dict[str, Any] = {"checkpoints_per_epoch": 5.0, "keep_last": 0}


def files(run: Path, name: str) -> list[dict[str, torch.Tensor]]:
    """A file of each checkpoint, in the order of updates."""
    return [load_file(run / "checkpoints" / step / f"{name}.safetensors") for step in checkpoints(run)]


def recurrence(weights: list[dict[str, torch.Tensor]], decay: float, name: str) -> np.ndarray:
    """The average of a tensor in float64, computed by hand."""
    first, *others = (each[name].double().numpy() for each in weights)
    average = first
    for value in others:
        average = decay * average + (1 - decay) * value
    return np.asarray(average)


@pytest.mark.parametrize(
    "options",
    [{}, {"precision": "16.16"}, {"recompute": ("blocks",), "norm": "group"}],
    ids=["32.32", "16.16", "recomputed"],
)
def test_after_five_updates_it_is_the_recurrence(options: dict[str, Any], tmp_path: Path) -> None:
    run = trained(tmp_path, ema=0.7, steps=5, **EVERY_UPDATE, **options)
    weights, averages = files(run, "weights"), files(run, "ema")
    assert len(weights) == 5
    parameters = {
        name for name, _ in build(NetworkOptions("cifar_resnet8", 10, norm=options.get("norm", "batch"))).named_parameters()
    }
    for name, found in averages[-1].items():
        if name in parameters:
            assert found.dtype == torch.float32, name
            assert np.abs(found.double().numpy() - recurrence(weights, 0.7, name)).max() < 1e-6, name
        else:  # averages and counters of batch norm
            assert torch.equal(found, weights[-1][name].to(found.dtype)), name
    assert not np.allclose(averages[-1]["fc.weight"], weights[-1]["fc.weight"].float(), atol=1e-4)


def test_an_update_that_moves_no_weights_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_step, steps = loop.run_step, iter(range(1, 6))

    def every_other(*arguments: Any, **named: Any) -> Any:
        outcome = run_step(*arguments, **named)
        return replace(outcome, finite=next(steps) % 2 == 1)

    monkeypatch.setattr(loop, "run_step", every_other)
    run = trained(tmp_path, ema=0.7, steps=5, on_nonfinite="skip", **EVERY_UPDATE)
    followed = files(run, "weights")[::2]
    found = files(run, "ema")[-1]["fc.weight"].double().numpy()
    assert np.abs(found - recurrence(followed, 0.7, "fc.weight")).max() < 1e-6
    assert checkpoint.find(run).state["ema_updates"] == 3


@pytest.mark.parametrize("options", [{}, {"precision": "16.16"}], ids=["32.32", "16.16"])
def test_continued_it_has_the_bits_of_a_straight_run(options: dict[str, Any], tmp_path: Path) -> None:
    straight = trained(tmp_path, ema=0.8, keep_last=0, validation="during", **options)
    cut = cut_back(straight, 5)
    assert command("--resume", cut) == 0
    assert_same_weights(straight, cut)
    columns = ("name", "weights", "accuracy", "loss")
    assert table(straight, "validation.csv", *columns) == table(cut, "validation.csv", *columns)
    assert command("--resume", cut, "--ema", 0.9) == 2


def test_both_are_scored_and_the_average_decides_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path, ema=0.9, validation="during", recompute=("blocks",), lr=0.05, keep_last=0)
    rows = table(run, "validation.csv", "step", "weights", "accuracy", "loss")
    assert [row[:2] for row in rows] == [[step, weights] for step in ("5", "10", "12") for weights in ("raw", "ema")]
    averages = {int(step): float(accuracy) for step, weights, accuracy, _ in rows if weights == "ema"}
    best = max(averages, key=lambda step: (averages[step], -step))
    assert checkpoint.find(run).state["best"] == {"step": best, "accuracy": pytest.approx(averages[best])}
    assert "validation after epoch 2.40 (ema): top-1" in (run / "log.txt").read_text()

    (run / "validation.csv").unlink()  # again, by networks that are built from the files
    for words in ((), ("--weights_of", "raw")):
        with one_thread():
            assert validate.main([str(run), *words]) == 0
    again = {(step, weights): float(loss) for step, weights, loss in table(run, "validation.csv", "step", "weights", "loss")}
    assert len(again) == 6
    for step, weights, _, loss in rows:
        assert again[step, weights] == pytest.approx(float(loss), rel=1e-4)
    assert (run / "confusion-step-00000012-ema.csv").exists()
    capsys.readouterr()
    with one_thread():
        assert validate.main([str(run)]) == 0
    assert capsys.readouterr().out == "3 of 3 checkpoints are in validation.csv already: --again repeats them\n"


def test_a_run_can_begin_with_the_average(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = trained(tmp_path, ema=0.9)
    network = build(NetworkOptions("cifar_resnet8", 10))
    with caplog.at_level(logging.INFO, "bulkinfer"):
        load_first_weights(network, run, 10)
    assert f"first weights: the average in {run / 'checkpoints' / 'step-00000012' / 'ema.safetensors'}" in caplog.text
    assert torch.equal(network.state_dict()["fc.weight"], files(run, "ema")[-1]["fc.weight"])


def test_what_is_wrong_is_one_sentence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UsageError, match="--ema 1: it must be below 1, or the average never moves"):
        config_of(tmp_path, ema=1.0)
    found = checkpoint.Checkpoint(tmp_path / "step-00000012", {}, {}, {})
    with pytest.raises(UsageError, match=r"--weights_of ema: .*step-00000012 has no average of the weights: leave it out"):
        found.weights_file("ema")
    warn_if_slow(0.99, 300)
    assert not caplog.text
    warn_if_slow(0.99, 100)
    assert "--ema 0.99: after all 100 updates it holds 37 % of the first weights" in caplog.text


def test_a_network_of_its_own(tmp_path: Path) -> None:
    """The average does not share memory with the network, and keeps its layout."""
    network = build(NetworkOptions("cifar_resnet8", 10)).to(memory_format=torch.channels_last)
    ema = Ema(network, 0.5)
    ema.follow(network)
    before = ema.network.state_dict()["fc.weight"].clone()
    with torch.no_grad():
        network.get_parameter("fc.weight").add_(1.0)
    assert torch.equal(ema.network.state_dict()["fc.weight"], before)
    strides = [[p.stride() for p in each.parameters()] for each in (network, ema.network)]
    assert strides[0] == strides[1]


@long
def test_on_digits_it_is_not_below_the_weights(tmp_path: Path) -> None:
    """At a constant rate, with three seeds: at most half a point."""
    for seed in range(3):
        words = {"micro_batch_size": 32, "steps": 0, "epochs": 8.0, "lr_schedule": "constant", "lr": 0.1, "ema": 0.95}
        trained(tmp_path / str(seed), data_dir=str(sklearn_digits()), seed=seed, validation="after", **words)
        (run,) = runs_in(tmp_path / str(seed) / "logs")
        (raw,), (average,) = table(run, "validation.csv", "accuracy")
        assert float(average) >= float(raw) - 0.005, (seed, raw, average)
