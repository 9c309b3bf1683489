"""report.py: the arithmetic of a bench on made-up measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bulkinfer.bench.measurement import Measurement
from bulkinfer.bench.report import Quartiles, Throughput, report, throughput

from tests.launches import plan_of

PLAN = replace(plan_of(), streams=2, num_workers=3)
STAGES = {
    "read": 0.6, "decode": 3.0, "preprocess": 1.2, "wait_for_slot": 1.2,
    "wait_for_batch": 1.0, "infer": 2.9, "rows": 0.1, "write": 0.02,
}  # fmt: skip


def measured(
    rate: float, cpu_s_per_picture: float, *, seconds: float = 2.0, stages: dict[str, float] | None = None
) -> Measurement:
    pictures = round(rate * seconds)
    return Measurement(pictures, 0, seconds, rate, cpu_s_per_picture * pictures, stages or {}, 0)


def of(decode: float, infer: float, whole: float, *, shared: bool = True, stages: dict[str, float] = STAGES) -> Throughput:
    """Figures of one round on 4 cores: rates that follow from CPU times per picture, and a rate of end to end."""
    measurements = {
        "decode": measured(4 / decode, decode),
        "inference": measured(4 / infer, infer),
        "end_to_end": measured(whole, decode + infer, stages=stages),
    }
    return throughput([measurements], PLAN, 4, shared=shared)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([5.0], (5.0, 5.0, 5.0)), ([1.0, 3.0], (2.0, 1.5, 2.5)), ([5.0, 1.0, 2.0, 4.0, 3.0], (3.0, 2.0, 4.0))],
)
def test_quartiles(values: list[float], expected: tuple[float, float, float]) -> None:
    assert Quartiles.of(values) == Quartiles(*expected)


def test_figures_are_medians_over_rounds() -> None:
    rounds = [
        {kind: measured(rate * factor, 0.01) for kind, rate in (("decode", 400.0), ("inference", 200.0), ("end_to_end", 100.0))}
        for factor in (1.0, 1.2, 0.5)
    ]
    found = throughput(rounds, PLAN, 4, shared=True)
    assert {kind: value.median for kind, value in found.rate.items()} == {
        "decode": 400.0, "inference": 200.0, "end_to_end": 100.0,
    }  # fmt: skip
    assert found.rate["decode"].lower == 300.0


def test_on_one_processor_the_ideal_is_all_cores_over_both_cpu_times() -> None:
    found = of(0.01, 0.03, 80.0)
    assert found.ideal == pytest.approx(4 / 0.04)
    assert found.share_of_ideal == pytest.approx(0.8)


def test_on_two_kinds_of_hardware_it_is_the_smaller_ceiling() -> None:
    found = of(0.01, 0.001, 300.0, shared=False)
    assert found.ideal == pytest.approx(400.0)
    assert found.bottleneck == "decoding, which reaches 400.0 images/sec, the other side 4000.0"
    assert of(0.001, 0.01, 300.0, shared=False).bottleneck.startswith("the network, which reaches 400.0")


def test_loader_threads_that_hinder_each_other_get_advice() -> None:
    """400 images/s at 4 ms of CPU time are 1.6 of 4 cores."""
    assert of(0.004, 0.001, 300.0, shared=False).bottleneck == (
        "decoding, which reaches 1000.0 images/sec, the other side 4000.0"
    )
    rounds = [{kind: measured(rate, 0.004) for kind, rate in (("decode", 400.0), ("inference", 9000.0), ("end_to_end", 390.0))}]
    assert throughput(rounds, PLAN, 4, shared=False).bottleneck == (
        "decoding, which reaches 400.0 images/sec, the other side 9000.0; its threads use 40 % of the cores' time: "
        "--loader_processes N decodes in more processes"
    )


def test_the_bottleneck_is_what_takes_most_of_the_cores() -> None:
    assert of(0.01, 0.03, 99.0).bottleneck == "the network, 75 % of the CPU time of a picture; all cores are in use"
    assert of(0.03, 0.01, 99.0).bottleneck.startswith("decoding, 75 %")


def test_cores_that_stand_idle_are_told_with_who_waits() -> None:
    waiting = {**dict.fromkeys(STAGES, 0.0), "wait_for_batch": 3.0, "read": 6.0}
    assert of(0.01, 0.03, 50.0, stages=waiting).bottleneck == (
        "neither, 50 % of the cores' time is not used: the streams wait for pictures"
    )
    waiting |= {"wait_for_slot": 6.0}
    assert of(0.01, 0.03, 50.0, stages=waiting).bottleneck.endswith("the loader threads wait for the network")


def test_cores_that_others_took_are_told_apart_from_idle_ones() -> None:
    busy = {**STAGES, "decode": 6.0, "infer": 4.0}
    assert of(0.01, 0.03, 50.0, stages=busy).bottleneck.startswith(
        "other programs: the threads had work for all cores and got 50 % of their time"
    )


def test_wall_time_is_split_by_kind_of_thread() -> None:
    split = of(0.01, 0.03, 99.0).split
    assert split["loaders"] == pytest.approx({"read": 0.1, "decode": 0.5, "preprocess": 0.2, "wait for model": 0.2})
    assert split["streams"] == pytest.approx({"wait for data": 0.25, "infer": 0.725, "rows": 0.025})
    assert split["publisher"] == pytest.approx({"write": 0.01})


def test_normalising_is_the_work_of_streams_where_a_graph_wants_it() -> None:
    """4 cores: loader threads with work for 4.2 / 2 of them, streams for 3.9 / 2, of which half a core normalises."""
    found = of(0.01, 0.03, 99.0, stages={**STAGES, "infer": 1.9, "normalise": 1.0})
    assert found.split["streams"] == pytest.approx({"wait for data": 0.25, "normalise": 0.25, "infer": 0.475, "rows": 0.025})
    assert sum(found.split["loaders"].values()) == pytest.approx(1.0)
    assert found.wanted == pytest.approx((2.1 + 0.5 + 0.95) / 4)


def test_report() -> None:
    assert report(of(0.01, 0.03, 80.0), PLAN) == [
        "                    images/sec  quartiles         CPU ms a picture  quartiles",
        "decode ceiling           400.0  400.0 .. 400.0               10.00  10.00 .. 10.00",
        "inference ceiling        133.3  133.3 .. 133.3               30.00  30.00 .. 30.00",
        "end to end                80.0  80.0 .. 80.0                 40.00  40.00 .. 40.00",
        "ideal: 100.0 images/sec, 4 usable cores over the CPU time of decoding and inference together; "
        "end to end reaches 80 % of it",
        "CPU time: a picture end to end takes 100 % of decoding and inference together",
        "bottleneck: other programs: the threads had work for all cores and got 80 % of their time; "
        "measure again when the host is quiet",
        "end to end, share of the wall time of",
        "  3 loader thread(s): read 10.0 %, decode 50.0 %, preprocess 20.0 %, wait for model 20.0 %",
        "  2 stream(s):        wait for data 25.0 %, infer 72.5 %, rows 2.5 %",
        "  publishing:         write 1.0 %",
    ]
