"""help.py: the --help text of a config class."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, fields

import pytest
from bulkinfer.__main__ import COMMANDS
from bulkinfer.commands.help import help_text, option_groups, value_name
from bulkinfer.commands.parse import HelpRequested, parse
from bulkinfer.config import GetModelConfig, LaunchConfig, option
from bulkinfer.train.options import TrainConfig

from tests.configs import CONFIGS


@dataclass(frozen=True)
class Settings:
    """Do something."""

    data_dir: str = option("", "folder", group="input")
    offset: int = option(0, "first picture")
    batch_size: int = option(6, "pictures per batch", group="model", aliases=("micro_batch_size",), minimum=1)
    device: str = option("auto", "provider " * 12, choices=("auto", "cpu"))
    recipe: str = option("", "how to prepare", value="FILE")
    synthetic: bool = option(False, "no input")
    save: tuple[str, ...] = option(("topk",), "columns", choices=("topk", "logits", "none"))


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize("word", ["--help", "-help", "-h", "--helpfull"])
def test_help_lists_every_option(word: str) -> None:
    with pytest.raises(HelpRequested) as caught:
        parse("act", Settings, ("--offset", "1", word), first_word="data_dir")
    text = str(caught.value)
    assert text == help_text("act", Settings, "data_dir")
    for line in (
        "act: Do something.\n\nusage: act [FOLDER] [options]\n\ninput:\n",
        "\ninput:\n  --data_dir FOLDER       folder\n  --offset N              first picture (default 0)\n\nmodel:\n",
        "  --batch_size N, --micro_batch_size N\n                          pictures per batch (default 6)\n",
        "(one of auto, cpu; default auto)",
        "  --recipe FILE           how to prepare\n",
        "  --[no]synthetic         no input (default false)\n",
        "  --save SAVE ...         columns (any of topk, logits, none; default topk)\n",
        "\nalways:\n  --flagfile FILE         read options",
    ):
        assert line in text


@pytest.mark.parametrize(("columns", "widest"), [("40", 50), ("72", 72), ("100", 100), ("300", 100)])
def test_the_text_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: str, widest: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert max(map(len, help_text("act", Settings).splitlines())) in range(widest - 12, widest + 1)


def test_groups_go_on_until_the_next_one() -> None:
    names = {group: [field.name for field in found] for group, found in option_groups(Settings).items()}
    assert names == {
        "input": ["data_dir", "offset"],
        "model": ["batch_size", "device", "recipe", "synthetic", "save"],
    }
    assert list(option_groups(LaunchConfig)) == ["input", "model", "device", "output", "tuning", "advanced"]


def test_value_names() -> None:
    of_launch = {field.name: value_name(field) for field in fields(LaunchConfig)}
    assert (of_launch["data_dir"], of_launch["model_path"], of_launch["output"]) == ("FOLDER", "FOLDER", "FOLDER")
    assert (of_launch["model_name"], of_launch["streams"], of_launch["synthetic"]) == ("NAME", "N", "")
    of_others = {field.name: value_name(field) for config in (GetModelConfig, TrainConfig) for field in fields(config)}
    assert (of_others["licence"], of_others["onnx"], of_others["lr"]) == ("LICENCE", "FILE", "N")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_heading_of_every_option_is_given(name: str) -> None:
    """An option without a group at the top of a class would stand under the heading `options`."""
    assert "options" not in option_groups(CONFIGS[name])
    importlib.import_module(f"bulkinfer.commands.{name}")
