"""The figures of an entry out of all its runs: medians with quartiles, and ratios of runs of one round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bulkinfer.bench.report import Quartiles
from bulkinfer.bench.spec.checked_keys import Place
from bulkinfer.bench.spec.entry import Entry, Metric
from bulkinfer.bench.spec.extract import reduced


@dataclass(frozen=True)
class Run:
    """One run of a variant that succeeded: its round, its length, its folder, and the samples of each metric."""

    variant: str
    round: int
    seconds: float
    folder: str
    samples: dict[str, list[float]]


def figures_of(entry: Entry, runs: Sequence[Run]) -> dict[str, dict[str, dict[str, Any]]]:
    """Variant -> metric -> value with quartiles.

    With several runs they are those of the values of the runs; with a single one those of its samples, if it makes a median or
    a mean of them.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for variant in entry.variants:
        own = [run for run in runs if run.variant == variant.name]
        found[variant.name] = {metric.name: _figure(metric, own) for metric in entry.metrics} if own else {}
    return found


def _figure(metric: Metric, runs: Sequence[Run]) -> dict[str, Any]:
    values = [reduced(run.samples[metric.name], metric.reduction) for run in runs]
    samples = runs[0].samples[metric.name]
    if len(runs) > 1 or metric.reduction not in ("median", "mean"):
        spread, count = Quartiles.of(values), len(values)
    else:
        spread, count = Quartiles.of(samples), len(samples)
    value = spread.median if len(runs) > 1 else values[0]
    return {"value": value, "lower": spread.lower, "upper": spread.upper, "count": count, "runs": len(runs)}


def ratios_of(entry: Entry, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The ratios of an entry: of two variants in each round, for each metric that is shown; and metrics that are ratios.

    Raises UsageError for a division by zero.
    """
    found = []
    for first, second in entry.ratios:
        for metric in (each for each in entry.shown if not each.is_ratio):
            values = _by_round(metric, runs, first), _by_round(metric, runs, second)
            if zero := [number for number, value in values[1].items() if not value]:
                raise Place(entry.name, metric.name).wrong(f"it is 0 for {second} in round {zero[0]}: there is no ratio to it")
            pairs = [value / values[1][number] for number, value in values[0].items() if number in values[1]]
            if pairs:
                found.append(_ratio(f"{first} / {second}", metric, pairs))
    figures = figures_of(entry, runs)
    for variant in entry.variants:
        for metric in (each for each in entry.metrics if each.is_ratio and figures[variant.name]):
            own = [run for run in runs if run.variant == variant.name]
            values_of = [reduced(run.samples[metric.name], metric.reduction) for run in own]
            found.append(_ratio(variant.name, metric, own[0].samples[metric.name] if len(own) == 1 else values_of))
    return found


def _by_round(metric: Metric, runs: Sequence[Run], variant: str) -> dict[int, float]:
    return {run.round: reduced(run.samples[metric.name], metric.reduction) for run in runs if run.variant == variant}


def _ratio(of: str, metric: Metric, values: Sequence[float]) -> dict[str, Any]:
    better = "lower" if metric.is_lower_better else "higher"
    return {"of": of, "metric": metric.name, "better": better, **asdict(Quartiles.of(values)), "values": list(values)}
