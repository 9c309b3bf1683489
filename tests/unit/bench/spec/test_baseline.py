"""baseline.py: a ratio falls behind if its median is worse by more than the larger spread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bulkinfer.bench.spec.baseline import fallen_behind, is_behind, judged, read_baseline
from bulkinfer.bench.spec.entry import Entry, Metric, Variant
from bulkinfer.errors import UsageError
from bulkinfer.files.json_file import write_json

ENTRY = Entry("e", "x", (Variant("a", {}), Variant("b", {})), (Metric("rate", regexp="x"),), rounds=3, ratios=(("a", "b"),))


def ratio(median: float, spread: float = 0.1, *, better: str = "higher", count: int = 3) -> dict[str, Any]:
    quartiles = {"lower": median - spread / 2, "upper": median + spread / 2}
    return {"of": "a / b", "metric": "rate", "better": better, "median": median, **quartiles, "values": [median] * count}


def results(*ratios: dict[str, Any]) -> dict[str, Any]:
    return {"e": {"ratios": list(ratios)}}


@pytest.mark.parametrize(
    ("now", "before", "is_worse"),
    [
        (ratio(1.0), ratio(1.2), True),
        (ratio(1.15), ratio(1.2), False),
        (ratio(1.0, 0.5), ratio(1.2), False),  # now the spread is large
        (ratio(1.0), ratio(1.2, 0.5), False),  # it was large then
        (ratio(1.4), ratio(1.2), False),
        (ratio(1.4, better="lower"), ratio(1.2, better="lower"), True),
        (ratio(1.0, better="lower"), ratio(1.2, better="lower"), False),
    ],
)
def test_behind(now: dict[str, Any], before: dict[str, Any], is_worse: bool) -> None:
    assert is_behind(now, before) is is_worse


def test_sentences() -> None:
    assert fallen_behind(results(ratio(1.0)), results(ratio(1.3))) == {
        "e": ["a / b, rate: 1.000 (0.950 - 1.050), and in the baseline 1.300 (1.250 - 1.350)"]
    }
    assert fallen_behind(results(ratio(1.0)), {}) == {}
    assert judged(results(ratio(1.0)), results(ratio(1.3))) == 1
    assert judged(results(ratio(1.0, count=2)), results(ratio(1.3))) == 0  # two values have no spread


def test_the_file(tmp_path: Path) -> None:
    path = tmp_path / "benchmark_results.json"
    write_json(path, {"benchmarks": results(ratio(1.2))})
    assert read_baseline(str(path), [ENTRY]).keys() == {"e"}
    other = Entry("other", "x", ENTRY.variants, ENTRY.metrics, rounds=3, ratios=ENTRY.ratios)
    with pytest.raises(
        UsageError, match="has no ratio of 3 rounds or more of an entry that would run so often; it has those of e"
    ):
        read_baseline(str(path), [other])
    write_json(path, {"benchmarks": 1})
    with pytest.raises(UsageError, match="is no file of results"):
        read_baseline(str(path), [ENTRY])
    path.write_text("[]")
    with pytest.raises(UsageError, match=r"is damaged .*: give a benchmark_results\.json"):
        read_baseline(str(path), [ENTRY])
    with pytest.raises(UsageError, match="does not exist"):
        read_baseline(str(tmp_path / "absent"), [ENTRY])
