"""train/averages/: the average of several checkpoints, its batch norm, its validation, and what it cannot be used for."""

from __future__ import annotations

import copy
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bulkinfer.commands import average as command_average
from bulkinfer.commands import validate
from bulkinfer.config import GetModelConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export import from_checkpoint
from bulkinfer.train.averages.average import average
from bulkinfer.train.averages.norms import set_to_means
from bulkinfer.train.averages.options import AverageConfig
from bulkinfer.train.checkpoints import checkpoint
from bulkinfer.train.checkpoints.state import options_of_state
from bulkinfer.train.data.augment import normalise
from bulkinfer.train.data.opening import open_data
from bulkinfer.train.data.samples import Work
from bulkinfer.train.network.freezing import moving_norms
from bulkinfer.train.network.networks import NetworkOptions, build
from bulkinfer.train.options import TrainConfig
from safetensors.torch import load_file

from tests.training import checkpoints, command, config_of, one_thread, table, trained


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six checkpoints, two updates apart."""
    return trained(tmp_path_factory.mktemp("run"), checkpoints_per_epoch=2.5, keep_last=0, validation="after", logs_per_epoch=0)


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(made, tmp_path / "logs" / made.name))


def averaged(run: Path, **options: Any) -> Path:
    with one_thread():
        return average(AverageConfig(run=str(run), **options))


def tensors(folder: Path) -> dict[str, np.ndarray]:
    return {name: value.float().numpy() for name, value in load_file(folder / "weights.safetensors").items()}


def of_steps(run: Path, *steps: int) -> list[dict[str, np.ndarray]]:
    """The weights of some checkpoints, in float64."""
    folders = [run / "checkpoints" / f"step-{step:08d}" for step in steps]
    return [{name: value.astype(np.float64) for name, value in tensors(folder).items()} for folder in folders]


def test_the_mean_of_four_is_that_of_numpy(run: Path) -> None:
    folder = averaged(run, last=4, keep_norms=True)
    assert folder == run / "checkpoints" / "average-00000012-4-mean"
    assert sorted(path.name for path in folder.iterdir()) == ["state.json", "weights.safetensors"]
    there, found = of_steps(run, 6, 8, 10, 12), tensors(folder)
    for name, value in found.items():
        expected = there[-1][name] if name.endswith("num_batches_tracked") else np.mean([each[name] for each in there], axis=0)
        assert np.abs(value - expected).max() <= 1e-7 * max(1.0, np.abs(expected).max()), name
    assert np.abs(found["fc.weight"] - there[-1]["fc.weight"]).max() > 1e-4


def test_exponential_begins_with_the_oldest(run: Path) -> None:
    folder = averaged(run, last=3, mode="exponential", decay=0.3, discard_last=1, keep_norms=True)
    assert folder.name == "average-00000010-3-exponential"
    expected, *others = of_steps(run, 6, 8, 10)
    for each in others:
        expected = {name: 0.3 * expected[name] + 0.7 * each[name] for name in each}
    for name, value in tensors(folder).items():
        if not name.endswith("num_batches_tracked"):
            assert np.abs(value - expected[name]).max() <= 1e-6 * max(1.0, np.abs(expected[name]).max()), name
    facts = checkpoint.read(folder).state["average"]
    assert facts == {"mode": "exponential", "decay": 0.3, "of": ["step-00000006", "step-00000008", "step-00000010"]}


def test_batch_norm_gets_the_means_of_training_pictures(run: Path) -> None:
    """40 pictures in batches of 8: the mean over the batches is the mean over all."""
    folder = averaged(run)
    found = checkpoint.read(folder)
    assert found.path.name == "average-00000012-6-mean"
    network = build(NetworkOptions(**found.state["network"]))
    network.load_state_dict(found.weights)
    options = TrainConfig(**options_of_state(found.state))
    data = open_data(replace(options, augment="none"))
    ((_, images_NHWC),) = data.train.batches([Work(0, None, np.arange(40))])
    pictures = normalise(images_NHWC, torch.tensor(data.recipe.mean), torch.tensor(data.recipe.std), torch.float32)
    (first, norm) = next(
        (a, b)
        for a, b in zip([*network.modules()], [*network.modules()][1:], strict=False)
        if isinstance(b, torch.nn.BatchNorm2d)
    )
    assert isinstance(norm, torch.nn.BatchNorm2d)
    with torch.inference_mode():
        maps = first(pictures)
    assert norm.running_mean is not None
    assert norm.num_batches_tracked is not None
    assert torch.allclose(norm.running_mean, maps.mean((0, 2, 3)), atol=1e-5)
    assert int(norm.num_batches_tracked) == 5
    as_is = checkpoint.read(averaged(run, keep_norms=True))
    name = next(name for name in as_is.weights if name.endswith("running_mean"))
    assert not torch.allclose(as_is.weights[name], found.weights[name], atol=1e-4)


def test_means_over_batches_are_those_of_update_bn() -> None:
    torch.manual_seed(0)
    batches = [torch.randn(size, 3, 8, 8) for size in (8, 8, 5)]
    network = build(NetworkOptions("cifar_resnet8", 10))
    other = copy.deepcopy(network)
    set_to_means(network, list(moving_norms(network)), batches)
    torch.optim.swa_utils.update_bn(batches, other)
    expected = other.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in network.state_dict().items())


def test_frozen_norms_stay_as_they_were_trained(run: Path, tmp_path: Path) -> None:
    tuned = trained(tmp_path / "tuned", init_checkpoint=str(run), train_from="layer3", keep_last=0, checkpoints_per_epoch=2.5)
    (last,), found = of_steps(tuned, 12), tensors(averaged(tuned))
    means = [name for name in found if name.endswith("running_mean")]
    changed = [name for name in means if not np.array_equal(found[name], last[name])]
    assert changed == [name for name in means if name.startswith("layer3")]


def test_few_batches_and_a_network_without_batch_norm(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    averaged(run, batches=2)
    assert "batch norm: averages from 2 batches of 8 training pictures without augmentation" in capsys.readouterr().out
    other = trained(tmp_path / "group", norm="group", norm_groups=4, steps=3, precision="16.16", keep_last=0)
    capsys.readouterr()
    folder = averaged(other)
    assert "batch norm" not in capsys.readouterr().out
    assert {value.dtype for value in load_file(folder / "weights.safetensors").values()} == {torch.float32}


def test_it_is_validated_and_exported_like_a_checkpoint(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with one_thread():
        assert command_average.main([str(run), "--last", "2"]) == 0
    name = "average-00000012-2-mean"
    shown = capsys.readouterr().out
    assert f"{name}: top-1 " in shown
    rows = table(run, "validation.csv", "name", "weights", "step", "count")
    assert rows == [["step-00000012", "raw", "12", "360"], [name, "average", "12", "360"]]
    accuracy = table(run, "validation.csv", "accuracy", "loss")[1]
    with one_thread():
        assert validate.main([str(run), "--again"]) == 0
    again = {row[0]: row[1:] for row in table(run, "validation.csv", "name", "accuracy", "loss")}
    assert len(again) == 7
    assert again[name] == pytest.approx(accuracy)
    folder = run / "checkpoints" / name
    network = from_checkpoint.find(GetModelConfig(checkpoint=str(folder)))
    assert network.checkpoint.path == folder
    assert from_checkpoint.find(GetModelConfig(checkpoint=str(run))).checkpoint.path.name == "step-00000012"


def test_it_continues_no_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = averaged(run, keep_norms=True)
    capsys.readouterr()
    assert command("--resume", folder) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.endswith(f"a new run begins with its weights by --init_checkpoint {folder}\n")
    assert command("--resume", run, "--steps", 13) == 0
    assert checkpoints(run)[-1] == "step-00000013"
    assert command("--init_checkpoint", folder, *new_run(run)) == 0


def new_run(run: Path) -> list[str]:
    state = checkpoint.find(run).state["config"]
    names = ("model", "image_size", "dataset", "data_dir", "log_path", "micro_batch_size", "steps", "validation")
    return [f"--{name}={state[name]}" for name in names]


def test_at_the_end_of_a_run(made: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"checkpoints_per_epoch": 2.5, "keep_last": 3, "average_last": 3, "validation": "after"}
    run = trained(tmp_path, average="exponential", average_decay=0.6, **options)
    folder = run / "checkpoints" / "average-00000012-3-exponential"
    expected = averaged(Path(shutil.copytree(made, tmp_path / "made")), last=3, mode="exponential", decay=0.6)
    assert (folder / "weights.safetensors").read_bytes() == (expected / "weights.safetensors").read_bytes()
    assert table(run, "validation.csv", "name")[-1] == [folder.name]
    assert f"{folder.name}: top-1 " in (run / "log.txt").read_text()
    few = trained(tmp_path, average="mean", average_last=9, keep_last=0)
    assert (few / "checkpoints" / "average-00000012-3-mean").exists(), "of those that there are"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"average": "mean"}, "--average mean takes all checkpoints, and --keep_last 2 keeps fewer: give --keep_last 0"),
        (
            {"average": "mean", "average_last": 3},
            "the last 3 checkpoints, and --keep_last 2 keeps fewer: give --keep_last 3",
        ),
        ({"average_decay": 1.0}, "--average_decay 1: it must be above 0 and below 1"),
    ],
)
def test_what_a_run_cannot_average_is_refused_at_the_start(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        config_of(tmp_path, **options)
    config_of(tmp_path, average="mean", average_last=2)
    config_of(tmp_path, average="mean", keep_last=0)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"last": 7}, "--last 7: .* has 6 checkpoints: give a smaller number; training with --keep_last 0 keeps all"),
        ({"last": 3, "discard_last": 4}, "--last 3: .* has 2 checkpoints after --discard_last 4"),
        ({"discard_last": 6}, "--discard_last 6: .* has 0 checkpoints after --discard_last 6"),
        ({"decay": 0.0}, "--decay 0: it must be above 0 and below 1"),
    ],
)
def test_what_there_is_not(words: dict[str, Any], sentence: str, made: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        averaged(made, **words)
    with pytest.raises(UsageError, match="give the folder of a run"):
        AverageConfig()
    with pytest.raises(UsageError, match="nowhere holds no checkpoint: give a run folder below logs/"):
        averaged(Path("nowhere"))


def test_a_damaged_checkpoint_is_named_and_nothing_made(run: Path) -> None:
    broken = run / "checkpoints" / "step-00000010" / "weights.safetensors"
    os.truncate(broken, broken.stat().st_size // 2)
    with pytest.raises(RunError, match=r"step-00000010/weights\.safetensors is damaged"):
        averaged(run)
    assert not list((run / "checkpoints").glob("average-*"))


def test_made_up_pictures_are_not_validated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"dataset": "generated", "steps": 2, "checkpoints_per_epoch": 6250, "keep_last": 0}
    averaged(trained(tmp_path, **words), batches=1)
    assert "not validated: generated pictures have random labels" in capsys.readouterr().out
