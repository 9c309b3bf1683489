"""Ratios beside those of an earlier results file: has one fallen behind by more than its spread?

Ratios are of runs beside each other on one machine, so they can be compared between machines; rates cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bulkinfer.bench.spec.entry import Entry
from bulkinfer.bench.spec.values import spread_text
from bulkinfer.errors import DamagedError, UsageError
from bulkinfer.files.json_file import read_json
from bulkinfer.types import printable_path

_FEWEST = 3  # values of a ratio that have a spread


def read_baseline(given: str, entries: Sequence[Entry]) -> dict[str, Any]:
    """Entry -> its result in an earlier results file.

    Raises UsageError if the file cannot be used, or if it has no ratio with a spread of one of these entries.
    """
    shown = printable_path(given)
    try:
        content = read_json(Path(given))
    except DamagedError as error:
        raise UsageError(f"--baseline: {error}: give a benchmark_results.json of bulkinfer bench --spec") from None
    found = content.get("benchmarks")
    if not isinstance(found, dict) or not all(
        isinstance(each, dict) and isinstance(each.get("ratios"), list) for each in found.values()
    ):
        raise UsageError(f"--baseline {shown} is no file of results: give a benchmark_results.json of bulkinfer bench --spec")
    judged = {name for name, result in found.items() if any(len(ratio["values"]) >= _FEWEST for ratio in result["ratios"])}
    names = [entry.name for entry in entries if entry.has_ratios and (entry.rounds >= _FEWEST)]
    if not judged & {*names}:
        there = ", ".join(sorted(judged)) or "none"
        raise UsageError(
            f"--baseline {shown} has no ratio of {_FEWEST} rounds or more of an entry that would run so often; it has those of "
            f"{there}"
        )
    return found


def fallen_behind(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, list[str]]:
    """Entry -> a sentence for each of its ratios that has fallen behind."""
    found: dict[str, list[str]] = {}
    for name, result in now.items():
        for ratio, earlier in _pairs(result, before.get(name, {"ratios": []})):
            if is_behind(ratio, earlier):
                what = f"{ratio['of']}, {ratio['metric']}"
                found.setdefault(name, []).append(
                    f"{what}: {spread_text(ratio, 3)}, and in the baseline {spread_text(earlier, 3)}"
                )
    return found


def is_behind(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether the median has become worse by more than the larger of the two distances between the quartiles."""
    worse = before["median"] - now["median"]
    if now["better"] == "lower":
        worse = -worse
    return bool(worse > max(ratio["upper"] - ratio["lower"] for ratio in (now, before)))


def judged(now: Mapping[str, Any], before: Mapping[str, Any]) -> int:
    """How many ratios were compared."""
    return sum(1 for name, result in now.items() for _ in _pairs(result, before.get(name, {"ratios": []})))


def _pairs(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each ratio with that of the baseline, where both have a spread."""
    earlier = {(ratio["of"], ratio["metric"]): ratio for ratio in before["ratios"]}
    for ratio in now["ratios"]:
        other = earlier.get((ratio["of"], ratio["metric"]))
        if other is not None and min(len(ratio["values"]), len(other["values"])) >= _FEWEST:
            yield ratio, other
