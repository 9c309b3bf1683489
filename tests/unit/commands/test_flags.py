"""flags.py: numbers that only some parsers take."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from bulkinfer.commands.parse import parse
from bulkinfer.config import option
from bulkinfer.errors import UsageError


@dataclass(frozen=True)
class Rates:
    """Do something."""

    lr: float = option(0.1, "rate")


def test_a_fraction_may_be_larger_than_any_float() -> None:
    assert parse("act", Rates, ("--lr", "1/4")).lr == 0.25
    for number in ("inf", "1e400", f"1{'0' * 400}/3"):
        with pytest.raises(UsageError, match="not a finite number"):
            parse("act", Rates, ("--lr", number))
