"""train/compat/validation_words.py: validation in other trainers' words, with train's sets, and train without training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bulkinfer.commands import train, validate
from bulkinfer.train.validation import validate as validation
from bulkinfer.train.validation.options import ValidateConfig


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ValidateConfig]:
    """What would be validated."""
    found: list[ValidateConfig] = []
    monkeypatch.setattr(validation, "validate", found.append)
    return found


def run(command: Callable[[list[str]], int], words: str) -> int:
    return command(words.split())


def test_their_validation_measures_speed(asked: list[ValidateConfig]) -> None:
    words = "--model efficientnet --model-size B0 --batch-size 8 --generated-data --repeat 10 --batch-norm --dataset imagenet"
    assert run(validate.main, words) == 0
    assert asked == [ValidateConfig(model="efficientnet", model_size="B0", valid_batch_size=8, generated_data=True,
                                    dataset="imagenet")]  # fmt: skip


@pytest.mark.parametrize("flag", ["--restore-path", "--checkpoint-path", "--checkpoint-input-path", "--checkpoint-input-dir"])
def test_their_names_of_a_run(flag: str, asked: list[ValidateConfig], capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(validate.main, f"{flag} RUN --precision half --micro-batch-size 4 --num-ipus 2 --optimiser momentum --groups 4")
        == 0
    )
    assert asked == [ValidateConfig(path="RUN", precision="16.16", valid_batch_size=4)]
    printed = capsys.readouterr().out
    assert "note: --num-ipus: a setting of other hardware" in printed
    assert "note: --optimiser: of no effect in a validation" in printed
    assert "note: --groups: a checkpoint names its network and its data" in printed


def test_a_network_that_validate_does_not_build_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(validate.main, "--model resnet --model-size 18 --group-norm") == 2
    assert "--group-norm: validate builds a network as it is by default" in capsys.readouterr().err


def test_options_of_a_set(tmp_path: Path, asked: list[ValidateConfig]) -> None:
    sets = tmp_path / "sets.yml"
    sets.write_text("mine: {model: cifar_resnet8, dataset: digits, lr: 0.1, micro_batch_size: 16, precision: '16.32'}")
    assert run(validate.main, f"--config mine --config-path {sets} --restore-path RUN") == 0
    assert run(validate.main, f"--config mine --config-path {sets} --weights random --precision 32.32") == 0
    where = {"config": "mine", "config_path": str(sets), "valid_batch_size": 16}
    assert asked == [
        ValidateConfig(path="RUN", precision="16.32", **where),
        ValidateConfig(model="cifar_resnet8", dataset="digits", weights="random", **where),
    ]


def test_without_training_a_run_is_validated(asked: list[ValidateConfig], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(train.main, "--training False --checkpoint-input-dir RUN --precision half --num-epochs 5 --model resnet50") == 0
    assert asked == [ValidateConfig(path="RUN", precision="16.16")]
    assert "note: --num-epochs, --model: of no effect in a validation" in capsys.readouterr().out


def test_without_training_and_without_a_run_the_weights_are_random(asked: list[ValidateConfig]) -> None:
    assert run(train.main, "--training=False --dataset cifar10 --micro-batch-size 8") == 0
    assert run(train.main, "--no-training --model-name resnet50 --dataset imagenet") == 0
    assert run(train.main, "--notraining --like tf2") == 0
    assert asked == [
        ValidateConfig(model="cifar_resnet20", dataset="cifar10", weights="random", valid_batch_size=8),
        ValidateConfig(model="resnet50", dataset="imagenet", weights="random"),
        ValidateConfig(model="cifar_resnet8", weights="random", valid_batch_size=1, precision="16.16"),
    ]


def test_without_training_and_validation_there_is_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(train.main, "--training False --validation False") == 2
    assert "nothing to do: training and validation are both switched off" in capsys.readouterr().err


def test_help_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(train.main, "--training False --help") == 0
    assert run(validate.main, "--restore-path RUN --help") == 0
    assert capsys.readouterr().out.count("usage: bulkinfer validate") == 2
