"""flags.py: the --help text of a config class."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from bulkinfer.commands.flags import help_text
from bulkinfer.commands.parse import HelpRequested, parse
from bulkinfer.config import option


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
