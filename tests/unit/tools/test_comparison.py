"""tools/bench/comparison.py."""

from __future__ import annotations

import pytest

from tools.bench.comparison import (
    DEVICE_ONLY,
    OURS,
    Finished,
    RefusedError,
    Run,
    agreement,
    batches_per_step,
    between_steps,
    enough_pictures,
    figures,
    from_ready,
    judged,
    ratios,
    read_benchmark_app,
    table,
    together,
)


def run(contestant: str, number: int, rate: float, **more: object) -> Run:
    """A run of 100 pictures at a rate; 20 CPU ms a picture."""
    return Run(contestant, number, 100, 100 / rate, 2.0, **more)  # type: ignore[arg-type]


def test_the_first_step_is_not_counted() -> None:
    steps = [Finished(10.0, 6), Finished(11.0, 6), Finished(14.0, 4)]
    assert between_steps(steps) == (10, 4.0)


def test_from_readiness_all_steps_count() -> None:
    assert from_ready(9.0, [Finished(10.0, 6), Finished(14.0, 4)]) == (10, 5.0)


@pytest.mark.parametrize("steps", [[], [Finished(1.0, 6)]])
def test_a_run_of_one_step_has_no_rate(steps: list[Finished]) -> None:
    with pytest.raises(RefusedError, match="give more pictures"):
        between_steps(steps)


def test_several_workers_count_while_all_of_them_work() -> None:
    early = [Finished(float(second), 10) for second in range(0, 11)]  # 10 a second, from 0 to 10
    late = [Finished(5 + second / 2, 10) for second in range(0, 21)]  # 20 a second, from 5 to 15
    assert together([early, late]) == pytest.approx(30)
    assert together([early]) == pytest.approx(10)


def test_workers_that_never_work_together_have_no_rate() -> None:
    with pytest.raises(RefusedError, match="give more pictures"):
        together([[Finished(0.0, 6), Finished(1.0, 6)], [Finished(2.0, 6), Finished(3.0, 6)]])
    with pytest.raises(RefusedError, match="no step"):
        together([[Finished(0.0, 6)], []])


def test_ratios_are_those_of_one_round() -> None:
    runs = [run(OURS, 1, 20), run("loop", 1, 10), run(OURS, 2, 30), run("loop", 2, 20), run(OURS, 3, 1)]
    assert ratios(runs, OURS, "loop") == pytest.approx([2.0, 1.5])


def test_figures_hold_medians_and_quartiles() -> None:
    rates = [10, 50, 20, 40, 30]  # quartiles 20, 30, 40
    runs = [run(name, number, rate * factor) for number, rate in enumerate(rates) for name, factor in ((OURS, 3), ("ray", 1))]
    found = figures(runs)
    assert list(found) == [OURS, "ray"]
    assert found["ray"]["images_per_s"] == pytest.approx({"median": 30, "lower": 20, "upper": 40})
    assert found["ray"]["cpu_ms_per_picture"] == pytest.approx({"median": 20, "lower": 20, "upper": 20})
    assert found["ray"]["ours_over_peer"] == pytest.approx({"median": 3, "lower": 3, "upper": 3})
    assert found["ray"]["runs"] == 5
    assert "ours_over_peer" not in found[OURS]


def test_benchmark_app_is_compared_to_the_network_alone() -> None:
    runs = [run(OURS, 1, 10), run(DEVICE_ONLY, 1, 40), run("openvino", 1, 20)]
    found = figures(runs)["openvino"]
    assert found["compared_to"] == DEVICE_ONLY
    assert found["ours_over_peer"]["median"] == pytest.approx(2)


def test_table() -> None:
    runs = [
        run(OURS, 1, 20, agreement=0.953, facts={"precision": "bf16"}),
        run("loop", 1, 10, agreement=0.985, facts={"precision": "fp32"}),
        run(DEVICE_ONLY, 1, 30, facts={"precision": "bf16"}),
        run("openvino", 1, 30, facts={"precision": "bf16"}),
    ]
    rows = table(runs)
    assert {row.count("|") for row in rows} == {8}
    assert rows[2:] == [
        "| ours | bf16 | 1 | 20.0 (20.0 - 20.0) | 20.0 (20.0 - 20.0) |  | 95.3% |",
        "| loop | fp32 | 1 | 10.0 (10.0 - 10.0) | 20.0 (20.0 - 20.0) | 2.00 (2.00 - 2.00) | 98.5% |",
        "| ours --synthetic | bf16 | 1 | 30.0 (30.0 - 30.0) | 20.0 (20.0 - 20.0) |  |  |",
        "| openvino | bf16 | 1 | 30.0 (30.0 - 30.0) | 20.0 (20.0 - 20.0) | 1.00 (1.00 - 1.00) | writes none |",
    ]


def test_answers_must_be_ours_on_98_percent() -> None:
    ours = {f"{number}.jpg": number for number in range(100)}
    assert agreement(ours, ours) == 1
    assert judged(ours, {**ours, "0.jpg": 7, "1.jpg": 7}) == pytest.approx(0.98)
    with pytest.raises(RefusedError, match=r"97\.0%.*not the same job"):
        judged(ours, {**ours, "0.jpg": 7, "1.jpg": 7, "2.jpg": 7})


def test_every_picture_needs_its_answer() -> None:
    ours = {"0.jpg": 1, "1.jpg": 2}
    with pytest.raises(RefusedError, match=r"1 of 2 pictures have no answer"):
        agreement(ours, {"0.jpg": 1})
    with pytest.raises(RefusedError, match="1 are foreign"):
        agreement(ours, {**ours, "2.jpg": 1})


@pytest.mark.parametrize(
    ("slowest", "seconds", "batch_size", "count"), [(10, 10, 6, 192), (9.6, 10, 6, 96), (0.1, 10, 6, 96), (100, 10, 1, 1008)]
)
def test_runs_are_whole_steps_and_long_enough(slowest: float, seconds: float, batch_size: int, count: int) -> None:
    assert enough_pictures(slowest, seconds, batch_size) == count
    assert count % (batches_per_step(count, batch_size) * batch_size) == 0


def test_benchmark_app_is_read() -> None:
    lines = [
        "[ INFO ]   INFERENCE_PRECISION_HINT: <Type: 'bfloat16'>\n",
        "[ INFO ] Count:            64 iterations\n",
        "[ INFO ] Duration:         2651.46 ms\n",
    ]
    assert read_benchmark_app(lines) == (64, pytest.approx(2.65146), "bf16")
    with pytest.raises(RefusedError, match="benchmark_app"):
        read_benchmark_app(lines[:2])
