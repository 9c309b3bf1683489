"""metrics.py: what is extracted, and what of it is shown."""

from __future__ import annotations

from typing import Any

import pytest
from bulkinfer.bench.spec.checked_keys import Place
from bulkinfer.bench.spec.metrics import metrics_of
from bulkinfer.errors import UsageError

PATTERN = {"regexp": "x(.*)"}


def test_output_gives_order_and_headings() -> None:
    keys = {
        "data": {"a": PATTERN, "b": PATTERN},
        "derived": {"c": {"expr": "{a} / {b}"}},
        "output": [["of c", "c"], ["of a", "a"]],
    }
    found = metrics_of(keys, Place("file"))
    assert [(metric.name, metric.label, metric.position) for metric in found] == [
        ("a", "of a", 1),
        ("b", "b", -1),
        ("c", "of c", 0),
    ]


def test_without_output_all_are_shown() -> None:
    assert [metric.position for metric in metrics_of({"data": {"a": PATTERN, "b": PATTERN}}, Place("file"))] == [0, 1]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"data": {"a": {}}}, "give either regexp, or file and path"),
        ({"data": {"a": {"regexp": "x", "file": "y"}}}, "give either regexp, or file and path"),
        ({"data": {"a": {"file": "/x.json", "path": "a"}}}, "'/x.json' is no name below the folder of a run"),
        ({"data": {"a": {"file": "../x.json", "path": "a"}}}, "'../x.json' is no name below the folder of a run"),
        ({"data": {"a": {"file": "a**.json", "path": "a"}}}, "'a**.json' is no name below the folder of a run"),
        ({"data": {"a": {"file": "summary.json"}}}, "file and path belong together"),
        ({"data": {"a": {"file": "summary.json", "path": "a..b"}}}, "'a..b' is no path"),
        ({"data": {"a": {"regexp": "("}}}, "it is no regular expression"),
        ({"data": {"a": {"regexp": "(a)(b)"}}}, "it has 2 groups"),
        ({"data": {"a": {**PATTERN, "reduction_type": "max_"}}}, "'max_' is none of median, mean, final, min, max, value"),
        ({"data": {"a": {**PATTERN, "skip": -1}}}, "it is -1, and a number from 0 on is needed"),
        ({"data": {"a": {**PATTERN, "regex": "x"}}}, "unknown key 'regex'; the keys are better, digits, file"),
        ({"data": {"a": PATTERN}, "output": [["a", "b"]]}, "there is no figure 'b'; there are a"),
        ({"data": {"a": PATTERN}, "output": ["a"]}, "give a pair: [heading, name of a figure]"),
        ({"data": {"a": PATTERN}, "derived": {"b": {"expr": "{c}"}}}, "there is no figure 'c' before it; there are a"),
        ({"data": {"a": PATTERN}, "derived": {"a": {"expr": "1"}}}, "'a' is in data as well"),
    ],
)  # fmt: skip
def test_faults(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as failed:
        metrics_of(keys, Place("file"))
    assert sentence in str(failed.value)
