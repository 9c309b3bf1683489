"""What the conversions of other trainers' values know: the options so far, and the length of a run that is continued."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from bulkinfer.errors import UsageError

Options = Mapping[str, str]


class Context:
    """What a conversion may ask for: the options given so far by name, and those of a run that is continued.

    `word` is the flag as it was typed and `target` the option that its row names first; `notes` are printed.
    """

    def __init__(self, options: Options, of_the_run: Callable[[], Mapping[str, Any]]) -> None:
        self.options, self.word, self.target, self.notes = options, "", "", list[str]()
        self._of_the_run = of_the_run

    def text(self, name: str, default: str = "") -> str:
        """The value of an option as text."""
        return self.options.get(name) or str(self._of_the_run().get(name) or default)

    def number(self, name: str, default: float) -> float:
        """The value of an option; what is no number is reported when the options are parsed."""
        return _float(self.text(name, str(default)), default)

    def values(self, text: str) -> list[float]:
        """Several numbers. Raises UsageError if one of them is none."""
        return [self.value(each) for each in text.split(",")]

    def value(self, text: str) -> float:
        """One number. Raises UsageError if it is none."""
        value = _float(text, math.nan)
        if not math.isfinite(value):
            raise UsageError(f"{self.word} {text!r} is not a number")
        return value

    @property
    def epochs(self) -> float:
        """The length of the run. Raises UsageError if it is given in updates: then nobody knows it yet."""
        if self.number("steps", 0):
            raise UsageError(f"{self.word} is in epochs, and --steps gives the length of the run in updates: give --epochs")
        return self.number("epochs", 0) or 100.0

    @property
    def accumulation(self) -> float:
        """Micro batches of an update, on each replica."""
        micro, whole = self.number("micro_batch_size", 0), self.number("global_batch_size", 0)
        follows = whole / (micro * self.replicas) if micro and whole else 1.0
        return self.number("gradient_accumulation", 0) or follows

    @property
    def replicas(self) -> float:
        """Those that are given, or that a launcher has started."""
        return self.number("replicas", 0) or _float(os.environ.get("WORLD_SIZE", ""), 1.0)


def _float(text: str, default: float) -> float:
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError):
        return default


def typed(value: float) -> str:
    """A number as one would type it: as short as it can be without another value."""
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def typed_all(values: list[float]) -> str:
    """Numbers as the words of a list."""
    return ",".join(map(typed, values))
