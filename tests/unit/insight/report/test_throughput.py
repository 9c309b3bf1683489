"""Pictures per second out of event logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.insight.report.throughput import read_intervals, throughput_curve

from tests.reports import write_logs


def test_no_picture_is_lost_or_counted_twice(tmp_path: Path) -> None:
    write_logs(tmp_path, [(1010.0, 100, 10.0), (1013.0, 90, 3.0), (1014.5, 7, 1.5)])
    curve = throughput_curve(tmp_path)
    assert curve is not None
    assert curve.seconds == pytest.approx(14.5)
    assert sum(curve.images_per_s) * curve.point_s == pytest.approx(197)
    assert curve.images_per_s[0] == pytest.approx(10)  # 100 pictures in 10 s


def test_workers_add_up_and_pauses_are_left_out(tmp_path: Path) -> None:
    write_logs(tmp_path, [(1010.0, 100, 10.0), (5010.0, 100, 10.0)])
    (tmp_path / "worker-1.jsonl").write_text((tmp_path / "worker-0.jsonl").read_text())
    curve = throughput_curve(tmp_path)
    assert curve is not None
    assert (curve.num_workers, curve.num_pauses) == (2, 1)
    assert curve.seconds == pytest.approx(20)
    assert curve.images_per_s == pytest.approx([20] * len(curve.images_per_s))


def test_warm_up_and_half_lines_are_left_out(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.jsonl"
    log.write_text(
        '{"time": 1, "kind": "Ready"}\n'
        '{"time": 5, "kind": "StepDone", "count": 6, "total_s": 1, "warm_up": 6}\n'
        '{"time": 9, "kind": "StepDone", "count": 8, "total_s": 2, "warm_up": 2}\n'
        '{"time": 11, "kind": "StepDone", "count": 8, "tot'
    )
    intervals, unreadable = read_intervals(log)
    assert [(each.start, each.end, each.pictures) for each in intervals] == [(7, 9, 6)]
    assert unreadable == 1


def test_no_steps_no_curve(tmp_path: Path) -> None:
    assert throughput_curve(tmp_path) is None
