"""train/launch.py and setup.py: odd ends of epochs, what is refused at the start, what a run leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bulkinfer.errors import UsageError
from bulkinfer.train import launch, loop, setup
from bulkinfer.train.data.opening import augmentation_of, model_of, with_data_found
from bulkinfer.train.network.freezing import freeze
from bulkinfer.train.network.networks import NetworkOptions, build
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.plan import Batches
from bulkinfer.train.setup import check_batches, check_span, device_of, epochs_of
from torch import nn

from tests.training import assert_same_weights, checkpoints, config_of, one_thread, table, trained, weights, write_digits


@pytest.mark.parametrize("mixing", [{"mixup_alpha": 0.2}, {"cutmix_alpha": 1.0}, {}])
def test_b55_a_last_batch_of_one(mixing: dict[str, Any], tmp_path: Path) -> None:
    """13 pictures in fours leave one; the network ends in maps of 1 x 1, where batch norm has no variance over one picture."""
    write_digits(tmp_path / "data", 13)
    run = trained(
        tmp_path, micro_batch_size=4, image_size=4, steps=0, epochs=2.0, validation="during", logs_per_epoch=9, **mixing
    )
    assert [row for (row,) in table(run, "training.csv", "step")] == ["1", "2", "3", "4", "5", "6"]
    assert table(run, "validation.csv", "count") == [["360"], ["360"]]
    losses = [float(loss) for (loss,) in table(run, "training.csv", "loss")]
    assert max(losses) < 10


def test_b55_what_cannot_work_is_refused_at_the_start(tmp_path: Path) -> None:
    write_digits(tmp_path / "data", 13)
    for options, reason in (
        ({"micro_batch_size": 5, "cutmix_alpha": 1.0}, "--micro_batch_size 5 must be even"),
        ({"micro_batch_size": 1}, "batch norm needs --micro_batch_size 2 or more"),
    ):
        with pytest.raises(UsageError, match=reason), one_thread():
            launch.train(config_of(tmp_path, **options))
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("batches", "span", "num_samples", "reason"),
    [
        (Batches(4, 1, 2), 1, 11, "has 3 pictures for 2 replicas, and batch norm needs 2 each"),
        (Batches(4, 1, 2), 1, 12, ""),
        (Batches(1, 4, 2), 2, 11, ""),
        (Batches(2, 1, 4), 2, 11, "has 3 pictures for 2 groups of 2 replicas, and batch norm needs 2 each"),
    ],
)
def test_batch_norm_needs_two_pictures(batches: Batches, span: int, num_samples: int, reason: str) -> None:
    config = TrainConfig(norm_span=span)
    epochs = epochs_of(config, batches, num_samples)
    expected: AbstractContextManager[object] = pytest.raises(UsageError, match=reason) if reason else nullcontext()
    with expected:
        check_batches(config, batches, epochs, nn.BatchNorm2d(3), 8)
    if span == 1:
        check_batches(config, batches, epochs, nn.BatchNorm2d(3).eval(), 8)  # that is frozen
        check_batches(config, batches, epochs, nn.GroupNorm(1, 3), 8)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_batch_norm_of_single_values_is_refused(channels: int) -> None:
    """Of one picture of 4 x 4 pixels the last norms get maps of 1 x 1; frozen ones take their averages in place of them."""
    network = build(NetworkOptions("cifar_resnet8", 10, input_channels=channels))
    config, batches = TrainConfig(like="tf1"), Batches(1, 1, 1)
    epochs = epochs_of(config, batches, 11)
    check_batches(config, batches, epochs, network, 8)
    with pytest.raises(UsageError, match=r"at 4 x 4 pixels it gets a single value of a picture$"):
        check_batches(config, batches, epochs, network, 4)
    freeze(network, train_only=r"conv|layer1.*bn")
    check_batches(config, batches, epochs, network, 4)


def test_a_span_needs_batch_norm_that_is_trained(tmp_path: Path) -> None:
    frozen = config_of(tmp_path, replicas=2, norm_span=2, train_only="fc", dry_run=True)
    with pytest.raises(UsageError, match=r"^--norm_span 2: the network has no batch norm that is trained: leave it out$"):
        launch.train(frozen)
    launch.train(replace(frozen, train_only="bn|fc"))


def test_a_plan_takes_no_memory_for_a_batch(tmp_path: Path) -> None:
    planned = launch.train(config_of(tmp_path, micro_batch_size=10**12, dry_run=True))  # pictures that no machine could hold
    assert planned.folder is None


@pytest.mark.parametrize(
    ("options", "batches", "reason"),
    [
        (
            {"shards": 4},
            Batches(2, 3, 1),
            "--pipeline_schedule gpipe needs 4 micro batches in an update, one for each stage, and ",
        ),
        (
            {"shards": 2},
            Batches(8, 2, 1),
            "13 training pictures are less than the 2 micro batches of 8 that stages need: give a ",
        ),
    ],
)
def test_micro_batches_that_are_too_few_for_stages(options: dict[str, Any], batches: Batches, reason: str) -> None:
    with pytest.raises(UsageError) as error:
        epochs_of(TrainConfig(**options), batches, 13)
    assert str(error.value).startswith(reason)
    assert epochs_of(TrainConfig(**options, pipeline_schedule="sequential"), batches, 13).steps_per_pass


@pytest.mark.parametrize(
    ("span", "replicas", "has_batch_norm", "reason"),
    [
        (3, 4, True, "--norm_span 3 does not divide the number of replicas, 4: give 2 or 4, or leave it out"),
        (2, 1, True, "--norm_span 2 does not divide the number of replicas, 1: give --replicas 2, or leave it out"),
        (2, 2, False, "--norm_span 2: the network has no batch norm that is trained: leave it out"),
    ],
)
def test_spans_of_batch_norm_that_do_not_fit(span: int, replicas: int, has_batch_norm: bool, reason: str) -> None:
    with pytest.raises(UsageError) as error:
        check_span(span, replicas, has_batch_norm=has_batch_norm)
    assert str(error.value) == reason


def test_what_is_kept(tmp_path: Path) -> None:
    """Every other epoch, none before the third; the end always; the best of those that were validated beside the newest."""
    options: dict[str, Any] = {"steps": 0, "epochs": 8.4, "checkpoints_per_epoch": 0.5, "first_checkpoint_epoch": 2.0}
    run = trained(tmp_path, keep_last=0, **options)
    assert checkpoints(run) == [f"step-{step:08d}" for step in (20, 30, 40, 42)]
    run = trained(tmp_path, keep_last=1, validation="during", lr=0.05, checkpoints_per_epoch=1.0, steps=0, epochs=4.0)
    rows = [(float(accuracy), int(step)) for step, accuracy in table(run, "validation.csv", "step", "accuracy")]
    best = max(rows, key=lambda row: (row[0], -row[1]))[1]
    assert checkpoints(run) == sorted({f"step-{best:08d}", "step-00000020"})


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"validation": "during", "validation_epochs": 1.0}, ["5", "10", "12"]),
        ({"validation": "during", "validation_epochs": 0.0}, ["12"]),
        ({"validation": "during", "validation_epochs": 2.0}, ["10", "12"]),
        ({"validation": "after"}, ["12"]),
        ({"validation": "none"}, []),
    ],
)
def test_when_a_run_validates(options: dict[str, Any], steps: list[str], tmp_path: Path) -> None:
    run = trained(tmp_path, **options)
    assert [step for (step,) in table(run, "validation.csv", "step")] == steps


@pytest.mark.parametrize(
    ("times", "steps"), [(0, ["12"]), (1, ["5", "10", "12"]), (0.5, ["10", "12"]), (2.5, ["2", "4", "6", "8", "10", "12"])]
)
def test_when_a_run_logs(times: float, steps: list[str], tmp_path: Path) -> None:
    run = trained(tmp_path, logs_per_epoch=times)
    assert [step for (step,) in table(run, "training.csv", "step")] == steps


def test_options_of_other_trainers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of 3 updates; rows every 5; the order of the file; a folder for temporary files; no checkpoints."""
    monkeypatch.setattr(launch.tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    seen: list[Any] = []
    real = loop.order
    monkeypatch.setattr(loop, "order", lambda *args, **words: seen.append(real(*args, **words)) or seen[-1])
    options: dict[str, Any] = {"steps": 0, "epochs": 4.0, "updates_per_epoch": 3, "log_updates": 5, "shuffle": False,
                               "keep_run": False, "remove_checkpoints": True, "validation": "during"}  # fmt: skip
    with one_thread():
        result = launch.train(config_of(tmp_path, **options))
    assert result.folder is not None
    assert result.folder.parent.parent == tmp_path / "temporary"
    assert (result.updates, result.epochs, result.checkpoint) == (12, 4.0, None)
    assert table(result.folder, "training.csv", "step", "epoch") == [["5", "1.66666667"], ["10", "3.33333333"], ["12", "4"]]
    assert [step for (step,) in table(result.folder, "validation.csv", "step")] == ["3", "6", "9", "12"]
    assert checkpoints(result.folder) == []
    assert not (tmp_path / "logs").exists()
    assert [list(order) for order in seen] == [list(range(40))] * 3


def test_batch_norm_over_one_picture_follows_a_trainer(tmp_path: Path) -> None:
    run = trained(tmp_path, micro_batch_size=1, like="tf2", image_size=16)
    assert len(table(run, "training.csv", "step")) > 0
    launch.train(config_of(tmp_path, micro_batch_size=1, image_size=16, steps=14, log_path="logs", resume=str(run)))
    assert checkpoints(run)[-1] == "step-00000014"
    with pytest.raises(UsageError, match="at 4 x 4 pixels it gets a single value of a picture"):
        launch.train(config_of(tmp_path, micro_batch_size=1, like="tf2", image_size=4))


def test_seeds_decide_everything(tmp_path: Path) -> None:
    one, again, other = (trained(tmp_path, seed=seed, deterministic=seed == 1) for seed in (1, 1, 2))
    assert all(torch.equal(value, weights(again)[name]) for name, value in weights(one).items())
    assert not torch.equal(weights(one)["fc.weight"], weights(other)["fc.weight"])


def test_the_compiled_network_makes_the_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[torch.Size] = []

    def compiled(network: torch.nn.Module, *, dynamic: bool) -> Any:
        return lambda images: calls.append(images.shape) or network(images)

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(setup.shutil, "which", lambda name: f"/bin/{name}")
    plain, found = (trained(tmp_path / str(flag), compile=flag) for flag in (False, True))
    assert_same_weights(plain, found)
    assert len(calls) == 12
    with pytest.raises(UsageError, match="--compile and --recompute both decide"):
        launch.train(config_of(tmp_path, compile=True, recompute=("blocks",)))
    monkeypatch.setattr(setup.shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match=r"--compile needs a C\+\+ compiler, and g\+\+ was not found"):
        launch.train(config_of(tmp_path, compile=True))


def test_beginning_with_the_weights_of_a_run(tmp_path: Path) -> None:
    first = trained(tmp_path)
    second = trained(tmp_path, init_checkpoint=str(first), train_only=r"^fc\.", steps=2)
    before, after = weights(first), weights(second)
    assert torch.equal(before["layer1.0.conv1.weight"], after["layer1.0.conv1.weight"])
    assert not torch.equal(before["fc.weight"], after["fc.weight"])
    with (
        pytest.raises(
            UsageError,
            match=r"does not fit this network: layer1.1.conv1.weight is missing there and",
        ),
        one_thread(),
    ):
        launch.train(config_of(tmp_path, init_checkpoint=str(first), model="cifar_resnet14"))


@pytest.mark.parametrize(
    ("options", "size", "found"),
    [
        ({}, 32, (True, 4, None)),
        ({"dataset": "digits"}, 32, (False, 4, None)),
        ({"dataset": "digits", "augment": "flip"}, 32, (True, 0, None)),
        ({"augment": "none"}, 224, (False, 0, None)),
        ({}, 224, (True, 0, (0.08, 1.0))),
        ({"augment": "flip_crop"}, 224, (True, 28, None)),
        ({"augment": "resized_crop", "crop_area": ("0.5", "0.9")}, 32, (True, 0, (0.5, 0.9))),
    ],
)
def test_what_augment_comes_to(options: dict[str, Any], size: int, found: tuple[Any, ...]) -> None:
    augmentation = augmentation_of(TrainConfig(**{"dataset": "cifar10", **options}), size)
    assert (augmentation.flip, augmentation.pad, augmentation.crop_area) == found


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "cifar_resnet20"),
        ({"model_size": "x50", "dataset": "folder"}, "resnext50"),
        ({"model": "resnet", "model_size": "14", "dataset": "cifar10"}, "cifar_resnet14"),
        ({"model": "resnet", "model_size": "14", "dataset": "folder"}, "resnet14"),
        ({"model": "EfficientNet", "model_size": "B0", "dataset": "folder"}, "efficientnet_b0"),
    ],
)
def test_networks_as_other_trainers_spell_them(options: dict[str, Any], name: str) -> None:
    assert model_of(TrainConfig(**options)) == name


