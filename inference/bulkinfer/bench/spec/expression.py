"""Arithmetic of derived figures: numbers, figures in braces, + - * / and brackets. Nothing is executed."""

from __future__ import annotations

import ast
import contextlib
import operator
import re
from collections.abc import Callable, Mapping

from bulkinfer.bench.spec.checked_keys import Place

_FIGURE = re.compile(r"\{([^{}]+)\}")
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_LONGEST = 1000  # characters


def names_in(expr: str, place: Place) -> list[str]:
    """The figures that an expression uses. Raises UsageError if it is no arithmetic."""
    names: list[str] = _FIGURE.findall(expr)
    with contextlib.suppress(ZeroDivisionError):  # of these made-up values
        _value(_tree(expr, place), [1.0] * len(names), place)
    return names


def evaluate(expr: str, figures: Mapping[str, float], place: Place) -> float:
    """The value for these figures. Raises UsageError for a division by zero."""
    try:
        return _value(_tree(expr, place), [figures[name] for name in _FIGURE.findall(expr)], place)
    except ZeroDivisionError:
        raise place.wrong(f"{expr} divides by zero") from None


def _tree(expr: str, place: Place) -> ast.expr:
    count = iter(range(_LONGEST))
    words = _FIGURE.sub(lambda _: f" _{next(count)} ", expr)
    try:
        if len(expr) > _LONGEST:
            raise ValueError
        return ast.parse(words.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise place.wrong(f"{expr[:100]!r} is no arithmetic of numbers and figures in braces, as in {{a}} / {{b}}") from None


def _value(node: ast.expr, values: list[float], place: Place) -> float:
    """The value of a part, where _0, _1 and so on are `values`."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, values, place), _value(node.right, values, place))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, values, place)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.Name) and re.fullmatch(r"_\d+", node.id) and int(node.id[1:]) < len(values):
        return values[int(node.id[1:])]
    raise place.wrong(f"it holds {ast.unparse(node)[:60]!r}: use numbers, figures in braces, + - * / and brackets")
