"""Which form of tools/test a test belongs to: the short one, or with the mark `long` the other. See CONTRIBUTING.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

long = pytest.mark.long


def only_first(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Values of a parametrised test: those after the first `count` are for the long form. A tuple has one for each argument."""
    return [
        value if number < count else long_param(*(value if isinstance(value, tuple) else (value,)))
        for number, value in enumerate(values)
    ]


def long_param(*values: Any) -> Any:
    """The values of a test's arguments, for the long form."""
    return pytest.param(*values, marks=long)