def test_the_data_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_digits(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATA_DIR", "data")
    for config in (TrainConfig(), TrainConfig(data_dir="data"), TrainConfig(data_dir="data", dataset="Digits")):
        found = with_data_found(config)
        assert (found.dataset, found.data_dir) == ("digits", str(tmp_path / "data"))
    monkeypatch.delenv("DATA_DIR")
    found = with_data_found(TrainConfig(download=False, dataset="CIFAR-10"))
    assert (found.dataset, found.data_dir) == ("cifar10", str(tmp_path / "data"))


def test_devices() -> None:
    assert device_of(TrainConfig(device="cpu")).type == "cpu"
    with pytest.raises(UsageError, match="is not known: give cpu, cuda or auto"):
        device_of(TrainConfig(device="abacus"))


def test_the_result_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(logging.getLogger("bulkinfer"), "handlers", [logging.NullHandler()])
    config = config_of(tmp_path, validation="during", checkpoints_per_epoch=1.0, keep_last=0)
    with one_thread():
        result = launch.train(config)
    assert capsys.readouterr() == ("", ""), "the library logs, and prints nothing"
    assert result.folder is not None
    rows = {int(step): float(accuracy) for step, accuracy in table(result.folder, "validation.csv", "step", "accuracy")}
    assert list(rows) == [5, 10, 12]
    assert (result.updates, result.epochs, result.exit_code) == (12, 2.4, 0)
    assert result.best_accuracy == pytest.approx(max(rows.values()))
    assert result.last_accuracy == pytest.approx(rows[12])
    assert result.checkpoint == result.folder / "checkpoints" / "step-00000012"
    assert result.checkpoint.is_dir()


def test_the_result_of_a_plan(tmp_path: Path) -> None:
    with one_thread():
        result = launch.train(config_of(tmp_path, dry_run=True))
    assert result == launch.TrainResult(None, 0, 0.0, None, None, None)
    assert not (tmp_path / "logs").exists()


def test_a_caller_can_end_a_run_early(tmp_path: Path) -> None:
    asked: list[int] = []

    def stop() -> int:
        asked.append(1)
        return 7 if len(asked) == 3 else 0

    @contextmanager
    def stopping() -> Iterator[Callable[[], int]]:
        yield stop

    with one_thread():
        result = launch.train(config_of(tmp_path), stopping=stopping)
        assert (result.updates, result.exit_code) == (3, 7)
        assert result.folder is not None
        assert checkpoints(result.folder) == ["step-00000003"]
        again = launch.train(config_of(tmp_path, resume=str(result.folder), log_path="logs"))
        nothing = launch.train(config_of(tmp_path, resume=str(result.folder), log_path="logs"))
    assert (again.updates, again.exit_code, again.folder) == (12, 0, result.folder)
    assert nothing == again
    assert_same_weights(result.folder, trained(tmp_path))
