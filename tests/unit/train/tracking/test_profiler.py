"""train/tracking/profiler.py: the trace of some updates, after which the run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.train import launch

from tests.training import assert_same_weights, command, config_of, one_thread, table, trained


def test_a_profile_of_two_updates_changes_nothing_else(tmp_path: Path) -> None:
    plain = trained(tmp_path / "plain", logs_per_epoch=5.0)
    run = trained(tmp_path / "profiled", logs_per_epoch=5.0, profile=2)
    assert_same_weights(plain, run)
    assert table(run, "training.csv", "step", "loss") == table(plain, "training.csv", "step", "loss")
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    names = [event.get("name") for event in events]
    assert "aten::convolution" in names
    updates = [event for event in events if event.get("name") == "update" and event.get("cat") == "user_annotation"]
    assert len(updates) == 2
    assert all(event["dur"] > 0 for event in updates)
    lines = (run / "profile.txt").read_text().splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("---")]
    assert rules[2] - rules[1] - 1 == 20, "rows of the table"
    assert any(line.split()[0].startswith("aten::") for line in lines[rules[1] + 1 : rules[2]])
    assert f"profile: updates 4 to 5: {run / 'trace.json'} for ui.perfetto.dev" in (run / "log.txt").read_text()


def test_it_is_of_one_start_and_ends_with_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path, steps=5, profile=9)
    assert "profile: updates 4 to 5: " in capsys.readouterr().out
    (run / "trace.json").unlink()
    assert command("--resume", run, "--steps", 11) == 0
    assert not (run / "trace.json").exists()
    assert command("--resume", run, "--steps", 16, "--profile", 1) == 0
    assert "profile: updates 15 to 15: " in capsys.readouterr().out
    assert command("--resume", run, "--steps", 18, "--profile", 1) == 2
    assert "--profile 1: it begins after 3 updates, and 2 are left: give more --steps" in capsys.readouterr().err


def test_too_few_updates_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="--profile 1: it begins after 3 updates, and 3 are left: give more --steps"),
        one_thread(),
    ):
        launch.train(config_of(tmp_path, steps=3, profile=1))
    assert not (tmp_path / "logs").exists()
