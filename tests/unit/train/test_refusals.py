"""Wrong uses of bulkinfer train and validate: one sentence each, exit code 2, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.commands import validate

from tests.training import command, one_thread, write_digits

DIGITS = ["--dataset", "digits", "--data_dir", "data", "--model", "cifar_resnet8", "--image_size", 8, "--micro_batch_size", 8]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refusals")
    write_digits(folder / "data")
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--model", "resnet51"], "no network is called 'resnet51'; nearest are"),
        (["--dataset", "mnis"], "unknown data set 'mnis': known data sets are cifar10,"),
        (["--dataset", "mnist", "--data_dir", "empty", "--nodownload"], "empty"),
        (
            ["--data_dir", "absent", "--dataset", "cifar10", "--nodownload"],
            "does not exist: bulkinfer get_dataset cifar10 --data_dir ",
        ),
        (["--data_dir", "empty"], "holds none of the known data sets"),
        ([*DIGITS, "--data_dir", "absent"], "does not exist: give the folder of the data set"),
        ([*DIGITS, "--global_batch_size", 12], "do not make --global_batch_size 12"),
        ([*DIGITS, "--micro_batch_size", 1], "batch norm needs --micro_batch_size 2 or more"),
        ([*DIGITS, "--micro_batch_size", 5, "--mixup_alpha", 0.2], "--micro_batch_size 5 must be even"),
        ([*DIGITS, "--epochs", 2, "--steps", 3], "--epochs and --steps both set the length"),
        ([*DIGITS, "--warmup_epochs", 2, "--epochs", 2], "--warmup_epochs 2 is the whole run or more"),
        (
            [*DIGITS, "--config", "digits_resnet8", "--epochs", 1],
            "1 of --config digits_resnet8 is the whole run",
        ),
        ([*DIGITS, "--lr_drops", "30", "60"], "numbers from 0 to 1"),
        ([*DIGITS, "--crop_area", "1,0.2", "--augment", "resized_crop"], "--crop_area 1 0.2"),
        ([*DIGITS, "--crop_area", "some", "--augment", "resized_crop"], "--crop_area some"),
        ([*DIGITS, "--base_learning_rate", "fast"], "--base_learning_rate 'fast' is not a number"),
        ([*DIGITS, "--device", "cuda:99"], "--device cuda:99"),
        ([*DIGITS, "--device", "abacus"], "--device 'abacus' is not known"),
        ([*DIGITS, "--device", "mps"], "--device mps: give cpu or cuda"),
        *(([*DIGITS, "--base_learning_rate", power], "2 to that power cannot be a rate") for power in ("5000", "-5000", "nan")),
        ([*DIGITS, "--epochs", "1e308"], "--epochs 1e+308 is more than 1e+06"),
        ([*DIGITS, "--steps", 10**20], "--steps 1e+20 is more than"),
        ([*DIGITS, "--lr_decay", "1e308"], "--lr_decay 1e+308 is more than 1"),
        ([*DIGITS, "--lr_decay_epochs", 0], "--lr_decay_epochs 0: it must be above 0"),
        ([*DIGITS, "--checkpoints_per_epoch", "1e308"], "is more than 1e+06"),
        ([*DIGITS, "--logs_per_epoch", "1e308"], "is more than 1e+06"),
        ([*DIGITS, "--validation_epochs", "1e-300"], "must be 0, or at least a millionth"),
        ([*DIGITS, "--loss_scaling", "1e300"], "--loss_scaling 1e+300 is more than"),
        ([*DIGITS, "--momentum", 2], "--momentum 2: it must be below 1"),
        ([*DIGITS, "--norm_eps", "1e300"], "--norm_eps 1e+300 is more than 1"),
        ([*DIGITS, "--momentum", 0], "give --optimizer sgd"),
        ([*DIGITS, "--loss_scaling_mode", "ramp"], "--loss_scaling: --loss_scaling_mode ramp doubles from 1 up to it"),
        ([*DIGITS, "--loss_scaling_mode", "ramp", "--loss_scaling", 100], "--loss_scaling 100: --loss_scaling_mode ramp"),
        ([*DIGITS, "--loss_scaling_mode", "ramp", "--loss_scaling", 0.5], "give a power of two, such as 1024"),
        ([*DIGITS, "--l2", "-0.1"], "--l2 -0.1 is below 0"),
        ([*DIGITS, "--seed", 2**63], f"--seed {2**63} is above"),
        ([*DIGITS, "--half_type", "float16"], "--half_type float16 belongs to --precision 16.32 or 16.16"),
        ([*DIGITS, "--stochastic_rounding"], "--stochastic_rounding belongs to --precision 16.16"),
        (
            [*DIGITS, "--stochastic_rounding", "off", "--precision", "16.32"],
            "--stochastic_rounding belongs to --precision 16.16",
        ),
        ([*DIGITS, "--dataset_percentage", 0], "leaves nothing to train on"),
        ([*DIGITS, "--train_only", "nothing"], "matches no parameter"),
        ([*DIGITS, "--recompute", "layer9"], "matches no module"),
        ([*DIGITS, "--init_checkpoint", "absent"], "holds no checkpoint that can be read"),
        ([*DIGITS, "--expand_ratio", 4], "--expand_ratio does not fit cifar_resnet8"),
        (["--config", "fashion"], "nearest are fashion_resnet20"),
        (["--optimizer", "best"], "optimizer"),
        (["--micro_batch_size", "1.5"], "not a whole number"),
        ([*DIGITS, "--norm_span", 2], "--norm_span 2 does not divide the number of replicas, 1: give --replicas 2"),
        ([*DIGITS, "--norm_span", 2, "--norm", "group"], "--norm_span 2 belongs to --norm batch"),
        ([*DIGITS, "--norm_span", 2, "--compile"], "--norm_span 2 cannot be combined with --compile"),
        ([*DIGITS, "--shards", 1, "--pipeline_splits", "layer2.0"], "--shards 1 leaves the network whole"),
        *(
            ([*DIGITS, "--pipeline_splits", "layer2.0", *beside], "cannot be combined with --shards and --pipeline_splits")
            for beside in (
                ["--compile"],
                ["--shard_optimizer"],
                ["--train_only", "fc"],
                ["--train_from", "fc"],
                ["--ema", 0.9],
                ["--on_bad_picture", "skip"],
            )
        ),
    ],
)
def test_wrong_uses(
    words: list[object], reason: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    assert command(*words) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if ": note: " not in line]
    assert len(told) == 1, told
    assert told[0].startswith("bulkinfer train: ")
    assert reason in told[0]
    assert not (place / "logs").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "give a checkpoint or a run"),
        (["absent"], "absent holds no checkpoint"),
        (["absent", "--model", "resnet18"], "leave out --model"),
        (["absent", "--image_size", "64"], "--image_size is for the accuracy of a network that was not trained here"),
        (["--model", "resnet18", "--generated_data", "--weights", "random"], "--weights is for the accuracy"),
        (["--model", "cifar_resnet8", "--weights", "w.pth", "--data_dir", "data"], "is not in get_model --list"),
        (["--model", "efficientnet_lite0", "--data_dir", "data"], "are not those of digits: give --data_dir D"),
        (["--generated_data"], "give a checkpoint or a run, or --model NAME"),
    ],
)
def test_wrong_uses_of_validate(
    words: list[str], reason: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with one_thread():
        assert validate.main(words) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("bulkinfer validate: ")
    assert reason in told
