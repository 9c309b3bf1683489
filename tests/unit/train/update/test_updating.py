"""updating.py: weights of 16 bits have sums and averages in float32, small changes count, two replicas stay equal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.update.optimisers import OptimiserOptions
from bulkinfer.train.update.step import Precision, run_step, targets_of
from bulkinfer.train.update.updating import Updater, rounding_seed
from safetensors.torch import load_file
from torch import nn

from tests.data_sets import sklearn_digits
from tests.forms import long
from tests.rules.source import ROOT
from tests.training import command, config_of, runs_in, table

HALVES = ("bfloat16", "float16")


def weight_of(value: float, count: int, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.full((count, 1), value, dtype=dtype))


def update(updater: Updater, weight: nn.Parameter, gradients: list[float], *, rate: float, step: int = 0) -> None:
    """One update; each gradient is that of a backward pass."""
    updater.forget_gradients()
    for gradient in gradients:
        (weight * torch.full_like(weight, gradient)).sum().backward()
    updater.update(rate, step)


@pytest.mark.parametrize("name", HALVES)
def test_a_tiny_gradient_moves_the_momentum(name: str) -> None:
    """One picture of a window of 50 million, at a loss scale of 65,536: its gradient is 0.5 / 5e7 = 1e-8, 0 in float16."""
    precision = Precision("16.16", "cpu", name)
    model = nn.Linear(1, 2, bias=False).to(precision.weights)
    nn.init.zeros_(model.weight)
    updater = Updater(dict(model.named_parameters()), OptimiserOptions("momentum"))
    labels = torch.tensor([1])
    parts = [(torch.ones(1, 1, dtype=precision.input), targets_of(labels, 2, 0.0), labels)]
    run_step(model, updater, parts, window_size=50_000_000, step=0, rate=0.0, scale=65536.0, precision=precision)
    (state,) = updater.optimiser.state.values()
    assert state["momentum_buffer"].dtype == torch.float32
    tolerance = 1e-3 if name == "float16" else 4e-3  # half a step of a bfloat16
    assert state["momentum_buffer"].flatten().numpy() == pytest.approx([1e-8, -1e-8], rel=tolerance)


@pytest.mark.parametrize("name", HALVES)
def test_gradients_are_summed_in_float32(name: str) -> None:
    """1 and 256 x 2^-13 are 1.03125; in 16 bits none of the small ones would count."""
    weight = weight_of(0.0, 1, getattr(torch, name))
    updater = Updater({"weight": weight}, OptimiserOptions("momentum"))
    update(updater, weight, [1.0] + [2.0**-13] * 256, rate=0.0)
    (gradient,) = updater.gradients()
    assert gradient.dtype == torch.float32
    assert float(gradient) == 1.03125


def test_gradients_of_a_replica_without_pictures_are_zeros() -> None:
    weight = weight_of(0.0, 3, torch.bfloat16)
    updater = Updater({"weight": weight}, OptimiserOptions("sgd"))
    assert updater.gradients() == []
    (gradient,) = updater.gradients(of_all=True)
    assert torch.equal(gradient, torch.zeros(3, 1))


@pytest.mark.parametrize("name", HALVES)
def test_small_changes_count_on_average(name: str) -> None:
    """2,000 weights of 1 lose 2e-5 in each of 500 updates, which rounding to the nearest undoes each time."""
    means = {}
    for seed in (None, 0):
        weight = weight_of(1.0, 2000, getattr(torch, name))
        updater = Updater({"weight": weight}, OptimiserOptions("sgd"), rounding_seed=seed)
        for step in range(500):
            update(updater, weight, [1.0], rate=2e-5, step=step)
        means[seed] = float(weight.detach().double().mean())
    assert means[None] == 1.0
    step_below_one = 2.0**-8 if name == "bfloat16" else 2.0**-11
    error = np.sqrt(500 * 2e-5 * step_below_one / 2000)  # each update adds a variance of at most change x step
    assert abs(means[0] - 0.99) <= 4 * error


def test_the_float32_copies_have_memory_during_an_update_only() -> None:
    weight = weight_of(1.0, 1000, torch.bfloat16)
    updater = Updater({"weight": weight}, OptimiserOptions("adam"), rounding_seed=0)
    (copy,) = updater.optimiser.param_groups[0]["params"]
    for step in range(2):
        assert copy.untyped_storage().nbytes() == 0
        update(updater, weight, [1.0], rate=0.1, step=step)
    assert float(weight.detach().float().mean()) == pytest.approx(0.8, abs=0.01)


def test_when_weights_are_rounded_stochastically() -> None:
    def seed(**options: str) -> int | None:
        return rounding_seed(TrainConfig(seed=5, **options))  # type: ignore[arg-type]

    assert seed(precision="16.16") == seed(precision="16.16", stochastic_rounding="on") == 5
    assert seed(precision="16.16", stochastic_rounding="off") is None
    assert seed(precision="16.32") is seed() is None


@long
@pytest.mark.parametrize("half_type", HALVES)
def test_sixteen_bits_learn_at_a_small_rate(half_type: str, tmp_path: Path) -> None:
    """Ten epochs of scikit-learn's digits at the rate 0.001: within five points of 32 bits."""
    words = ["--dataset", "digits", "--data_dir", sklearn_digits(), "--model", "cifar_resnet8", "--image_size", 8]
    words += ["--micro_batch_size", 32, "--epochs", 10, "--optimizer", "sgd", "--lr", 0.001, "--lr_schedule", "constant"]
    half = ["--precision", "16.16", "--half_type", half_type, "--loss_scaling", 256]
    found = []
    for name, more in (("32", []), ("16", half)):
        assert command(*words, *more, "--validation", "after", "--log_path", tmp_path / name) == 0
        ((accuracy,),) = table(runs_in(tmp_path / name)[0], "validation.csv", "accuracy")
        found.append(float(accuracy))
    assert found[1] >= found[0] - 0.05


RANK = """
import os, sys
from pathlib import Path
from safetensors.torch import save_file
from bulkinfer.train import launch
from tests.training import config_of

run_updates = launch.run_updates

def run_and_save(training, *others):
    code = run_updates(training, *others)
    weights = {name: weight.detach().contiguous() for name, weight in training.model.network.named_parameters()}
    save_file(weights, f"{os.environ['RANK']}.safetensors")
    return code

launch.run_updates = run_and_save
launch.train(config_of(Path.cwd(), precision="16.16", micro_batch_size=4, optimizer="adam", replicas=2))
"""


@long
def test_two_replicas_have_the_same_bits(tmp_path: Path) -> None:
    config_of(tmp_path)  # makes the pictures, once
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--no_python"]
    done = subprocess.run([*launcher, sys.executable, "-c", RANK], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    one, other = (load_file(tmp_path / f"{rank}.safetensors") for rank in (0, 1))
    assert {value.dtype for value in one.values()} == {torch.bfloat16}
    assert [name for name, value in one.items() if not torch.equal(value, other[name])] == []
