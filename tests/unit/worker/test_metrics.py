"""metrics.py: counters add, percentiles are right within a bucket, snapshots of many threads' timings are exact."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from bulkinfer.worker.metrics import Meter, Metrics
from hypothesis import given
from hypothesis import strategies as st

HALF_A_BUCKET = 2 ** (1 / 32)  # 16 buckets an octave


def metrics_of(runs: list[float], **seconds: float) -> Metrics:
    metrics = Metrics()
    for run in runs:
        metrics.count_run(run)
    for stage, value in seconds.items():
        metrics.add_seconds(stage, value)
    return metrics


def test_plus_adds() -> None:
    total = metrics_of([0.1, 0.2], infer=0.3, read=1.0) + metrics_of([0.1], infer=0.1, decode=2.0)
    assert total.seconds == pytest.approx({"infer": 0.4, "read": 1.0, "decode": 2.0})
    assert total.runs.total() == 3
    assert max(total.runs.values()) == 2
    assert sum([total, Metrics()], Metrics()) == total


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=200), st.integers(1, 100) | st.floats(0.1, 100))
def test_percentiles_are_within_half_a_bucket(runs: list[float], percent: float) -> None:
    exact = float(np.percentile(runs, percent, method="inverted_cdf"))
    found = metrics_of(runs).run_percentile_s(percent)
    assert exact / HALF_A_BUCKET * (1 - 1e-9) <= found <= exact * HALF_A_BUCKET * (1 + 1e-9)


def test_percentiles_without_runs_and_of_no_time_at_all() -> None:
    assert Metrics().run_percentile_s(50) == 0.0
    assert metrics_of([0.0]).run_percentile_s(50) < 1e-8


def test_json_round_trip() -> None:
    metrics = metrics_of([1e-9, 0.25, 3.0], infer=3.25)
    assert Metrics.from_json(json.loads(json.dumps(metrics.as_json()))) == metrics


def test_the_first_runs_are_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("bulkinfer.worker.metrics.time.perf_counter", lambda: clock[0])
    meter = Meter(warm_up_runs=2)
    first, second, third = (meter.timing("infer") for _ in range(3))
    first.__enter__()
    second.__enter__()
    clock[0] += 3
    first.__exit__()
    meter.count_pictures(4)
    assert meter.warm_up is None, "one run is still on its way"
    third.__enter__()
    clock[0] += 2
    second.__exit__()
    clock[0] += 1
    meter.count_pictures(3)
    assert meter.warm_up is not None
    assert (meter.warm_up.end, meter.warm_up.pictures) == (106.0, 7)
    assert meter.warm_up.metrics.seconds == {"warm_up": 8.0, "infer": 3.0}
    clock[0] += 1
    third.__exit__()
    meter.count_pictures(4)
    assert (meter.warm_up.end, meter.warm_up.pictures) == (106.0, 7), "it has ended once"
    counted = meter.snapshot()
    assert counted.seconds == {"warm_up": 8.0, "infer": 4.0}
    assert counted.runs.total() == 1, "the warm-up is in no percentile"


def test_a_run_of_the_warm_up_that_fails_has_been_one() -> None:
    meter = Meter(warm_up_runs=1)
    with contextlib.suppress(KeyError), meter.timing("infer"):
        raise KeyError
    meter.count_pictures(1)
    assert meter.warm_up is not None
    assert not meter.snapshot().runs


def test_without_runs_to_warm_up_it_is_over() -> None:
    meter = Meter()
    with meter.timing("infer"):
        pass
    meter.count_pictures(4)
    assert meter.warm_up is not None
    assert (meter.warm_up.pictures, meter.snapshot().runs.total()) == (0, 1)


def test_timing_counts_a_block_also_when_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, meter = Clock(monkeypatch), Meter()
    with meter.timing("read"):
        clock.now += 2
    with contextlib.suppress(KeyError), meter.timing("read"):
        clock.now += 3
        raise KeyError
    clock.now += 100
    counted = meter.snapshot()
    assert counted.seconds == {"read": 5}
    assert not counted.runs


def test_only_time_in_the_network_is_a_run() -> None:
    meter = Meter()
    for stage in ("infer", "rows", "infer"):
        with meter.timing(stage):
            pass
    assert meter.snapshot().runs.total() == 2


def test_a_snapshot_is_a_copy() -> None:
    meter = Meter()
    before = meter.snapshot()
    with meter.timing("infer"):
        pass
    assert before == Metrics()


class Clock:
    """Stands in for the module's clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("bulkinfer.worker.metrics.time.perf_counter", lambda: self.now)


def test_open_timings_count_up_to_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait of 10 s across a border of steps is shared out between both sides, neither lost nor told twice."""
    clock, meter = Clock(monkeypatch), Meter()
    with meter.timing("wait_for_batch"):
        clock.now += 7
        border = meter.snapshot()
        clock.now += 3
    clock.now += 100
    end = meter.snapshot()
    assert border.seconds == {"wait_for_batch": 7}
    assert end.seconds - border.seconds == {"wait_for_batch": 3}
    assert end.seconds == {"wait_for_batch": 10}


def test_an_open_run_is_no_run_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, meter = Clock(monkeypatch), Meter()
    with meter.timing("infer"):
        clock.now += 0.5
        during = meter.snapshot()
        clock.now += 0.5
    assert (during.seconds["infer"], during.runs.total()) == (0.5, 0)
    assert meter.snapshot().run_percentile_s(100) == pytest.approx(1.0, rel=0.03)


def test_timings_of_one_stage_in_several_threads_and_inside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, meter = Clock(monkeypatch), Meter()
    with meter.timing("write"), meter.timing("write"):
        clock.now += 2
        with meter.timing("rows"):
            clock.now += 1
        assert meter.snapshot().seconds == {"write": 6, "rows": 1}
    assert meter.snapshot().seconds == {"write": 6, "rows": 1}


def test_threads_lose_nothing_and_snapshots_never_fall() -> None:
    meter, done = Meter(), threading.Event()
    seen: list[Counter[str]] = []

    def work() -> None:
        for _ in range(500):
            with meter.timing("infer"):
                pass

    def watch() -> None:
        while not done.is_set():
            seen.append(meter.snapshot().seconds)

    watcher = threading.Thread(target=watch)
    workers = [threading.Thread(target=work) for _ in range(8)]
    for thread in (watcher, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    watcher.join()
    assert meter.snapshot().runs.total() == 8 * 500
    falls = [(one, other) for one, other in pairwise(seen) if other["infer"] < one["infer"] - 1e-9]
    assert not falls


def test_seconds_move_from_one_process_to_another() -> None:
    there, here = Meter(), Meter()
    there.enter("decode")
    time.sleep(0.02)
    there.enter("preprocess")
    taken = json.loads(json.dumps(there.take()))
    assert set(taken) == {"decode", "preprocess"}
    assert taken["decode"] >= 0.02
    assert there.take() == {}
    assert not there.snapshot().seconds
    here.enter("wait_for_slot")
    here.leave()
    here.add(taken)
    here.add({"decode": 1.0})
    found = here.snapshot().seconds
    assert found["decode"] == pytest.approx(taken["decode"] + 1.0)
    assert set(found) == {"wait_for_slot", "decode", "preprocess"}
