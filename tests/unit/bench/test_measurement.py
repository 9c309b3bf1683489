"""measurement.py: what lies between two finished steps, and when it is over; arithmetic on made-up reports."""

from __future__ import annotations

import time

import pytest
from bulkinfer.bench import measurement
from bulkinfer.bench.measurement import Measurement, Stopwatch, between, cut, step_size, stopped_by
from bulkinfer.errors import RunError
from bulkinfer.types import Step
from bulkinfer.worker.protocol import Died, Ready, StepDone, Totals


def done(count: int, total_s: float, *, cpu_s: float, decode: float = 0.0, bad: int = 0, peak: int = 0) -> StepDone:
    """A report of a step; `cpu_s` and `decode` are totals since the worker's start."""
    totals = Totals({"seconds": {"decode": decode}, "runs": {}}, peak, cpu_s)
    stages = {"decode": bad} if bad else {}
    return StepDone(Step(0, 0, count), count, count - bad, stages, "", total_s, 0.0, 0.0, totals)


def test_the_first_step_of_a_worker_is_not_counted() -> None:
    laps = [
        done(6, 9.0, cpu_s=5.0, decode=4.0, bad=1),
        done(6, 1.0, cpu_s=6.0, decode=4.5, bad=2),
        done(12, 2.0, cpu_s=8.0, decode=6.0),
    ]
    assert between({0: laps}) == Measurement(18, 2, 3.0, 6.0, 3.0, {"decode": 2.0}, 0)
    assert between({0: laps}).cpu_s_per_picture == pytest.approx(3.0 / 18)


def test_workers_add_up() -> None:
    laps = {
        0: [done(6, 1.0, cpu_s=1.0, peak=5), done(10, 2.0, cpu_s=3.0, decode=1.0, peak=7)],
        1: [done(6, 1.0, cpu_s=2.0, peak=5), done(30, 3.0, cpu_s=3.0, decode=0.5, peak=9)],
    }
    assert between(laps) == Measurement(40, 0, 3.0, 5.0 + 10.0, 3.0, {"decode": 1.5}, 16)


def test_one_step_is_no_measurement() -> None:
    with pytest.raises(RunError, match=r"worker 1 finished 1 step\(s\).*--seconds"):
        between({0: [done(6, 1.0, cpu_s=1.0)] * 2, 1: [done(6, 1.0, cpu_s=1.0)]})


def test_the_watch_stops_when_the_time_is_over_and_every_worker_has_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    stops: list[float] = []
    watch = Stopwatch(lambda _: [], 2, seconds=3.0)
    watch.stop = lambda: stops.append(now[0])
    told = ((0, 0.0), (0, 5.0), (1, 6.0), (0, 8.0), (0, 9.5), (1, 9.6), (0, 9.9))
    for worker, at in told:
        now[0] = 100.0 + at
        assert watch.on_event(worker, done(6, 1.0, cpu_s=1.0), [0, 1]) is None
    assert stops == [109.6]  # 3 s after the last worker had begun, but not before it had a second step
    assert (len(watch.laps[0]), len(watch.laps[1])) == (4, 2)  # what comes after the stop is cut short, and no lap


def test_a_dead_worker_spoils_it() -> None:
    watch = Stopwatch(lambda _: [], 1, seconds=3.0)
    assert watch.on_event(0, Ready({"nodes": {}}, 0.1, 5.0, {}, 1), [0]) is None
    assert watch.ready is not None
    assert "worker 0 ended by signal 9" in str(watch.on_event(0, Died("signal 9", by_another=True), [0]))
    assert not watch.is_published(Step(0, 0, 1))


@pytest.mark.parametrize(("rate", "streams", "size"), [(120.0, 2, 48), (1.0, 2, 12), (1.0, 1, 6)])
def test_steps_are_a_fifth_of_the_time_and_give_each_stream_a_batch(rate: float, streams: int, size: int) -> None:
    assert step_size(rate, 2.0, streams, 6) == size


def test_steps_are_cut_from_what_is_there() -> None:
    assert cut(6, 20, 1, 6) == [Step(0, 0, 6), Step(0, 6, 12), Step(0, 12, 18)]
    assert len(cut(6, 1 << 40, 3, 6)) == measurement._STEPS * measurement._SPARE * 3


def test_steps_are_shorter_where_records_would_run_out() -> None:
    steps = cut(6000, 1000, 2, 6)
    assert len(steps) == 12  # for two workers: the first one, which is not counted, and five more
    assert {len(step) for step in steps} == {78}


def test_a_signal_decides_the_exit_code() -> None:
    assert (stopped_by(2).exit_code, stopped_by(15).exit_code) == (130, 143)
    assert str(stopped_by(2)) == "stopped before the end: nothing is kept"
