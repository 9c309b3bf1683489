"""Check that a value read from JSON has the structure of a type, for files that are valid JSON but not what they should be."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterator
from typing import Any


def mismatch(value: Any, kind: Any, where: str = "") -> str:
    """The first part of `value` that is not of `kind`, as "parts.a.ok is 'x', not int"; empty if all parts match.

    `kind` is str, int, float (an int matches, if a float can hold it), bool, None, Any, a class, a TypedDict (further keys are
    accepted, and those of one that is not total may be missing), or a list, tuple (a list matches), dict with str keys or union
    of those. `where` names `value` in the sentence.
    """
    return next(_mismatches(value, kind, where), "")


def _mismatches(value: Any, kind: Any, where: str) -> Iterator[str]:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if all(mismatch(value, one) for one in inner):
            yield _sentence(value, kind, where)
    elif not _is_instance(value, kind, origin or kind):
        yield _sentence(value, kind, where)
    elif typing.is_typeddict(kind):
        kinds = typing.get_type_hints(kind)
        required: frozenset[str] = kind.__required_keys__
        yield from (f"{_inside(where, name)} is missing" for name in kinds if name in required and name not in value)
        for name in (name for name in kinds if name in value):
            yield from _mismatches(value[name], kinds[name], _inside(where, name))
    elif origin is dict:
        for name, item in value.items():
            yield from _mismatches(item, inner[1], _inside(where, name))
    elif origin is list or (origin is tuple and inner[1:] == (...,)):
        for number, item in enumerate(value):
            yield from _mismatches(item, inner[0], _inside(where, str(number)))
    elif origin is tuple and len(value) == len(inner):  # a wrong length is reported by the caller, who knows what it means
        for number, (item, inner_kind) in enumerate(zip(value, inner, strict=True)):
            yield from _mismatches(item, inner_kind, _inside(where, str(number)))


def _is_instance(value: Any, kind: Any, outer: Any) -> bool:
    """True if the value itself is of `kind`, whose class is `outer`, whatever it contains."""
    if kind is Any:
        return True
    if typing.is_typeddict(kind):
        return isinstance(value, dict)
    if isinstance(value, bool):  # an int to Python
        return outer is bool
    if outer is tuple:
        return isinstance(value, list | tuple)
    if outer is float and isinstance(value, int):
        return abs(value) <= sys.float_info.max  # JSON has whole numbers of any size
    return isinstance(value, outer)


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _sentence(value: Any, kind: Any, where: str) -> str:
    is_dict = typing.is_typeddict(kind) or typing.get_origin(kind) is dict
    name = "dict" if is_dict else kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
    return f"{where or 'it'} is {_short(value)}, not {name}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
