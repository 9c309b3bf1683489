"""reporter.py: the steps of a launch, what it shows of its workers, and when it ends itself."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.errors import RunError
from bulkinfer.host.screen import Screen
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.reporting.progress import Progress
from bulkinfer.launch.reporting.reporter import Reporter
from bulkinfer.launch.reporting.totals import Aggregate
from bulkinfer.results.find_output import require_job
from bulkinfer.results.parquet_parts import Part
from bulkinfer.results.part_names import part_name
from bulkinfer.types import Step
from bulkinfer.worker.protocol import Died, Ended, Ready, Recovered, StepDone, Totals

from tests.launches import launch_of, plan_of

PROOF = {"nodes": {"CPUExecutionProvider": 5}, "device": "CPU", "precision": "fp32", "onnxruntime": "1.24"}
NOTHING_USED = Totals({"seconds": {}, "runs": {}}, 0, 0.0)


class Place:
    """A reporter, and what it works on."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.progress = launch, Progress(launch)
        self.aggregate = Aggregate(time.perf_counter())
        self.reporter = Reporter(launch, self.aggregate, self.progress, Screen(self.progress.status))

    @property
    def pictures(self) -> int:
        """How many are shown as done."""
        return self.progress.status().done

    def done(
        self, start: int, end: int, errors: int = 0, *, worker: int = 0, busy: tuple[int, ...] = (0,), warm_up: int = 0
    ) -> RunError | None:
        """Report a step; returns what the reporter makes of it."""
        step, stages = Step(0, start, end), {"decode": errors} if errors else {}
        event = StepDone(step, len(step), len(step) - errors, stages, "", 1.0, 0.25, 0.5, NOTHING_USED, warm_up)
        found = self.reporter.on_event(worker, event, list(busy))
        assert found is None or isinstance(found, RunError)
        return found


