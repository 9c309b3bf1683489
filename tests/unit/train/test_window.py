"""train/window.py: what is reported of the updates since the last row."""

from __future__ import annotations

from pathlib import Path

from tests.training import assert_same_weights, table, trained


def test_without_metrics_right_answers_are_not_counted(tmp_path: Path) -> None:
    plain, bare = (trained(tmp_path / str(metrics), metrics=metrics) for metrics in (True, False))
    assert_same_weights(plain, bare)
    assert table(bare, "training.csv", "step", "loss") == table(plain, "training.csv", "step", "loss")
    assert {accuracy for (accuracy,) in table(bare, "training.csv", "accuracy")} == {"nan"}
    assert "accuracy" not in (bare / "log.txt").read_text()
    assert all(0 <= float(accuracy) <= 1 for (accuracy,) in table(plain, "training.csv", "accuracy"))
