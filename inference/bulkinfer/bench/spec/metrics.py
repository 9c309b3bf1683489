"""The figures of an entry: `data` and `derived` say what is extracted, `output` what of it is shown, and with which heading."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from bulkinfer.bench.spec.checked_keys import Place, dictionary, known_keys, one_of, switch, text, whole
from bulkinfer.bench.spec.entry import REDUCTIONS, Metric
from bulkinfer.bench.spec.expression import names_in
from bulkinfer.bench.spec.json_path import steps_of
from bulkinfer.errors import first_line

_MOST_DIGITS = 15  # behind the point: a float has no more
_SHARED = {"skip", "reduction_type", "is_ratio", "better", "digits"}
_DATA = {"regexp", "file", "path", *_SHARED}
_DERIVED = {"expr", *_SHARED}


def metrics_of(keys: dict[str, Any], place: Place) -> tuple[Metric, ...]:
    """The metrics, each behind those that it is derived from. Raises UsageError for a broken one."""
    data, derived = (dictionary(keys.get(name), place.below(name)) for name in ("data", "derived"))
    if twice := data.keys() & derived.keys():
        raise place.below("derived").wrong(f"{min(twice)!r} is in data as well: give it another name")
    labels = _labels(keys.get("output"), [*data, *derived], place.below("output"))
    found = {name: _extracted(name, value, place.below("data").below(name)) for name, value in data.items()}
    for name, value in derived.items():
        found[name] = _derived(name, value, [*found], place.below("derived").below(name))
    if not found:
        raise place.wrong("it extracts nothing: name a figure under data")
    positions = {name: position for position, name in enumerate(labels)}
    return tuple(
        replace(metric, label=labels.get(name, name), position=positions.get(name, -1)) for name, metric in found.items()
    )


def _labels(given: Any, names: list[str], place: Place) -> dict[str, str]:
    """Metric -> heading. Without `output` all are shown by their names."""
    if given is None:
        return {name: name for name in names}
    if not isinstance(given, list):
        raise place.wrong("give a list of pairs: [heading, name of a figure]")
    found: dict[str, str] = {}
    for number, pair in enumerate(given):
        if not isinstance(pair, list) or len(pair) != 2:
            raise place.below(number).wrong("give a pair: [heading, name of a figure]")
        label, name = (text(word, place.below(number)) for word in pair)
        if name not in names:
            raise place.below(number).wrong(f"there is no figure {name!r}; there are {', '.join(names) or 'none'}")
        found[name] = label
    return found


def _extracted(name: str, value: Any, place: Place) -> Metric:
    keys = known_keys(value, _DATA, place)
    regexp, file, path = (text(keys.get(key, ""), place.below(key)) for key in ("regexp", "file", "path"))
    if bool(regexp) == bool(file):
        raise place.wrong("give either regexp, or file and path")
    if bool(file) != bool(path):
        raise place.wrong("file and path belong together: give both")
    if regexp:
        _check_pattern(regexp, place.below("regexp"))
    else:
        if Path(file).is_absolute() or ".." in Path(file).parts or "**" in file:
            raise place.below("file").wrong(f"{file!r} is no name below the folder of a run: give one such as summary.json")
        steps_of(path, place.below("path"))
    return Metric(name, regexp=regexp, file=file, path=path, **_shared(keys, place))


def _derived(name: str, value: Any, others: list[str], place: Place) -> Metric:
    keys = known_keys(value, _DERIVED, place)
    expr = text(keys.get("expr", ""), place.below("expr"))
    used = names_in(expr, place.below("expr"))
    if unknown := [each for each in used if each not in others]:
        raise place.below("expr").wrong(f"there is no figure {unknown[0]!r} before it; there are {', '.join(others) or 'none'}")
    return Metric(name, expr=expr, **_shared(keys, place))


def _shared(keys: dict[str, Any], place: Place) -> dict[str, Any]:
    """What all metrics have."""
    is_ratio = switch(keys.get("is_ratio", False), place.below("is_ratio"))
    return {
        "skip": whole(keys.get("skip", 0), place.below("skip")),
        "reduction": one_of(keys.get("reduction_type", "median"), REDUCTIONS, place.below("reduction_type")),
        "is_ratio": is_ratio,
        "is_lower_better": one_of(keys.get("better", "higher"), ("higher", "lower"), place.below("better")) == "lower",
        "digits": None if keys.get("digits") is None else whole(keys["digits"], place.below("digits"), most=_MOST_DIGITS),
    }


def _check_pattern(regexp: str, place: Place) -> None:
    try:
        groups = re.compile(regexp).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise place.wrong(f"it is no regular expression ({first_line(error)})") from None
    if groups > 1:
        raise place.wrong(f"it has {groups} groups: leave one pair of brackets, around the number, and write others as (?:...)")
