"""Values of a YAML file with their kinds checked: one sentence for each fault, with the legal names."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from bulkinfer.errors import UsageError, escaped


class Place:
    """Where a value stands, for messages: the file, the entry, the key."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def below(self, name: object) -> Place:
        """The place of a key in this value."""
        return Place(*self.names, str(name))

    def wrong(self, what: str) -> UsageError:
        """The error about the value at this place."""
        return UsageError(_sentence(*self.names, what))


def _sentence(*parts: str) -> str:
    return escaped(": ".join(parts))


def known_keys(value: Any, legal: Collection[str], place: Place) -> dict[str, Any]:
    """The dictionary. Raises UsageError if it is none, or has a key that is not legal."""
    found = dictionary(value, place)
    for key in found:
        if key not in legal:
            raise place.wrong(f"unknown key {key!r}; the keys are {', '.join(sorted(legal))}")
    return found


def dictionary(value: Any, place: Place) -> dict[str, Any]:
    """The dictionary with texts as keys; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise place.wrong(f"it is {kind_of(value)}, and a dictionary is needed")
    if wrong := [key for key in value if not isinstance(key, str)]:
        raise place.wrong(f"the key {wrong[0]!r} is {kind_of(wrong[0])}: write it in quotes")
    return value


def text(value: Any, place: Place) -> str:
    """A text, or a number or truth value as text."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str | int | float):
        if "\0" in str(value):
            raise place.wrong("a text with a NUL character cannot be used")
        return str(value)
    raise place.wrong(f"it is {kind_of(value)}, and a text is needed")


def texts(value: Any, place: Place, kind: Callable[[Any, Place], str] = text) -> tuple[str, ...]:
    """A list of texts, each read as a `kind`; a single text is a list of one."""
    if value is None:
        return ()
    if not isinstance(value, list):
        return (kind(value, place),)
    return tuple(kind(item, place.below(number)) for number, item in enumerate(value))


def command(value: Any, place: Place) -> str:
    """A command. YAML reads some words, such as yes, and numbers as something else than text."""
    if isinstance(value, bool | int | float):
        raise place.wrong(f"YAML reads it as {kind_of(value)}: write it in quotes")
    return text(value, place)


def number(value: Any, place: Place, *, least: float = 0.0) -> float:
    """A number that is at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 1e15:
        shown = kind_of(value) if isinstance(value, dict | list) else repr(value)
        raise place.wrong(f"it is {shown}, and a number from {least:g} on is needed")
    return float(value)


def whole(value: Any, place: Place, *, least: int = 0, most: int | None = None) -> int:
    """A whole number from `least` to `most`."""
    if (found := number(value, place, least=least)) != int(found):
        raise place.wrong(f"{value!r} is no whole number")
    if most is not None and found > most:
        raise place.wrong(f"{value!r} is more than {most}")
    return int(found)


def switch(value: Any, place: Place) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise place.wrong(f"it is {kind_of(value)}: write true or false")
    return value


def one_of(value: Any, legal: Collection[str], place: Place) -> str:
    """A text that is one of the legal ones."""
    if (found := text(value, place)) not in legal:
        raise place.wrong(f"{found!r} is none of {', '.join(legal)}")
    return found


def kind_of(value: Any) -> str:
    """What a value is, in words."""
    names = {dict: "a dictionary", list: "a list", str: "a text", bool: "true or false", type(None): "empty"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else f"of the type {type(value).__name__}")