def test_the_length_of_steps_follows_from_the_first_batches_and_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first steps are two batches of each stream long. Their share is 13 batches, which no rate exceeds."""
    launch = launch_of(tmp_path, photos=200)
    place = Place(replace(launch, threads=replace(plan_of(), streams=2)))
    assert place.reporter.make_steps(1000.0, 1) == [Step(0, 0, 200)], "the rate of zeros is not that of pictures"
    assert place.reporter.most_records() == 4 * 4
    assert launch.output is not None
    assert "batches_per_step" not in require_job(launch.output).resolved
    assert place.done(0, 16, warm_up=16) is None
    assert place.reporter.most_records() == 4 * 4, "nothing is known yet but the warm-up"
    assert capsys.readouterr().out == ""
    assert place.done(16, 32, warm_up=14) is None
    assert place.reporter.most_records() == 5 * 4, "10 s at 2 pictures a second"
    assert capsys.readouterr().out.splitlines()[0] == (
        "first batches: 2.0 images/sec on one worker; from now on 5 batches x 4 pictures a step, 10 steps"
    )
    assert require_job(launch.output).resolved["batches_per_step"] == 5
    assert place.done(32, 52) is None
    assert place.reporter.most_records() == 5 * 4, "it is measured once"


def test_what_is_to_do_may_be_too_little_to_measure_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = replace(launch_of(tmp_path, photos=33), threads=plan_of(2))
    place = Place(launch)
    assert place.reporter.make_steps(0.0, 2) == [Step(0, 0, 33)]
    assert place.reporter.most_records() == 2 * 4
    assert capsys.readouterr().out == "2 batches x 4 pictures a step, 5 steps\n"
    assert launch.output is not None
    assert require_job(launch.output).resolved["batches_per_step"] == 2
    assert place.done(0, 8) is None
    assert place.reporter.most_records() == 2 * 4


def test_a_length_that_was_asked_for_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Place(launch_of(tmp_path, batches_per_step=1)).reporter
    assert reporter.make_steps(0.0, 1) == [Step(0, 0, 10)]
    assert reporter.most_records() == 4
    assert capsys.readouterr().out == "1 batches x 4 pictures a step, 3 steps\n"


def test_a_synthetic_launch_leaves_no_job_file(tmp_path: Path) -> None:
    reporter = Place(launch_of(tmp_path, synthetic=True, iterations=2)).reporter
    assert reporter.make_steps(40.0, 1) == [Step(0, 0, 200), Step(0, 200, 400)]
    assert reporter.most_records() == 200
    assert not reporter.is_published(Step(0, 0, 200))
    assert not list(tmp_path.rglob("_job.json"))


def test_what_workers_run_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(launch_of(tmp_path))
    for worker in (1, 0):
        assert place.reporter.on_event(worker, Ready(PROOF, 0.5, 50.0, {}, 4711), [0, 1]) is None
    shown = capsys.readouterr().out
    assert shown == "worker 1: 5 nodes on CPUExecutionProvider (CPU), fp32, onnxruntime 1.24\n"
    assert set(place.aggregate.ready) == {0, 1}


def test_lines_come_when_all_busy_workers_have_done_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(launch_of(tmp_path, batches_per_step=1))
    for worker in (0, 1):
        place.reporter.on_event(worker, Ready(PROOF, 0.5, 0.0, {}, 4711), [0, 1])
    place.reporter.make_steps(0.0, 1)
    capsys.readouterr()
    assert place.done(0, 4, busy=(0, 1)) is None
    assert capsys.readouterr().out == ""
    assert place.done(4, 8, worker=1, busy=(0, 1)) is None
    line = capsys.readouterr().out
    assert line.startswith("Total ")
    assert "(25.0%)" in line
    assert place.pictures == 8
    assert place.reporter.on_event(0, Ended(NOTHING_USED), []) is None
    assert capsys.readouterr() == ("", "")


def test_deaths_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(launch_of(tmp_path))
    assert place.reporter.on_event(2, Died("ended by signal 9 (SIGKILL)", True), [0]) is None
    assert place.reporter.on_event(1, Died("ended by exit code 7", False), [0]) is None
    assert capsys.readouterr() == (
        "",
        "worker 2 ended by signal 9 (SIGKILL); a new one takes over\n"
        "worker 1 ended by exit code 7; it is not started again; the others go on without it\n",
    )


def test_a_recovered_step_counts(tmp_path: Path) -> None:
    place = Place(launch_of(tmp_path))
    assert place.reporter.on_event(0, Recovered(Step(0, 0, 8)), [0]) is None
    assert (place.pictures, place.aggregate.pictures) == (8, 8)


def test_too_many_failures_end_the_launch(tmp_path: Path) -> None:
    place = Place(launch_of(tmp_path, max_failures=3))
    assert place.done(0, 4, errors=3) is None
    refusal = place.done(4, 8, errors=1)
    assert str(refusal) == f"4 pictures failed, more than --max_failures 3: see {tmp_path / 'out'}"


def test_failures_of_earlier_launches_count(tmp_path: Path) -> None:
    launch = launch_of(tmp_path, max_failures=3)
    assert launch.job_file is not None
    for step, errors in ((Step(0, 0, 4), 2), (Step(0, 4, 8), 1)):
        launch.job_file.note_part(Part(step, len(step) - errors, {"decode": errors}, ""))
    place = Place(launch)
    assert place.done(0, 4) is None
    assert "4 pictures failed" in str(place.done(4, 8, errors=1))


def test_without_a_limit_all_may_fail(tmp_path: Path) -> None:
    assert Place(launch_of(tmp_path)).done(0, 10, errors=10) is None


def test_a_step_is_published_when_its_file_is_there(tmp_path: Path) -> None:
    place = Place(launch_of(tmp_path))
    assert not place.reporter.is_published(Step(0, 0, 4))
    (tmp_path / "out" / part_name(Step(0, 0, 4))).touch()
    assert place.reporter.is_published(Step(0, 0, 4))
    assert not place.reporter.is_published(Step(0, 0, 3))
