"""train/compat/named_configs.py and the command around it: named options, which the command line overrules."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from bulkinfer.commands import train
from bulkinfer.commands.parse import parse
from bulkinfer.commands.train_words import COMMAND
from bulkinfer.errors import UsageError
from bulkinfer.train.compat.named_configs import OWN, words_of
from bulkinfer.train.options import TrainConfig

TEXT = """
mine:
  model: cifar_resnet8
  lr_drops: [0.3, 0.6]
  label-smoothing: 0.1
  epochs: 3
  tensorboard: true
  recompute: blocks
"""


def config_of(home: Path, *words: str, text: str = TEXT) -> TrainConfig:
    """What the command makes of its words."""
    path = home / "my.yml"
    path.write_text(text)
    return parse(COMMAND, TrainConfig, train._as_ours(["--config=mine", f"--config_path={path}", *words])[0])


def test_options_of_a_file(tmp_path: Path) -> None:
    found = config_of(tmp_path)
    assert (found.model, found.lr_drops, found.label_smoothing, found.epochs) == ("cifar_resnet8", ("0.3", "0.6"), 0.1, 3.0)
    assert found.tensorboard
    assert found.recompute == ("blocks",)
    assert found.optimizer == "nesterov", "what it does not name keeps its default"


def test_the_command_line_wins(tmp_path: Path) -> None:
    found = config_of(tmp_path, "--model", "cifar_resnet14", "--steps", "7", "--notensorboard")
    assert (found.model, found.steps, found.epochs, found.tensorboard) == ("cifar_resnet14", 7, 0.0, False)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("  modle: x", "unknown flag: '--modle'; did you mean --model?"),
        ("  epochs: many", "epochs"),
        ("  micro_batch_size: 1.5", "not a whole number"),
        ("  optimizer: best", "should be one of"),
        ("  model: {a: 1}", "model must be a number, a word, true or false, or a list of these"),
        ("  tensorboard: 7", "is a switch"),
        (" : :\n - x", "is not YAML"),
    ],
)
def test_what_is_wrong_is_said(line: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        config_of(tmp_path, text=f"mine:\n  seed: 1\n{line}\n")
    assert reason in str(error.value)


def test_names_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no options called 'digits'; nearest are digits_resnet8"):
        words_of("digits", "")
    with pytest.raises(UsageError, match="No such file"):
        words_of("mine", str(tmp_path / "none.yml"))
    (tmp_path / "list.yml").write_text("- a")
    with pytest.raises(UsageError, match="must hold names with options below them"):
        words_of("mine", str(tmp_path / "list.yml"))


def test_nothing_is_made_of_what_a_file_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not YAML"):
        config_of(tmp_path, text="mine:\n  model: !!python/object/apply:os.getcwd []\n")


@pytest.mark.parametrize("name", yaml.safe_load(OWN.read_text()))
def test_our_own_are_sound(name: str) -> None:
    assert parse(COMMAND, TrainConfig, words_of(name, "")) != TrainConfig()
