"""Shares of stages, and what limits the rate."""

from __future__ import annotations

import pytest
from bulkinfer.insight.report.stages import stage_times


@pytest.mark.parametrize(
    ("wait_for_slot", "wait_for_batch", "limit"),
    [
        (0.5, 6.0, "preparing pictures, most of all: decode."),
        (6.0, 0.5, "the network."),
        (0.2, 0.1, "both sides at once."),
    ],
)
def test_the_side_that_waits_less_limits(wait_for_slot: float, wait_for_batch: float, limit: str) -> None:
    times = {"read": 0.5, "decode": 3.0, "preprocess": 1.0, "wait_for_slot": wait_for_slot, "wait_for_batch": wait_for_batch,
             "infer": 4.0, "rows": 0.1, "write": 0.2}  # fmt: skip
    found = stage_times(times)
    assert found is not None
    assert found.bottleneck.startswith(limit)
    shares = {stage.name: stage.share for stage in found.stages}
    assert shares["decode"] == pytest.approx(3.0 / (4.5 + wait_for_slot))
    assert shares["run the network"] == pytest.approx(4.0 / (4.1 + wait_for_batch))
    assert shares["write results"] is None
    assert {stage.name for stage in found.stages if stage.is_wait} == {"wait for the network", "wait for pictures"}


def test_runs_without_pictures_and_without_times() -> None:
    found = stage_times({"wait_for_batch": 0.1, "infer": 4.0})
    assert found is not None
    assert found.bottleneck == "the network. This run prepared no pictures."
    assert stage_times({}) is None
