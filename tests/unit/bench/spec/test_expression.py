"""expression.py: arithmetic of figures, and nothing else."""

from __future__ import annotations

import pytest
from bulkinfer.bench.spec.checked_keys import Place
from bulkinfer.bench.spec.expression import evaluate, names_in
from bulkinfer.errors import UsageError

PLACE = Place("entry")


def test_arithmetic() -> None:
    assert names_in("{a} / ({b b} - 1)", PLACE) == ["a", "b b"]
    assert evaluate("1000 * {a} / ({b} - 1)", {"a": 3.0, "b": 5.0}, PLACE) == 750.0
    assert evaluate("-{a} + {a} * 2.5", {"a": 2.0}, PLACE) == 3.0


@pytest.mark.parametrize(
    "expr", ["", "{a} +", "{a} ** 9", "__import__('os')", "{a}.real", "[1]", "True", "'x'", "_7", "1 if {a} else 2", "(" * 500]
)
def test_what_is_no_arithmetic_is_refused(expr: str) -> None:
    with pytest.raises(UsageError, match=r"arithmetic|it holds"):
        names_in(expr, PLACE)


def test_division_by_zero() -> None:
    with pytest.raises(UsageError, match="divides by zero"):
        evaluate("1 / {a}", {"a": 0.0}, PLACE)
