"""totals.py: when the line of all workers is due and what it says, and what goes into the summary."""

from __future__ import annotations

import time
from typing import Any

import pytest
from bulkinfer.launch.reporting.totals import Aggregate
from bulkinfer.results.parquet_parts import Part
from bulkinfer.types import Step
from bulkinfer.worker.metrics import Metrics
from bulkinfer.worker.protocol import Died, Ended, Event, Ready, Recovered, StepDone, Totals


class Clock:
    """Stands in for the module's clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def ready(rate: float = 50.0, load_s: float = 0.5) -> Event:
    return Ready({"provider": "P"}, load_s, rate, {"numpy": "2"}, 4711)


def totals(infer_s: float = 0.0, runs: tuple[float, ...] = (), peak_memory_bytes: int = 100) -> Totals:
    metrics = Metrics()
    if infer_s:
        metrics.add_seconds("infer", infer_s)
    for run in runs:
        metrics.count_run(run)
    return Totals(metrics.as_json(), peak_memory_bytes, 1.5)


def step(start: int, count: int, *, total_s: float = 10.0, wait_s: float = 1.0, compute_s: float = 8.0, errors: int = 0,
         end: int | None = None, warm_up: int = 0, **more: Any) -> Event:  # fmt: skip
    return StepDone(
        Step(0, start, end or start + count), count, count - errors, {"decode": errors} if errors else {}, f"s{start}",
        total_s, wait_s, compute_s, totals(**more), warm_up,
    )  # fmt: skip


def test_one_line_a_step_of_one_worker(clock: Clock) -> None:
    aggregate = Aggregate(time.perf_counter())
    clock.now += 3
    aggregate.add(0, ready())
    assert aggregate.next_line([0]) is None
    clock.now += 10
    aggregate.add(0, step(0, 300))
    line = aggregate.next_line([0])
    assert line == "Total 10.000 sec.   Preprocessing 1.000 sec (10.0%).   Compute 8.000 sec (80.0%).   30.0 images/sec."
    assert not aggregate.line_is_due
    assert aggregate.next_line([0]) is None
    clock.now += 5
    aggregate.add(0, step(300, 300, total_s=5, wait_s=0.5, compute_s=4.5))
    line = aggregate.next_line([0])
    assert line == "Total 5.000 sec.   Preprocessing 0.500 sec (10.0%).   Compute 4.500 sec (90.0%).   60.0 images/sec."


def test_a_line_waits_for_the_slowest_busy_worker(clock: Clock) -> None:
    aggregate = Aggregate(time.perf_counter())
    for worker in (0, 1):
        aggregate.add(worker, ready())
    for start in (0, 100, 200):
        clock.now += 4
        aggregate.add(0, step(start, 100, total_s=4, wait_s=0.4, compute_s=3.2))
        assert aggregate.next_line([0, 1]) is None
    clock.now += 8
    aggregate.add(1, step(300, 100, total_s=20, wait_s=10.0, compute_s=4.0))
    # 400 pictures in 20 s by the wall clock; shares: mean of 10, 10, 10 and 50 %, and of 80, 80, 80 and 20 %
    line = aggregate.next_line([0, 1])
    assert line == "Total 20.000 sec.   Preprocessing 4.000 sec (20.0%).   Compute 13.000 sec (65.0%).   20.0 images/sec."
    clock.now += 1
    aggregate.add(0, step(400, 100))
    assert aggregate.next_line([0, 1]) is None, "worker 1 has not finished its second step"
    assert aggregate.line_is_due
    assert aggregate.next_line([0]) is not None, "worker 1 has nothing more to do"


def test_a_worker_that_ends_early_does_not_hold_up_the_lines(clock: Clock) -> None:
    aggregate = Aggregate(time.perf_counter())
    for worker in (0, 1):
        aggregate.add(worker, ready())
        clock.now += 1
        aggregate.add(worker, step(worker * 10, 10))
    assert aggregate.next_line([0, 1]) is not None
    for start in (20, 30, 40):
        clock.now += 1
        aggregate.add(0, step(start, 10))
        assert aggregate.next_line([0]) is not None


def test_the_rest_after_the_last_line(clock: Clock) -> None:
    aggregate = Aggregate(time.perf_counter())
    aggregate.add(0, ready())
    clock.now += 2
    aggregate.add(0, step(0, 10, end=30))
    assert aggregate.line_is_due
    assert aggregate.line().endswith("5.0 images/sec.")
    assert not aggregate.line_is_due


def test_a_step_without_duration_divides_by_nothing() -> None:
    aggregate = Aggregate(time.perf_counter())
    aggregate.add(0, ready())
    aggregate.add(0, step(0, 10, total_s=0.0, wait_s=0.0, compute_s=0.0))
    assert "Total 0.000 sec." in aggregate.line()


def test_parts_are_what_was_published() -> None:
    aggregate = Aggregate(time.perf_counter())
    aggregate.add(0, ready())
    aggregate.add(0, step(0, 30, errors=2))
    aggregate.add(0, step(30, 10, end=60, errors=1))  # a stop cut the step short
    assert aggregate.parts == [Part(Step(0, 0, 30), 28, {"decode": 2}, "s0"), Part(Step(0, 30, 40), 9, {"decode": 1}, "s30")]
    assert (aggregate.pictures, aggregate.failures) == (40, 3)


def test_a_recovered_step_is_counted_and_nothing_more_is_known_of_it(clock: Clock) -> None:
    aggregate = Aggregate(clock.now)
    aggregate.add(0, ready())
    clock.now += 5
    aggregate.add(0, Recovered(Step(0, 0, 30)))
    aggregate.add(0, Died("signal 9", True))
    assert (aggregate.pictures, aggregate.failures, aggregate.parts) == (30, 0, [])
    assert (aggregate.running_s, aggregate.images_per_s) == (5.0, 6.0)
    assert aggregate.line_is_due
    assert aggregate.line().endswith("6.0 images/sec.")


def test_the_command_began_before_its_aggregate(clock: Clock) -> None:
    aggregate = Aggregate(clock.now - 30)
    aggregate.add(0, ready())
    assert aggregate.startup_s == 30


def test_throughput_leaves_out_start_and_end(clock: Clock) -> None:
    aggregate = Aggregate(time.perf_counter())
    clock.now += 7
    assert (aggregate.startup_s, aggregate.running_s, aggregate.images_per_s) == (7.0, 0.0, 0.0)
    aggregate.add(1, ready())
    clock.now += 1
    aggregate.add(0, ready())
    clock.now += 9
    aggregate.add(0, step(0, 250))
    clock.now += 10
    aggregate.add(1, step(250, 150))
    clock.now += 100
    aggregate.add(0, Ended(totals()))
    assert (aggregate.startup_s, aggregate.running_s) == (7.0, 20.0)
    assert aggregate.images_per_s == 400 / 20


def test_warm_ups_are_in_no_rate(clock: Clock) -> None:
    """Worker 0 is warm 4 s after it is ready, 30 pictures into its first step; worker 1 is warm 2 s later."""
    aggregate = Aggregate(time.perf_counter())
    clock.now += 3
    for worker in (0, 1):
        aggregate.add(worker, ready(rate=0.0))
    clock.now += 14
    aggregate.add(1, step(1000, 100, total_s=8, wait_s=0.8, compute_s=6.4, warm_up=20))
    assert aggregate.startup_s == 3 + 6, "as far as it is known"
    assert aggregate.next_line([0, 1]) is None
    aggregate.add(0, step(0, 130, total_s=10, wait_s=1, compute_s=8, warm_up=30))
    line = aggregate.next_line([0, 1])
    assert line == "Total 10.000 sec.   Preprocessing 1.000 sec (10.0%).   Compute 8.000 sec (80.0%).   18.0 images/sec."
    clock.now += 10
    aggregate.add(0, step(130, 120))
    assert (aggregate.startup_s, aggregate.running_s, aggregate.images_per_s) == (7.0, 20.0, 300 / 20)
    found = aggregate.measurements()
    assert (found["pictures"], found["warm_up_pictures"], found["images_per_s"]) == (350, 50, 15.0)
    assert found["warm_up_images_per_s"] == {}, "nothing was measured with zeros"


def test_a_step_that_is_all_warm_up_is_no_line(clock: Clock) -> None:
    aggregate = Aggregate(time.perf_counter())
    for worker in (0, 1):
        aggregate.add(worker, ready(rate=0.0))
        clock.now += 5
        aggregate.add(worker, step(worker * 10, 10, total_s=5, warm_up=10))
        assert aggregate.next_line([0, 1]) is None
    clock.now += 5
    aggregate.add(0, step(20, 10, total_s=4))
    assert aggregate.next_line([0, 1]) is None, "worker 1 has done nothing since its warm-up"
    aggregate.add(1, step(30, 10, total_s=5))
    line = aggregate.next_line([0, 1])
    assert line is not None
    assert line.startswith("Total 5.000 sec.")
    assert line.endswith("4.0 images/sec.")


def test_a_run_that_ends_within_its_warm_up_has_the_rate_of_all_its_pictures(clock: Clock) -> None:
    aggregate = Aggregate(time.perf_counter())
    assert not aggregate.is_all_warm_up
    clock.now += 3
    aggregate.add(0, ready(rate=0.0))
    clock.now += 4
    aggregate.add(0, step(0, 6, total_s=4, warm_up=6))
    assert aggregate.next_line([0]) is None
    assert aggregate.is_all_warm_up
    assert aggregate.line_is_due
    assert aggregate.line().startswith("Total 4.000 sec.")
    assert not aggregate.line_is_due
    assert (aggregate.startup_s, aggregate.running_s, aggregate.images_per_s) == (3.0, 4.0, 1.5)


def test_measurements_add_up_over_workers_and_their_successors() -> None:
    aggregate = Aggregate(time.perf_counter())
    aggregate.add(0, ready(rate=50))
    aggregate.add(1, ready(rate=60, load_s=0.7))
    aggregate.add(0, step(0, 10, infer_s=1.0, runs=(0.5, 0.5)))
    aggregate.add(0, step(10, 10, infer_s=3.0, runs=(0.5, 0.5, 0.5)))  # reports are totals: the last one counts
    aggregate.add(0, Died("signal 9", True))
    aggregate.add(0, ready(rate=55))
    aggregate.add(0, Ended(totals(infer_s=10.0, runs=(2.0,), peak_memory_bytes=70)))
    aggregate.add(1, Ended(totals(infer_s=0.25)))
    found = aggregate.measurements()
    assert found["stage_thread_seconds"] == {"infer": 13.25}
    assert found["runs"] == 4
    assert found["run_percentiles_s"]["p50"] == pytest.approx(0.5, rel=0.03)
    assert found["run_percentiles_s"]["p99"] == pytest.approx(2.0, rel=0.03)
    assert found["peak_memory_bytes"] == {"0": 100, "1": 100}, "the largest of a worker's lives"
    assert found["cpu_s"] == 4.5
    assert found["load_s"] == {"0": 0.5, "1": 0.7}
    assert found["warm_up_images_per_s"] == {"0": 55, "1": 60}
    assert found["ran"] == {"0": {"provider": "P"}, "1": {"provider": "P"}}
    assert (found["pictures"], found["versions"]) == (20, {"numpy": "2"})


def test_measurements_of_nothing() -> None:
    found = Aggregate(time.perf_counter()).measurements()
    assert (found["pictures"], found["images_per_s"], found["stage_thread_seconds"]) == (0, 0.0, {})
