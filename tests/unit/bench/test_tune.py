"""tune.py: which plans are tried, when one replaces another, and how long it goes on; rates and clock are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bulkinfer.bench.measurement import Measurement
from bulkinfer.bench.runs import Bench
from bulkinfer.bench.tune import (
    DROPPED,
    OPEN,
    REPLACES,
    SLOWER,
    alternatives,
    compare,
    decide,
    format_lines,
    seconds_each,
    short,
    tune,
    verdict,
)
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError
from bulkinfer.host.cores import CoreBudget

from tests.launches import config_of, job_of, plan_of

FOUR = replace(plan_of(), streams=4, threads_per_stream=1, num_workers=4)


@pytest.mark.parametrize(
    ("challenger", "incumbent", "expected"),
    [
        ([104.0, 104.0, 104.0], [100.0, 100.0, 100.0], REPLACES),
        ([102.9, 102.9, 102.9], [100.0, 100.0, 100.0], OPEN),  # faster, but by less than 3 %
        ([90.0, 110.0, 112.0], [99.0, 100.0, 101.0], OPEN),  # its lower quartile is not above the other's median
        ([96.0, 110.0, 112.0], [99.0, 100.0, 101.0], REPLACES),
        ([99.0, 99.0, 99.0], [100.0, 100.0, 100.0], SLOWER),
        ([200.0, 200.0], [100.0, 100.0], OPEN),  # two rounds decide nothing
        ([], [100.0, 100.0, 100.0], OPEN),
    ],
)
def test_the_rule(challenger: list[float], incumbent: list[float], expected: str) -> None:
    assert verdict(challenger, incumbent) == expected


def test_plans_have_the_loader_processes_that_a_launch_would_take() -> None:
    sixteen = replace(plan_of(), streams=16, num_workers=16, loader_processes=4)
    found = alternatives(sixteen, 16, LaunchConfig(), counted=False)
    assert {plan.num_workers: plan.loader_processes for plan in found} == {16: 4, 8: 2, 24: 5}
    asked = alternatives(replace(sixteen, loader_processes=3), 16, LaunchConfig(loader_processes=3), counted=False)
    assert {plan.loader_processes for plan in asked} == {3}


def test_plans_differ_in_how_they_share_out_the_cores() -> None:
    found = alternatives(FOUR, 4, LaunchConfig(), counted=False)
    assert [short(plan) for plan in found] == ["4 x 1 + 4", "4 x 1 + 2", "4 x 1 + 6", "2 x 2 + 4", "1 x 4 + 4", "5 x 1 + 4"]
    assert all(plan.affinity == FOUR.affinity for plan in found)
    alone = alternatives(replace(FOUR, streams=1, num_workers=1), 1, LaunchConfig(), counted=False)
    assert [short(plan) for plan in alone] == ["1 x 1 + 1", "1 x 1 + 2", "2 x 1 + 1"]


def test_what_the_user_fixed_stays() -> None:
    found = alternatives(replace(FOUR, num_workers=3), 4, LaunchConfig(num_workers=3), counted=False)
    assert [short(plan) for plan in found] == ["4 x 1 + 3", "2 x 2 + 3", "1 x 4 + 3", "5 x 1 + 3"]


def test_a_device_of_its_own_needs_no_threads() -> None:
    found = alternatives(replace(FOUR, streams=2), 4, LaunchConfig(), counted=True)
    assert [short(plan) for plan in found] == ["2 x 1 + 4", "1 x 1 + 4", "3 x 1 + 4", "2 x 1 + 2", "2 x 1 + 6"]


class Runs:
    """Measurements that take two seconds each by a clock of their own."""

    def __init__(self, rate: Callable[[str, int], float]) -> None:
        self.now, self.order, self._rate = 0.0, list[str](), rate

    def __call__(self, name: str) -> float:
        self.now += 2.0
        self.order.append(name)
        return self._rate(name, self.order.count(name))

    def compare(self, names: str, **bounds: Any) -> dict[str, list[float]]:
        return compare(list(names), self, clock=lambda: self.now, **{"tune_s": 1000.0, "max_rounds": 3, **bounds})


def test_plans_take_turns() -> None:
    runs = Runs(lambda name, number: 100.0 + number)
    assert runs.compare("abc") == {name: [101.0, 102.0, 103.0] for name in "abc"}
    assert runs.order == list("abcabcabc")


def test_no_measurement_begins_that_would_end_too_late_and_half_a_round_does_not_count() -> None:
    runs = Runs(lambda name, number: 100.0)
    assert runs.compare("abc", tune_s=10.9) == {name: [100.0] for name in "abc"}
    assert runs.order == list("abcab")
    assert Runs(lambda name, number: 100.0).compare("ab", tune_s=1.0)["b"] == []  # one measurement is always made


def test_a_hopeless_plan_is_dropped_but_not_for_one_bad_round() -> None:
    def rate(name: str, number: int) -> float:
        return {"a": 100.0, "b": 60.0, "c": 60.0 if number == 1 else 90.0}[name]

    runs = Runs(rate)
    rates = runs.compare("abc", max_rounds=4)
    assert {name: len(values) for name, values in rates.items()} == {"a": 4, "b": 2, "c": 4}
    assert decide(rates) == ("a", {"b": DROPPED, "c": SLOWER})


def test_it_ends_when_only_one_is_left() -> None:
    runs = Runs(lambda name, number: 100.0 if name == "a" else 10.0)
    assert {name: len(values) for name, values in runs.compare("ab", max_rounds=9).items()} == {"a": 2, "b": 2}


def test_the_best_of_several_has_to_beat_the_next_best() -> None:
    rates = {"a": [100.0] * 3, "b": [120.0] * 3, "c": [121.0] * 3, "d": [101.0] * 3}
    winner, fates = decide(rates)
    assert (winner, fates) == ("b", {"d": OPEN, "b": REPLACES, "c": OPEN})
    assert format_lines(rates, winner, fates) == [
        "a: 100.0 images/sec, 100.0 .. 100.0 in 3 round(s), beaten",
        "b: 120.0 images/sec, 120.0 .. 120.0 in 3 round(s)",
        "c: 121.0 images/sec, 121.0 .. 121.0 in 3 round(s), not decided",
        "d: 101.0 images/sec, 101.0 .. 101.0 in 3 round(s), not decided",
        "winner: b",
        "not decided: d; c: a plan must be 3 % faster in the median of at least 3 rounds, with its lower quartile above the "
        "median to beat; longer --tune_s, --seconds and --rounds can decide it",
    ]


def test_without_a_whole_round_nothing_changes() -> None:
    rates: dict[str, list[float]] = {"a": [], "b": []}
    winner, fates = decide(rates)
    assert (winner, fates) == ("a", {"b": OPEN})
    assert format_lines(rates, winner, fates)[:3] == [
        "a: not measured",
        "b: not measured, not decided",
        "winner: a, the plan without tuning",
    ]


def test_plans_are_run_end_to_end_and_the_fastest_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(config_of(tmp_path))
    ready = SimpleNamespace()

    def run(place: Bench, kind: str, plan: Any, rate: float, name: str) -> tuple[Measurement, Any]:
        assert (kind, place.seconds) == ("end_to_end", 2)
        faster = 50.0 if plan.threads_per_stream == 4 else 10.0
        return Measurement(10, 0, 1.0, faster, 1.0, {}, 0), ready

    monkeypatch.setattr(Bench, "run", run)
    place = Bench(job, FOUR, CoreBudget((0, 1, 2, 3), None), tmp_path / "log", 5, 10)
    plan, lines, found = tune(place, tune_s=108.0, max_rounds=3)
    assert plan == replace(FOUR, streams=1, threads_per_stream=4)
    assert "winner: 1 x 4 + 4" in lines
    assert (found["winner"], found["seconds_each"]) == ("1 x 4 + 4", 2)
    assert found["num_runs"] == len(found["runs"]) == 18


def test_what_an_unfinished_round_measured_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten measurements of six plans: one round counts, four measurements of the second do not."""
    job = job_of(config_of(tmp_path))
    now = [0.0]

    def run(*_: Any, **__: Any) -> tuple[Measurement, Any]:
        now[0] += 2.0
        return Measurement(10, 0, 1.0, 10.0, 1.0, {}, 0), SimpleNamespace()

    monkeypatch.setattr(Bench, "run", run)
    monkeypatch.setattr("bulkinfer.bench.tune.time.perf_counter", lambda: now[0])
    place = Bench(job, FOUR, CoreBudget((0, 1, 2, 3), None), tmp_path / "log", 5, 10)
    _, lines, found = tune(place, tune_s=20.0, max_rounds=3)
    assert lines[-1] == "not counted: 4 measurement(s) of a last round that did not fit into --tune_s 20 as a whole"
    assert (found["num_runs"], found["num_runs_not_counted"]) == (10, 4)
    now[0] = 0.0
    _, lines, found = tune(place, tune_s=24.0, max_rounds=3)
    assert (found["num_runs"], found["num_runs_not_counted"]) == (12, 0)
    assert not [line for line in lines if line.startswith("not counted")]


def test_measurements_are_short_enough_for_three_rounds() -> None:
    assert [seconds_each(6, tune_s, 5) for tune_s in (1000.0, 162.0, 126.0, 10.0)] == [5, 5, 3, 1]


def test_a_tuning_without_a_whole_round_gives_no_winner(tmp_path: Path) -> None:
    job = job_of(config_of(tmp_path))
    place = Bench(job, FOUR, CoreBudget((0, 1, 2, 3), None), tmp_path / "log", 5, 10)
    with pytest.raises(RunError, match=r"--tune_s 0 is too short for one round of 6 plans"):
        tune(place, tune_s=0, max_rounds=3)
