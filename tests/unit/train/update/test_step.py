"""step.py: an update is that of the mean loss over its window, however that is cut; loss scales; what is not finite."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bulkinfer.train.update import step
from bulkinfer.train.update.optimisers import OptimiserOptions
from bulkinfer.train.update.step import LossScale, Precision, run_step, targets_of
from bulkinfer.train.update.updating import Updater
from torch import nn
from torch.nn import functional

from tests.forms import long
from tests.logged import logged
from tests.rules.source import ROOT

FP32 = Precision("32.32", "cpu")


def network(norm: str = "group") -> nn.Module:
    torch.manual_seed(0)
    layer = nn.GroupNorm(2, 4) if norm == "group" else nn.Identity()
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=norm == "none"), layer, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    )


def batch(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 5, (count,), generator=random)
    return torch.randn(count, 3, 8, 8, generator=random), targets_of(labels, 5, 0.1), labels


def trained(model: nn.Module, pieces: list[int], steps: int, **options: Any) -> dict[str, torch.Tensor]:
    """The weights after some updates on the same window, cut into pieces."""
    updater = Updater(dict(model.named_parameters()), OptimiserOptions("nesterov", l2=1e-4))
    images, targets, labels = batch(sum(pieces))
    for _ in range(steps):
        parts = zip(images.split(pieces), targets.split(pieces), labels.split(pieces), strict=True)
        run_step(
            model, updater, parts, window_size=sum(pieces), step=0, **{"rate": 0.1, "scale": 1.0, "precision": FP32, **options}
        )
    return model.state_dict()


@pytest.mark.parametrize("norm", ["group", "none"])
@pytest.mark.parametrize("pieces", [[10], [4, 4, 2], [1] * 10, [3, 7]])
def test_accumulation_equals_the_big_batch(norm: str, pieces: list[int]) -> None:
    """The last piece is shorter: a true mean over the window, not a mean of means. Ten updates, float32."""
    whole, cut = trained(network(norm), [10], 10), trained(network(norm), pieces, 10)
    for name in whole:
        assert cut[name].numpy() == pytest.approx(whole[name].numpy(), abs=1e-5), name


def test_b58_windows_of_four_four_and_two_are_true_means() -> None:
    """A linear model with plain SGD, computed by hand in numpy: nothing leaks from one window into the next."""
    model = nn.Linear(3, 2, bias=False).double()
    weight = model.weight.detach().numpy().copy()
    random = np.random.default_rng(0)
    inputs, labels = random.normal(size=(10, 3)), random.integers(0, 2, 10)
    updater = Updater(dict(model.named_parameters()), OptimiserOptions("sgd"))
    for start, end in ((0, 4), (4, 8), (8, 10)):
        x, y = torch.from_numpy(inputs[start:end]), torch.from_numpy(labels[start:end])
        parts = [(x[i : i + 1], targets_of(y[i : i + 1], 2, 0.0, torch.float64), y[i : i + 1]) for i in range(end - start)]
        run_step(model, updater, parts, window_size=end - start, step=0, rate=0.5, scale=1.0, precision=FP32)
        logits = inputs[start:end] @ weight.T
        odds = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        weight -= 0.5 * (odds - np.eye(2)[labels[start:end]]).T @ inputs[start:end] / (end - start)
    assert model.weight.detach().numpy() == pytest.approx(weight, abs=1e-6)


def test_sums_of_an_update() -> None:
    model = network()
    images, targets, labels = batch(6)
    with torch.no_grad():
        logits = model(images)
    outcome = run_step(model, Updater(dict(model.named_parameters()), OptimiserOptions("sgd")), [(images, targets, labels)],
                       window_size=6, step=0, rate=0.1, scale=1.0, precision=FP32)  # fmt: skip
    assert float(outcome.loss) == pytest.approx(
        float(functional.cross_entropy(logits, labels, label_smoothing=0.1, reduction="sum")), rel=1e-5
    )
    assert int(outcome.correct) == int((logits.argmax(1) == labels).sum())
    assert (outcome.count, outcome.finite) == (6, True)


def test_a_loss_scale_changes_nothing_but_the_range() -> None:
    plain, scaled = trained(network(), [10], 3), trained(network(), [10], 3, scale=1024.0)
    for name in plain:
        assert scaled[name].numpy() == pytest.approx(plain[name].numpy(), abs=1e-6)


def test_gradients_that_are_not_finite_leave_the_weights_alone() -> None:
    model = network()
    before = copy.deepcopy(model.state_dict())
    updater = Updater(dict(model.named_parameters()), OptimiserOptions("momentum"))
    images, targets, labels = batch(4)
    images[2, 0, 0, 0] = float("inf")
    outcome = run_step(model, updater, [(images, targets, labels)], window_size=4, step=0, rate=0.1, scale=1.0, precision=FP32)
    assert not outcome.finite
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not updater.optimiser.state


def test_loss_scales() -> None:
    ramp = LossScale("ramp", 128.0)
    assert [ramp.at(progress) for progress in (0.0, 0.124, 0.126, 0.5, 0.99, 1.0)] == [1, 1, 2, 16, 128, 128]
    later = LossScale("ramp", 128.0, first=16.0)
    assert [later.at(progress) for progress in (0.0, 0.24, 0.26, 0.5, 0.76, 1.0)] == [16, 16, 32, 64, 128, 128]
    assert LossScale("static", 128.0).at(0.5) == 128.0
    dynamic = LossScale("dynamic", 1024.0)
    dynamic.after(finite=False)
    assert dynamic.at(0.5) == 512.0
    for _ in range(2000):
        dynamic.after(finite=True)
    assert dynamic.at(0.5) == 1024.0
    static = LossScale("static", 8.0)
    static.after(finite=False)
    assert static.at(0.0) == 8.0


def test_averages_of_batch_norm_stay_where_a_gradient_is_not_finite() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    before = copy.deepcopy(model.state_dict())
    images, targets, labels = batch(8)
    images[3, 0, 0, 0] = torch.inf
    updater = Updater(dict(model.named_parameters()), OptimiserOptions("momentum"))
    outcome = run_step(
        model, updater, [(images, targets, labels)], window_size=8, step=0, rate=0.1, scale=1.0, precision=FP32,
        buffers=list(model.buffers()),
    )  # fmt: skip
    assert not outcome.finite
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw", "rmsprop", "rmsprop_tf", "lars"])
@pytest.mark.parametrize("half_type", ["bfloat16", "float16"])
def test_weights_in_sixteen_bits_stay_finite(name: str, half_type: str) -> None:
    precision = Precision("16.16", "cpu", half_type)
    model = network("none").to(precision.weights)
    images, targets, labels = batch(16)
    updater = Updater(dict(model.named_parameters()), OptimiserOptions(name))
    parts = [(images.to(precision.input), targets, labels)]
    for _ in range(5):
        assert run_step(model, updater, parts, window_size=16, step=0, rate=0.01, scale=1.0, precision=precision).finite
    assert all(value.isfinite().all() for value in model.state_dict().values())


@pytest.mark.parametrize("half_type", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["16.32", "16.16"])
def test_sixteen_bits_learn(name: str, half_type: str) -> None:
    precision = Precision(name, "cpu", half_type)
    model = network("none").to(precision.weights)
    images, targets, labels = batch(16)
    updater = Updater(dict(model.named_parameters()), OptimiserOptions("momentum"))
    parts = [(images.to(precision.input), targets, labels)]
    losses = [
        float(run_step(model, updater, parts, window_size=16, step=0, rate=0.2, scale=1.0, precision=precision).loss)
        for _ in range(60)
    ]
    assert losses[-1] < 0.8 * losses[0]
    assert next(model.parameters()).dtype == (torch.float32 if name == "16.32" else getattr(torch, half_type))


def test_smoothed_targets_are_torchs() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(7, 5), torch.tensor([0, 1, 2, 3, 4, 0, 1])
    ours = functional.cross_entropy(logits, targets_of(labels, 5, 0.1))
    assert float(ours) == pytest.approx(float(functional.cross_entropy(logits, labels, label_smoothing=0.1)), abs=1e-6)


@pytest.mark.parametrize(
    ("half_type", "features", "is_told"),
    [
        ("bfloat16", {"amx_bf16"}, False),
        ("bfloat16", {"avx2", "avx512_fp16"}, True),
        ("float16", {"avx512_fp16"}, False),
        ("float16", {"amx_bf16"}, True),
    ],
)
def test_c44_emulated_halves_are_told(
    half_type: str, features: set[str], is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "processor_features", lambda: features)
    monkeypatch.setattr(step.torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(step.torch.ops.mkldnn, "_is_mkldnn_fp16_supported", lambda: True)
    said: list[str] = []
    logged(said, step.warn_if_emulated, Precision("16.32", "cpu", half_type))
    assert bool(said) == is_told
    assert all(f"--precision 16.32: no native {half_type} on this processor" in line for line in said)
    for other in (Precision("32.32", "cpu", "bfloat16"), Precision("16.32", "cuda", half_type)):
        logged(said, step.warn_if_emulated, other)
    assert len(said) == is_told


@long
def test_c44_a_processor_without_bf16(tmp_path: Path) -> None:
    """oneDNN is told to use AVX2 alone."""
    config = {"steps": 1, "precision": "16.32"}
    code = f"import sys; from tests.training import *; trained(Path(sys.argv[1]), **{config})"
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    done = subprocess.run([sys.executable, "-c", f"import logging; logging.basicConfig(); {code}", tmp_path],
                          env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "no native bfloat16 on this processor (AMX or AVX512-BF16)" in done.stderr
