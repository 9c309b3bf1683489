"""The samples of each metric in one run of a command: from what it printed, from a JSON file, or derived from others."""

from __future__ import annotations

import contextlib
import math
import re
import signal
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from bulkinfer.bench.spec.checked_keys import Place
from bulkinfer.bench.spec.entry import Metric
from bulkinfer.bench.spec.expression import evaluate, names_in
from bulkinfer.bench.spec.json_path import numbers_at, read_below
from bulkinfer.bench.spec.process import MOST_OUTPUT_BYTES
from bulkinfer.errors import UsageError
from bulkinfer.files.guarded import read_bytes

MATCH_S = 60.0  # in which a pattern must have gone through what was printed
STDOUT, STDERR = "stdout", "stderr"  # files in the folder of a run


def samples_of(metrics: Sequence[Metric], folder: Path, place: Place) -> dict[str, list[float]]:
    """The samples of each metric that count, in order of time: without the first ones that `skip` drops.

    `folder` is that of the run. Raises UsageError for a metric without a sample, and for one that is no finite number.
    """
    text = "".join(
        read_bytes(folder / name, MOST_OUTPUT_BYTES, error=UsageError).decode("utf-8", "replace") for name in (STDOUT, STDERR)
    )
    found: dict[str, list[float]] = {}
    for metric in metrics:
        at = place.below(metric.name)
        if metric.regexp:
            values = _matches(metric.regexp, text, folder, at)
        elif metric.file:
            values = numbers_at(read_below(folder, metric.file, at), metric.path, at)
        else:
            values = _derived(metric.expr, found, at)
        if len(values) <= metric.skip:
            raise at.wrong(f"the run has {len(values)} sample(s), and skip drops the first {metric.skip}: none is left")
        if wrong := [value for value in values if not math.isfinite(value)]:
            raise at.wrong(f"a sample is {wrong[0]}, which is no finite number")
        found[metric.name] = values[metric.skip :]
    return found


def reduced(values: Sequence[float], reduction: str) -> float:
    """The value of a run, by one of entry.REDUCTIONS; `value` is the first sample."""
    match reduction:
        case "median":
            return statistics.median(values)
        case "mean":
            return statistics.fmean(values)
        case "min":
            return min(values)
        case "max":
            return max(values)
        case "final":
            return values[-1]
    return values[0]


def _matches(regexp: str, text: str, folder: Path, place: Place) -> list[float]:
    with _in_time(regexp, place):
        found = re.findall(regexp, text)
    if not found:
        raise place.wrong(
            f"the pattern '{regexp}' matches nothing of what the command printed, see {folder / STDOUT} and {STDERR}"
        )
    numbers = []
    for match in found:
        try:
            numbers.append(float(match.strip().replace(",", "")))
        except ValueError:
            raise place.wrong(f"the pattern '{regexp}' matches {match[:60]!r}, which is no number") from None
    return numbers


@contextlib.contextmanager
def _in_time(regexp: str, place: Place) -> Iterator[None]:
    """Raises UsageError some time after MATCH_S, if the block takes so long: nested repeats can take years.

    For the main thread. The module re sees the signal only every few thousand steps, which are long where lines are.
    """

    def too_late(*_: object) -> None:
        raise place.wrong(
            f"the pattern '{regexp}' takes longer than {MATCH_S:g} s on what was printed: write one that begins with fixed text"
        )

    before = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, MATCH_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _derived(expr: str, found: dict[str, list[float]], place: Place) -> list[float]:
    """One value for each set of samples, where all figures have the same number of them; else one of their medians."""
    names = names_in(expr, place)
    counts = {len(found[name]) for name in names}
    if len(counts) > 1:
        return [evaluate(expr, {name: statistics.median(found[name]) for name in names}, place)]
    rows = range(counts.pop() if counts else 1)
    return [evaluate(expr, {name: found[name][row] for name in names}, place) for row in rows]
