"""Which form of tools/test a test belongs to: the short one, or with the mark `long` the other. See CONTRIBUTING.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

long = pytest.mark.long


def only_first(values: Iterable[Any], count: int = 1) -> list[Any]:
    """The values of a parametrised test: those after the first `count` are for the long form."""
    return [value if number < count else long_param(value) for number, value in enumerate(values)]


def long_param(value: Any) -> Any:
    """One value, or one tuple of values, for the long form."""
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=long)
