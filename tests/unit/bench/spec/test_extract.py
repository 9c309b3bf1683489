"""extract.py: samples in order of time, without the first ones that are dropped."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from bulkinfer.bench.spec import extract
from bulkinfer.bench.spec.checked_keys import Place
from bulkinfer.bench.spec.entry import Metric
from bulkinfer.bench.spec.extract import reduced, samples_of
from bulkinfer.errors import UsageError

RATE = Metric("rate", regexp=r"rate ([\d.,]+|nan|x)")


def samples(
    tmp_path: Path, *metrics: Metric, out: str = "rate 9\nrate 1\n", err: str = "rate 1,000.5\n"
) -> dict[str, list[float]]:
    (tmp_path / "stdout").write_text(out)
    (tmp_path / "stderr").write_text(err)
    return samples_of(metrics, tmp_path, Place("e"))


def test_stdout_comes_before_stderr(tmp_path: Path) -> None:
    assert samples(tmp_path, RATE) == {"rate": [9, 1, 1000.5]}


def test_the_first_samples_are_dropped_whatever_they_are(tmp_path: Path) -> None:
    assert samples(tmp_path, Metric("rate", regexp=RATE.regexp, skip=1)) == {"rate": [1, 1000.5]}
    with pytest.raises(UsageError, match="e: rate: the run has 3 sample"):
        samples(tmp_path, Metric("rate", regexp=RATE.regexp, skip=3))


def test_json_and_what_is_derived(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": [2, 4, 6]}')
    a, b = Metric("a", file="x.json", path="a"), Metric("b", file="x.json", path="a.0")
    elementwise, of_medians = Metric("c", expr="{rate} / {a}"), Metric("d", expr="{a} / {b}")
    found = samples(tmp_path, RATE, a, b, elementwise, of_medians)
    assert found["c"] == [4.5, 0.25, 1000.5 / 6]
    assert found["d"] == [2.0]  # 4, the median of a, by 2: the two have different numbers of samples


def test_faults(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"the pattern 'nothing' matches nothing of what the command printed, see .*stdout and stderr"
    ):
        samples(tmp_path, Metric("rate", regexp="nothing"))
    with pytest.raises(UsageError, match="matches 'x', which is no number"):
        samples(tmp_path, RATE, out="rate x")
    with pytest.raises(UsageError, match="a sample is nan"):
        samples(tmp_path, RATE, out="rate nan")


def test_a_pattern_that_takes_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "MATCH_S", 0.2)
    with pytest.raises(UsageError, match=r"the pattern '\(a\+\)\+b' takes longer than 0.2 s on what was printed"):
        samples(tmp_path, Metric("rate", regexp="(a+)+b"), out="a" * 60)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("reduction", "value"), [("median", 2.5), ("mean", 4.0), ("final", 3.0), ("min", 1.0), ("max", 10.0), ("value", 2.0)]
)
def test_reductions(reduction: str, value: float) -> None:
    assert reduced([2.0, 10.0, 1.0, 3.0], reduction) == value
