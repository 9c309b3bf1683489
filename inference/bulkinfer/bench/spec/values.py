"""Figures as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def value_text(value: float, digits: int | None = None) -> str:
    """A number with so many digits behind the point; without them with four digits in all, or all before the point."""
    if digits is None:
        digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return f"{value:,.{digits}f}"


def spread_text(figure: Mapping[str, Any], digits: int | None = None) -> str:
    """value (lower quartile - upper quartile); the value alone where there is one sample."""
    value = figure.get("value", figure.get("median"))
    assert isinstance(value, float), figure
    if figure.get("count", len(figure.get("values", ()))) < 2:
        return value_text(value, digits)
    return f"{value_text(value, digits)} ({value_text(figure['lower'], digits)} - {value_text(figure['upper'], digits)})"
