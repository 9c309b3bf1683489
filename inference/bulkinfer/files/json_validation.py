"""Does a value that was read from JSON have the structure that a type says? For files that are half valid."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any


def misfit(value: Any, kind: Any, where: str = "") -> str:
    """The first thing in `value` that is not of `kind`, as "parts.a.ok is 'x', not an int"; empty if everything fits.

    `kind` is str, int, float (whole numbers fit), bool, None, Any, a class, a TypedDict (more keys than it names are fine),
    or a list, tuple (a list fits), dict with text as keys or union of those. Keys of a TypedDict that is not total may be
    missing. `where` names the value in the answer.
    """
    return next(_misfits(value, kind, where), "")


def _misfits(value: Any, kind: Any, where: str) -> Iterator[str]:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if all(misfit(value, one) for one in inner):
            yield _told(value, kind, where)
    elif not _is_shallow(value, kind, origin or kind):
        yield _told(value, kind, where)
    elif typing.is_typeddict(kind):
        kinds = typing.get_type_hints(kind)
        required: frozenset[str] = kind.__required_keys__
        yield from (f"{_inside(where, name)} is missing" for name in kinds if name in required and name not in value)
        for name in (name for name in kinds if name in value):
            yield from _misfits(value[name], kinds[name], _inside(where, name))
    elif origin is dict:
        for name, item in value.items():
            yield from _misfits(item, inner[1], _inside(where, name))
    elif origin is list or (origin is tuple and inner[1:] == (...,)):
        for number, item in enumerate(value):
            yield from _misfits(item, inner[0], _inside(where, str(number)))
    elif origin is tuple and len(value) == len(inner):  # another length is a matter of its reader, who can say why
        for number, (item, inner_kind) in enumerate(zip(value, inner, strict=True)):
            yield from _misfits(item, inner_kind, _inside(where, str(number)))


def _is_shallow(value: Any, kind: Any, outer: Any) -> bool:
    """Whether the value itself, not what it holds, is of `kind`, whose class is `outer`."""
    if kind is Any:
        return True
    if typing.is_typeddict(kind):
        return isinstance(value, dict)
    if isinstance(value, bool):  # an int to Python
        return outer is bool
    if outer is tuple:
        return isinstance(value, list | tuple)
    return isinstance(value, int | float if outer is float else outer)


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _told(value: Any, kind: Any, where: str) -> str:
    is_dict = typing.is_typeddict(kind) or typing.get_origin(kind) is dict
    name = "dict" if is_dict else kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
    return f"{where or 'it'} is {_short(value)}, not {name}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
