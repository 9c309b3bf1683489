"""figures.py: medians with quartiles over runs or samples, and ratios of runs of one round."""

from __future__ import annotations

import pytest
from bulkinfer.bench.spec.entry import Entry, Metric, Variant
from bulkinfer.bench.spec.figures import Run, figures_of, ratios_of
from bulkinfer.errors import UsageError

RATE = Metric("rate", "images/s", regexp="x", position=0)
VARIANTS = (Variant("a", {}), Variant("b", {}))


def run(variant: str, number: int, *samples: float) -> Run:
    return Run(variant, number, 1.0, "", {"rate": list(samples)})


def test_one_run_has_the_quartiles_of_its_samples() -> None:
    entry = Entry("e", "x", VARIANTS[:1], (RATE,))
    figure = figures_of(entry, [run("a", 1, 1, 2, 3, 4, 5)])["a"]["rate"]
    assert figure == {"value": 3, "lower": 2, "upper": 4, "count": 5, "runs": 1}
    last = Entry("e", "x", VARIANTS[:1], (Metric("rate", regexp="x", reduction="final"),))
    assert figures_of(last, [run("a", 1, 1, 9)])["a"]["rate"] == {"value": 9, "lower": 9, "upper": 9, "count": 1, "runs": 1}


def test_several_runs_have_the_quartiles_of_their_values() -> None:
    entry = Entry("e", "x", VARIANTS, (RATE,), rounds=3)
    runs = [run("a", 1, 10, 20, 90), run("a", 2, 30), run("a", 3, 40)]
    found = figures_of(entry, runs)
    assert found["a"]["rate"] == {"value": 30, "lower": 25, "upper": 35, "count": 3, "runs": 3}
    assert found["b"] == {}


def test_ratios_are_of_runs_of_one_round() -> None:
    entry = Entry("e", "x", VARIANTS, (RATE,), rounds=3, ratios=(("a", "b"),))
    runs = [run("a", 1, 10), run("b", 1, 5), run("b", 2, 4), run("a", 2, 12), run("a", 3, 9), run("b", 3, 9)]
    (ratio,) = ratios_of(entry, runs)
    assert ratio["values"] == [2.0, 3.0, 1.0]
    assert (ratio["of"], ratio["metric"], ratio["better"], ratio["median"]) == ("a / b", "rate", "higher", 2.0)


def test_a_metric_may_be_a_ratio() -> None:
    share = Metric("rate", regexp="x", is_ratio=True, is_lower_better=True)
    (ratio,) = ratios_of(Entry("e", "x", VARIANTS[:1], (share,)), [run("a", 1, 0.5, 0.7, 0.6)])
    assert (ratio["of"], ratio["values"], ratio["better"]) == ("a", [0.5, 0.7, 0.6], "lower")


def test_there_is_no_ratio_to_nothing() -> None:
    entry = Entry("e", "x", VARIANTS, (RATE,), ratios=(("a", "b"),))
    with pytest.raises(UsageError, match="e: rate: it is 0 for b in round 1"):
        ratios_of(entry, [run("a", 1, 1), run("b", 1, 0)])
