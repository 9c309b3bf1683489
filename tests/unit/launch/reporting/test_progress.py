"""progress.py: how far a launch has come, by what its workers report and by what they have not reported yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.host.status import ENDED, FAILED, FINISHED, RUNNING, STARTING, WorkerStatus
from bulkinfer.launch.reporting import progress as progress_module
from bulkinfer.launch.reporting.progress import Progress
from bulkinfer.results.parquet_parts import Part
from bulkinfer.types import Step
from bulkinfer.worker.protocol import Died, Ended, Ready, Recovered, Refused, StepDone, Totals

from tests.launches import launch_of, plan_of

READY = Ready({}, 0.5, 0.0, {}, 4711)


def done(start: int, end: int, *, errors: int = 0, **seconds: float) -> StepDone:
    step, totals = Step(0, start, end), Totals({"seconds": seconds, "runs": {}}, 0, 0.0)
    stages = {"decode": errors} if errors else {}
    return StepDone(step, len(step), len(step) - errors, stages, "", 1.0, 0.0, 1.0, totals)


class Clock:
    """time.perf_counter() of the module."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress_module.time, "perf_counter", lambda: self.now)


def test_rows_count_before_their_step_is_published(tmp_path: Path) -> None:
    progress = Progress(replace(launch_of(tmp_path), threads=plan_of(2)))
    assert (progress.status().done, progress.status().total) == (0, 10)
    assert progress.status().workers == {0: WorkerStatus(STARTING), 1: WorkerStatus(STARTING)}
    progress.add(0, READY)
    progress.finished(0, 4)
    progress.finished(1, 2)
    assert progress.status().done == 6
    progress.add(0, done(0, 4, errors=1))
    assert progress.status().done == 6, "none of them twice"
    progress.finished(0, 6)
    status = progress.status()
    assert (status.done, status.errors) == (8, {"decode": 1})
    assert status.workers == {0: WorkerStatus(RUNNING, 6), 1: WorkerStatus(STARTING, 2)}


def test_a_resume_counts_what_is_done_already(tmp_path: Path) -> None:
    launch = launch_of(tmp_path)
    assert launch.job_file is not None
    launch.job_file.note_part(Part(Step(0, 0, 4), 2, {"read": 2}, ""))
    status = Progress(replace(launch, todo=[Step(0, 4, 10)])).status()
    assert (status.done, status.total, status.errors) == (4, 10, {"read": 2})


def test_what_a_dead_worker_had_not_published_is_not_done(tmp_path: Path) -> None:
    progress = Progress(launch_of(tmp_path))
    progress.add(0, READY)
    progress.add(0, done(0, 2))
    progress.finished(0, 7)
    assert progress.status().done == 7
    progress.add(0, Recovered(Step(0, 2, 4)))
    assert progress.status().done == 7
    progress.add(0, Died("ended by signal 9 (SIGKILL)", True))
    assert (progress.status().done, progress.status().workers[0]) == (4, WorkerStatus(STARTING, 0))
    progress.add(0, Died("ended by exit code 7", False))
    assert progress.status().workers[0].state == FAILED


def test_the_two_waits_are_shares_of_the_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    threads = replace(plan_of(2), streams=2, num_workers=4)
    progress = Progress(replace(launch_of(tmp_path), threads=threads))
    assert (progress.status().waiting_for_pictures, progress.status().waiting_for_device) == (None, None)
    progress.add(0, READY)
    clock.now += 10
    progress.add(0, done(0, 2, wait_for_batch=5.0, wait_for_slot=10.0))
    assert (progress.status().waiting_for_pictures, progress.status().waiting_for_device) == (0.25, 0.25)
    clock.now += 2
    progress.add(0, done(2, 4, wait_for_batch=9.0, wait_for_slot=10.0))
    assert (progress.status().waiting_for_pictures, progress.status().waiting_for_device) == (1.0, 0.0)
    progress.add(1, READY)
    clock.now += 1
    progress.add(1, done(4, 6, wait_for_batch=0.0, wait_for_slot=2.0))
    assert (progress.status().waiting_for_pictures, progress.status().waiting_for_device) == (0.5, 0.25)


def test_a_run_without_pictures_gets_its_total_late(tmp_path: Path) -> None:
    progress = Progress(launch_of(tmp_path, synthetic=True))
    progress.add(0, READY)
    progress.finished(0, 40)
    assert (progress.status().done, progress.status().total) == (40, None)
    progress.expect(400)
    assert (progress.status().done, progress.status().total) == (40, 400)


def test_the_last_status(tmp_path: Path) -> None:
    progress = Progress(replace(launch_of(tmp_path), threads=plan_of(2)))
    progress.add(0, done(0, 4))
    progress.finished(0, 7)
    progress.add(0, Ended(Totals({"seconds": {}, "runs": {}}, 0, 0.0)))
    progress.add(1, Refused("no", 1))
    status = progress.last_status(FINISHED)
    assert (status.state, status.done) == (FINISHED, 4)
    assert [worker.state for worker in status.workers.values()] == [ENDED, FAILED]
