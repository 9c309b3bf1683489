"""figures.py: the figures of a measurement, and their forms."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter

import pytest
from bulkinfer.serve.client.figures import as_csv, as_json, figures_of, lines_of, percentile
from bulkinfer.serve.client.load import Measured
from bulkinfer.serve.options import RequestConfig

CONFIG = RequestConfig(batch_size=2, num_images=100)
MEASURED = Measured([n / 1000 for n in range(100, 0, -1)], 200, Counter({"429": 3}), 50, 40, wall_s=2.0, cpu_s=0.5)


@pytest.mark.parametrize(("percent", "value"), [(1, 1), (50, 50), (95, 95), (99, 99), (100, 100), (99.5, 100)])
def test_percentiles_by_the_nearest_rank(percent: float, value: int) -> None:
    assert percentile(list(range(1, 101)), percent) == value


def test_percentiles_of_one_and_of_none() -> None:
    assert percentile([7.0], 99) == 7
    assert math.isnan(percentile([], 50))


def test_the_figures() -> None:
    found = figures_of(CONFIG, MEASURED, "random")
    assert {name: found[name] for name in ("requests", "failed", "pictures", "images_per_s", "requests_per_s", "top1")} == {
        "requests": 100, "failed": 3, "pictures": 200, "images_per_s": 100.0, "requests_per_s": 50.0, "top1": 0.8,
    }  # fmt: skip
    times = {name: round(found[f"{name}_ms"], 6) for name in ("average", "min", "max", "p50", "p95", "p99")}
    assert times == {"average": 50.5, "min": 1, "max": 100, "p50": 50, "p95": 95, "p99": 99}


def test_their_forms_have_them_all() -> None:
    found = figures_of(CONFIG, MEASURED, "random")
    names, values = csv.reader(io.StringIO(as_csv(found).decode()))
    assert names == list(found)
    assert values == [str(value) for value in found.values()]
    content = json.loads(as_json(CONFIG, found))
    assert {name: content[name] for name in found} == found
    assert content["config"]["batch_size"] == 2
    text = "\n".join(lines_of(CONFIG, found))
    for part in ("average throughput: 100.0 images/sec", "100.00", "top-1: 0.8000 of 50", "full time: 2000 ms"):
        assert part in text


def test_nothing_measured_is_null_in_json() -> None:
    found = figures_of(CONFIG, Measured(failed=Counter({"refused": 1}), wall_s=1.0), "random")
    assert json.loads(as_json(CONFIG, found))["p99_ms"] is None
    assert found["images_per_s"] == 0
