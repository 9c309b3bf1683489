"""The variants of an entry: `parameters` as a product (dictionary) or as rows (list), or `variants` with a name each."""

from __future__ import annotations

import itertools
import re
from typing import Any

from bulkinfer.bench.spec.checked_keys import Place, dictionary, kind_of, text, texts
from bulkinfer.bench.spec.entry import BUILT_IN, Variant
from bulkinfer.files.atomic import safe_name

MOST = 1000  # variants of an entry
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def variants_of(name: str, keys: dict[str, Any], constants: dict[str, str], place: Place) -> tuple[Variant, ...]:
    """The variants of the entry called `name`, at least one. Constants are values that all of them have."""
    if keys.get("variants") is not None:
        if keys.get("parameters") is not None:
            raise place.wrong("it has parameters and variants: leave one of them out")
        named = dictionary(keys["variants"], place.below("variants"))
        found = {
            variant: {
                checked(parameter, place): text(value, place.below("variants").below(variant).below(parameter))
                for parameter, value in dictionary(values, place.below("variants").below(variant)).items()
            }
            for variant, values in named.items()
        }
        if len({frozenset(values) for values in found.values()}) > 1:
            raise place.below("variants").wrong("the variants set different names: let each of them set the same ones")
        if not found:
            raise place.below("variants").wrong("it is empty: leave it out, or name a variant")
    else:
        rows = _rows(keys.get("parameters"), place.below("parameters"))
        found = {_variant_name(name, values): values for values in rows}
        if len(found) < len(rows):
            raise place.below("parameters").wrong("two variants have the same values: leave one of them out")
    if wrong := [variant for variant in found if safe_name(variant) != variant or variant.startswith(".")]:
        if keys.get("variants") is not None:
            raise place.below("variants").wrong(f"{wrong[0]!r} is no name: use letters, digits, and . _ -")
        found = {f"{name}_{number}": values for number, values in enumerate(found.values())}
    return tuple(Variant(variant, {**constants, **values}) for variant, values in found.items())


def checked(name: str, place: Place) -> str:
    """The name of a parameter. Raises UsageError if a command cannot hold it in braces."""
    if not _NAME.fullmatch(name) or name in BUILT_IN:
        why = "bulkinfer bench sets it itself" if name in BUILT_IN else "use letters, digits and _"
        raise place.wrong(f"{name!r} cannot be the name of a parameter: {why}")
    return name


def _variant_name(name: str, values: dict[str, str]) -> str:
    return "_".join([name, *(f"{parameter}_{values[parameter]}" for parameter in sorted(values))])


def _rows(given: Any, place: Place) -> list[dict[str, str]]:
    """The values of each variant."""
    if given is None:
        return [{}]
    if isinstance(given, dict):
        columns = {
            checked(name, place): texts(value, place.below(name))
            if isinstance(value, list)
            else _split(value, place.below(name))
            for name, value in dictionary(given, place).items()
        }
        count = 1
        for values in columns.values():
            count *= len(values)
        if not 0 < count <= MOST:
            raise place.wrong(f"it makes {count} variants, and an entry has 1 to {MOST}")
        return [dict(zip(columns, row, strict=True)) for row in itertools.product(*columns.values())]
    if not isinstance(given, list) or not given or not all(isinstance(row, list) for row in given):
        raise place.wrong(
            f"it is {kind_of(given)}: give a dictionary (every combination), or a list whose first item has the names and each "
            "further one the values of a variant"
        )
    names = [checked(name, place) for name in texts(given[0], place.below(0))]
    if not 1 < len(given) <= MOST + 1:
        raise place.wrong(f"it has {len(given) - 1} rows of values, and an entry has 1 to {MOST} variants")
    found = []
    for index, row in enumerate(given[1:], start=1):
        if len(row) != len(names):
            raise place.wrong(f"row {index} has {len(row)} values for the {len(names)} names {', '.join(names)}")
        found.append(dict(zip(names, texts(row, place.below(index)), strict=True)))
    return found


def _split(value: Any, place: Place) -> tuple[str, ...]:
    """The values of a text with commas."""
    return tuple(part.strip() for part in text(value, place).split(","))
