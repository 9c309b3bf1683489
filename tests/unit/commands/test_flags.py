"""flags.py: the --help text of a config class."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from bulkinfer.commands.flags import help_text
from bulkinfer.commands.parse import HelpRequested, parse
from bulkinfer.config import option
from bulkinfer.errors import UsageError


@dataclass(frozen=True)
class Settings:
    """Do something."""

    batch_size: int = option(6, "pictures per batch", aliases=("micro_batch_size",), minimum=1)
    offset: int = option(0, "first picture")
    data_dir: str = option("", "folder")
    device: str = option("auto", "provider", choices=("auto", "cpu"))
    synthetic: bool = option(False, "no input")
    save: tuple[str, ...] = option(("topk",), "columns", choices=("topk", "logits", "none"))


@pytest.mark.parametrize("word", ["--help", "-help", "-h", "--helpfull"])
def test_help_lists_every_option(word: str) -> None:
    with pytest.raises(HelpRequested) as caught:
        parse("act", Settings, ("--offset", "1", word))
    text = str(caught.value)
    assert text == help_text("act", Settings)
    for line in (
        "act: Do something.",
        "  --batch_size, --micro_batch_size\n      pictures per batch (default 6)",
        "  --data_dir\n      folder\n",
        "  --device\n      provider (one of auto, cpu; default auto)",
        "  --[no]synthetic\n      no input (default false)",
        "  --save\n      columns (any of topk, logits, none; default topk)",
        "  --flagfile\n",
    ):
        assert line in text


@dataclass(frozen=True)
class Rates:
    """Do something."""

    lr: float = option(0.1, "rate")


def test_a_fraction_may_be_larger_than_any_float() -> None:
    assert parse("act", Rates, ("--lr", "1/4")).lr == 0.25
    for number in ("inf", "1e400", f"1{'0' * 400}/3"):
        with pytest.raises(UsageError, match="not a finite number"):
            parse("act", Rates, ("--lr", number))
