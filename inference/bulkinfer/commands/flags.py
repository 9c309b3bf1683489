"""Config fields -> absl flags, which check each value."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from absl import flags


def flag_values(options: dict[str, Any], kinds: dict[str, Any], defaults: Mapping[str, Any]) -> flags.FlagValues:
    """One absl flag per config field, in a FlagValues that holds only this command's flags.

    `options` are the fields by name, `kinds` their types; `defaults` replace the defaults of the fields.
    """
    values = flags.FlagValues()  # type: ignore[no-untyped-call]
    for name, field in options.items():
        kind, doc, choices = kinds[name], field.metadata["doc"], field.metadata["choices"]
        default = defaults.get(name, field.default)
        if kind is bool:
            flags.DEFINE_boolean(name, default, doc, flag_values=values)
        elif kind is int:
            parser = _IntegerParser(lower_bound=field.metadata["minimum"])
            flags.DEFINE(parser, name, default, doc, flag_values=values, serializer=flags.ArgumentSerializer())
        elif kind is float:
            number = _NumberParser(lower_bound=field.metadata["minimum"])
            flags.DEFINE(number, name, default, doc, flag_values=values, serializer=flags.ArgumentSerializer())
        elif kind is str and choices:
            flags.DEFINE_enum(name, default, list(choices), doc, flag_values=values, case_sensitive=False)
        elif kind is str:
            flags.DEFINE_string(name, default, doc, flag_values=values)
        else:
            serializer = flags.CsvListSerializer(",")
            items = _ListParser(choices, field.metadata["words"])
            flags.DEFINE(items, name, list(default), doc, flag_values=values, serializer=serializer)
    return values


class _IntegerParser(flags.IntegerParser):
    """Whole numbers, with an error message that people understand."""

    def convert(self, argument: str | int) -> int:
        try:
            return int(super().convert(argument))
        except (TypeError, ValueError):
            raise ValueError("not a whole number") from None


class _NumberParser(flags.FloatParser):
    """Decimal numbers, also as fractions (1/2), with an error message that people understand."""

    def convert(self, argument: str | float) -> float:
        try:
            value = float(Fraction(argument)) if isinstance(argument, str) and "/" in argument else float(argument)
        except (TypeError, ValueError, ZeroDivisionError):
            raise ValueError("not a number") from None
        except OverflowError:  # a fraction that is larger than any float
            value = math.inf
        if not math.isfinite(value):
            raise ValueError("not a finite number")
        return value


class _ListParser(flags.ListParser):
    """Words separated by commas, at least one; each is one of `choices` if there are any."""

    def __init__(self, choices: tuple[str, ...], words: bool) -> None:
        super().__init__()
        self._choices, self._words = choices, words

    def parse(self, argument: str | list[str]) -> list[str]:
        if isinstance(argument, list):
            return argument  # the default
        if self._words:
            argument = ",".join(argument.split())  # `--x a b` on one line of a flag file
        try:
            items = [item for item in super().parse(argument) if item]
        except ValueError:  # a name with a line break or a quote, which are special in CSV
            items = [item for item in argument.split(",") if item]
        if not items:
            raise ValueError("at least one value is needed")
        for item in items:
            if self._choices and item not in self._choices:
                raise ValueError(f"value should be one of <{'|'.join(self._choices)}>, not {item!r}")
        return items


def default_text(field: dataclasses.Field[Any]) -> str:
    """The default of an option as one would type it; empty if there is none."""
    if isinstance(field.default, tuple):
        return ",".join(field.default)
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
