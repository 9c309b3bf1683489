"""result_files.py and tables.py: what the files of results say."""

from __future__ import annotations

import csv
import io
from typing import Any
from xml.etree import ElementTree

from bulkinfer.bench.spec.entry import Entry, Metric, Variant
from bulkinfer.bench.spec.figures import Run, figures_of, ratios_of
from bulkinfer.bench.spec.result_files import csv_text, junit_text
from bulkinfer.bench.spec.run_entry import DONE, FAILED, LEFT_OUT, description_of
from bulkinfer.bench.spec.tables import page, table_of
from bulkinfer.bench.spec.values import value_text

RATE = Metric("rate", "images/s | all", regexp="x", position=0)
ENTRY = Entry(
    "pairs", "x", (Variant("a", {}), Variant("b", {})), (RATE,), description="Two ways.", rounds=2, ratios=(("a", "b"),)
)
RUNS = [
    Run(name, number, 1.5, "", {"rate": [rate]})
    for name, number, rate in (("a", 1, 10.0), ("b", 1, 5.0), ("b", 2, 4.0), ("a", 2, 12.0))
]


def done() -> dict[str, Any]:
    figures, ratios = figures_of(ENTRY, RUNS), ratios_of(ENTRY, RUNS)
    runs = [{"variant": run.variant, "seconds": run.seconds} for run in RUNS]
    return {**description_of(ENTRY), "status": DONE, "reason": "", "runs": runs, "figures": figures, "ratios": ratios}


def without(status: str, reason: str) -> dict[str, Any]:
    entry = Entry("one", "x", (Variant("one", {}),), (RATE,))
    return {**description_of(entry), "status": status, "reason": reason, "runs": [], "figures": {}, "ratios": []}


def test_tables() -> None:
    assert table_of("pairs", done()) == [
        "| Two ways | images/s \\| all |",
        "|---|---|",
        "| a | 11.00 (10.50 - 11.50) |",
        "| b | 4.500 (4.250 - 4.750) |",
        "| a / b | 2.50 (2.25 - 2.75) |",
    ]
    single = Entry("one", "x", (Variant("one", {}),), (RATE,))
    result = {**description_of(single), "figures": figures_of(single, [Run("one", 1, 1, "", {"rate": [1234.5]})]), "ratios": []}
    assert table_of("one", result) == ["| one | median (quartiles) |", "|---|---|", "| images/s \\| all | 1,234 |"]


def test_the_page_says_why_there_are_no_figures() -> None:
    text = page("f.yml", ["a machine"], {"one": without(LEFT_OUT, "it needs a GPU")})
    assert text == "# f.yml\n\n- a machine\n\n## one\n\nleft out: it needs a GPU\n"


def test_csv() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text({"pairs": done(), "one": without(FAILED, "no")}))))
    assert [(row["benchmark"], row["variant"], row["status"], row["value"], row["runs"]) for row in rows] == [
        ("pairs", "a", "done", "11.0", "2"), ("pairs", "b", "done", "4.5", "2"), ("one", "one", "failed", "", ""),
    ]  # fmt: skip
    assert rows[0]["seconds"] == "3.000"


def test_junit_has_the_elements_and_counts_of_its_schema() -> None:
    benchmarks = {"pairs": done(), "one": without(FAILED, 'it said "\x07<no>"'), "two": without(LEFT_OUT, "it needs a GPU")}
    found = {
        "time": "2026-01-02T03:04:05Z", "hardware": {"host": "h", "processor": "p"}, "system": "s", "versions": {"numpy": "2"},
        "benchmarks": benchmarks,
    }  # fmt: skip
    top = ElementTree.fromstring(junit_text("f.yml", found, {"pairs": ["a / b: behind"]}))
    assert top.tag == "testsuites"
    (suite,) = top
    assert [element.tag for element in suite] == ["properties", *["testcase"] * 4]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped", "time", "timestamp", "hostname")} == {
        "tests": "4", "failures": "3", "errors": "0", "skipped": "1", "time": "6.000", "timestamp": "2026-01-02T03:04:05",
        "hostname": "h",
    }  # fmt: skip
    cases = {(case.get("classname"), case.get("name")): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases == {
        ("f.yml.pairs", "a"): ["failure"], ("f.yml.pairs", "b"): ["failure"], ("f.yml.one", "one"): ["failure"],
        ("f.yml.two", "one"): ["skipped"],
    }  # fmt: skip
    assert [failure.get("message") for failure in suite.iter("failure")][2] == 'it said "\\x07<no>"'


def test_numbers_have_four_digits_or_those_asked_for() -> None:
    assert [value_text(value) for value in (1234.5, 123.45, 12.345, 1.2345, 0.01)] == [
        "1,234",
        "123.5",
        "12.35",
        "1.234",
        "0.010",
    ]
    assert value_text(1.005, 1) == "1.0"
