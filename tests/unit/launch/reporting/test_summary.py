"""summary.py: is every record accounted for, which exit code is it, and what is left in summary.json and logs/latest."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import BulkinferError, RunError, UsageError
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.jobs.begun_config import continuing
from bulkinfer.launch.reporting.summary import begin, count_rows, exit_code, finish
from bulkinfer.launch.reporting.totals import Aggregate, Outcome
from bulkinfer.records.sources.folder import Unreadable
from bulkinfer.results.job_file import JobFile, RowCounts
from bulkinfer.types import Step
from bulkinfer.worker.metrics import Metrics
from bulkinfer.worker.protocol import Ended, Ready, StepDone, Totals

from tests.launches import launch_of, plan_of
from tests.temporaries import temporary_name

COUNTS = ("records", "ok", "errors", "errors_by_stage")


@dataclass
class FakeEngine:
    """What an engine tells at the end."""

    signal: int | None = None
    replaced: list[str] = field(default_factory=list)
    nodes: dict[str, ThreadPlan] = field(default_factory=dict)

    def run(self) -> None: ...


def part(ok: int, **stages: int) -> dict[str, Any]:
    return {"ok": ok, "errors": sum(stages.values()), "stages": stages, "sha256": ""}


def after(launch: Launch, *parts: dict[str, Any], complete: bool = True) -> Launch:
    """The launch with these parts published."""
    assert launch.job_file is not None
    launch.job_file.content.update(parts={str(number): part for number, part in enumerate(parts)}, complete=complete)
    return launch


def code_of(launch: Launch, engine: FakeEngine | None = None) -> int:
    return exit_code(launch, count_rows(launch.job_file), engine)


def finished(
    launch: Launch, engine: FakeEngine | None, refusal: BulkinferError | None = None, *, ready: bool = True
) -> tuple[int, dict[str, Any]]:
    """The exit code and summary.json of a launch in which one worker did what it could."""
    aggregate = Aggregate(time.perf_counter())
    if ready:
        metrics = Metrics()
        metrics.add_seconds("infer", 1.5)
        totals = Totals(metrics.as_json(), 100, 1.0)
        aggregate.add(0, Ready({"provider": "P"}, 0.5, 50.0, {"numpy": "2"}, 4711))
        aggregate.add(0, StepDone(Step(0, 0, 10), 10, 10, {}, "", 1.0, 0.25, 0.5, totals))
        aggregate.add(0, Ended(totals))
    result = finish(launch, Outcome(aggregate, engine, refusal))
    summary: dict[str, Any] = json.loads((launch.log_dir / "summary.json").read_text())
    assert (summary["exit_code"], result.summary) == (result.exit_code, launch.log_dir / "summary.json")
    assert [summary[name] for name in COUNTS] == [getattr(result, name) for name in COUNTS]
    return result.exit_code, summary


# -- exit codes ----------------------------------------------------------------------------------------------------------


def test_exit_codes(tmp_path: Path) -> None:
    launch = launch_of(tmp_path)
    assert code_of(after(launch, part(6), part(4)), FakeEngine()) == 0
    assert code_of(after(launch, part(6), part(4))) == 0, "nothing was left to do"
    assert code_of(after(launch, part(6), part(2, decode=1, infer=1)), FakeEngine()) == 3
    assert code_of(after(launch, part(6), complete=False), FakeEngine()) == 1
    assert code_of(after(launch, part(6)), FakeEngine()) == 1, "complete by its parts, and a record is missing"
    assert code_of(after(launch, part(6), complete=False), FakeEngine(signal.SIGINT)) == 130
    assert code_of(after(launch, part(10)), FakeEngine(signal.SIGTERM)) == 143


def test_folders_that_could_not_be_read_are_no_success(tmp_path: Path) -> None:
    launch = after(launch_of(tmp_path), part(10))
    assert launch.job.dataset is not None
    assert launch.job.dataset.scan is not None
    launch.job.dataset.scan.unreadable.append(Unreadable(b"secret", "permission denied"))
    assert code_of(launch, FakeEngine()) == 3


def test_the_exit_code_of_a_synthetic_run(tmp_path: Path) -> None:
    launch = launch_of(tmp_path, synthetic=True)
    assert code_of(launch, FakeEngine()) == 0
    assert code_of(launch, FakeEngine(signal.SIGINT)) == 130


def test_count_rows() -> None:
    parts = {"a": part(5, decode=2), "b": part(3, decode=1, infer=1)}
    assert count_rows(JobFile({"parts": parts})) == RowCounts(8, {"decode": 3, "infer": 1})
    assert count_rows(None) == RowCounts(0, {})


# -- finish --------------------------------------------------------------------------------------------------------------


def test_a_run_that_went_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = after(launch_of(tmp_path), part(8, decode=2))
    capsys.readouterr()
    code, summary = finished(launch, FakeEngine(replaced=["worker 0 ended by signal 9 (SIGKILL)"]))
    assert code == 3
    assert (summary["records"], summary["ok"], summary["errors_by_stage"]) == (10, 8, {"decode": 2})
    assert (summary["refusal"], summary["input"], summary["job"]) == (None, "pictures", launch.log_dir.name)
    assert summary["replaced_workers"] == ["worker 0 ended by signal 9 (SIGKILL)"]
    assert summary["output"] == str(launch.output)
    assert summary["decode"] == "exact"
    assert (summary["pictures"], summary["cpu_s"], summary["versions"]) == (10, 1.0, {"numpy": "2"})
    assert json.loads((launch.log_dir / "_job.json").read_text())["fingerprint"] == launch.job.fingerprint
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("Total "), "the rest since the last line"
    assert lines[1].startswith("total: 10 pictures in ")
    assert lines[2:] == [
        "thread-seconds: infer 1.5",
        "replaced: worker 0 ended by signal 9 (SIGKILL)",
        "records: 10 = 8 ok + 2 errors (2 at decode)",
        f"  to run the error rows again: bulkinfer retry {launch.output}",
        f"results: {launch.output}",
        f"summary: {launch.log_dir / 'summary.json'}",
    ]
    assert err == ""


def test_nothing_left_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = after(launch_of(tmp_path), part(10))
    code, summary = finished(launch, None, ready=False)
    assert (code, summary["pictures"], summary["replaced_workers"]) == (0, 0, [])
    assert "total: nothing left to do\n" in capsys.readouterr().out


def test_an_incomplete_run_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = launch_of(tmp_path)
    code, _ = finished(after(launch, part(6), complete=False), FakeEngine())
    assert code == 1
    out, err = capsys.readouterr()
    assert "records: 10 = 6 ok + 0 errors + 4 not done\n" in out
    assert err == f"incomplete: 4 of 10 records have no row; to continue: {continuing(launch.job.config)}\n"


@pytest.mark.parametrize(("refusal", "code"), [(RunError("disk full"), 1), (UsageError("no such provider"), 2)])
def test_a_refusal_is_kept_and_told_only_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refusal: BulkinferError, code: int
) -> None:
    found, summary = finished(after(launch_of(tmp_path), part(6), complete=False), FakeEngine(), refusal)
    assert (found, summary["refusal"]) == (code, str(refusal))
    out, err = capsys.readouterr()
    assert "+ 4 not done" in out
    assert err == "", "the command itself says why"


def test_a_synthetic_run_has_no_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = launch_of(tmp_path, synthetic=True)
    code, summary = finished(launch, FakeEngine())
    assert (code, summary["output"], summary["input"], summary["records"]) == (0, None, "synthetic", 0)
    out = capsys.readouterr().out
    assert "synthetic: without reading" in out
    assert "records:" not in out
    assert not (launch.log_dir / "_job.json").exists()


def test_what_was_ignored_is_in_the_summary(tmp_path: Path) -> None:
    launch = after(launch_of(tmp_path), part(10))
    (tmp_path / "photos" / "notes.txt").write_text("x")
    assert launch.job.dataset is not None
    assert launch.job.dataset.scan is not None
    launch.job.dataset.scan.not_pictures[".txt"] += 1
    _, summary = finished(launch, FakeEngine())
    assert summary["ignored"] == launch.job.dataset.scan.summary()
    assert any("txt" in line for line in summary["ignored"])


# -- the beginning -------------------------------------------------------------------------------------------------------


def test_begin_takes_away_what_an_earlier_launch_said(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        begin(tmp_path / name)
        assert os.readlink(tmp_path / "latest") == name
    (tmp_path / "two" / "summary.json").write_text("{}")
    for folder in (tmp_path, tmp_path / "two"):  # what a launcher was writing when it was killed
        (folder / temporary_name("0000")).touch()
    begin(tmp_path / "two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "one", "two"]
    assert list((tmp_path / "two").iterdir()) == []


def test_the_plan_is_in_the_summary(tmp_path: Path) -> None:
    launch = after(launch_of(tmp_path), part(10))
    launch = replace(launch, threads=replace(launch.threads, num_workers=7))
    assert finished(launch, FakeEngine())[1]["plan"]["num_workers"] == 7


def test_the_plan_on_several_nodes_is_theirs(tmp_path: Path) -> None:
    """The workers of all, and the threads of one of them; each node has its own beside it."""
    nodes = {"node a": replace(plan_of(2), num_workers=5), "node b": plan_of(3)}
    _, summary = finished(launch_of(tmp_path), FakeEngine(nodes=nodes))
    assert (summary["plan"]["num_devices"], summary["plan"]["num_workers"]) == (5, 5)
    assert {name: plan["num_devices"] for name, plan in summary["nodes"].items()} == {"node a": 2, "node b": 3}
