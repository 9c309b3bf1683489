"""status.py: status.json beside each lock of a launch, while it runs and at its end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.errors import RunError
from bulkinfer.files.output_lock import output_lock
from bulkinfer.host.cores import ThreadPlan
from bulkinfer.host.status import FAILED, FINISHED, STOPPED
from bulkinfer.launch.claim import Launch
from bulkinfer.launch.reporting.progress import Progress
from bulkinfer.launch.reporting.status import StatusWriter, write_last_status
from bulkinfer.launch.reporting.totals import Aggregate, Outcome
from bulkinfer.results.parquet_parts import Part
from bulkinfer.results.status_file import STATUS_FILE, read_status
from bulkinfer.types import Step

from tests.launches import launch_of


class Engine:
    """One that was stopped by a signal, or not."""

    def __init__(self, signal: int | None) -> None:
        self.signal, self.replaced, self.nodes = signal, list[str](), dict[str, ThreadPlan]()

    def run(self) -> None: ...


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """One that holds the locks of its two folders."""
    made = launch_of(tmp_path)
    own = tmp_path / ".out.bulkinfer"
    with output_lock(made.log_dir, flag="") as first, output_lock(own, flag="") as second:
        yield replace(made, leases=(first, second))


def test_it_lies_beside_each_lock(launch: Launch) -> None:
    writer = StatusWriter(launch, time.perf_counter() - 60)
    writer.write(Progress(launch).status())
    reports = [read_status(lease.path.parent) for lease in launch.leases]
    assert reports[0] is not None
    assert reports[1] is not None
    assert reports[0].launcher == reports[1].launcher
    who = reports[0].launcher
    assert (who["job"], who["pid"], who["command"]) == (launch.log_dir.name, os.getpid(), "infer_launch")
    assert (who["log_dir"], who["output"]) == (str(launch.log_dir), str(launch.output))
    assert (reports[0].status.done, reports[0].status.total, reports[0].exit_code) == (0, 10, None)


def test_without_locks_nothing_is_written(tmp_path: Path) -> None:
    made = launch_of(tmp_path)
    StatusWriter(made, time.perf_counter()).write(Progress(made).status())
    assert not list(tmp_path.rglob(STATUS_FILE))


def test_a_lock_that_was_lost_is_anothers_place(launch: Launch) -> None:
    launch.leases[0]._lost.set()
    StatusWriter(launch, time.perf_counter()).write(Progress(launch).status())
    assert [(lease.path.parent / STATUS_FILE).exists() for lease in launch.leases] == [False, True]


def test_a_disk_that_is_full_is_one_warning(launch: Launch, capsys: pytest.CaptureFixture[str]) -> None:
    (launch.leases[0].path.parent / STATUS_FILE).mkdir()
    writer = StatusWriter(launch, time.perf_counter())
    for _ in range(3):
        writer.write(Progress(launch).status())
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("warning: Is a directory: ")
    assert read_status(launch.leases[1].path.parent) is not None, "the other one is written"


@pytest.mark.parametrize(
    ("signal", "refusal", "state", "code"),
    [(None, None, FINISHED, 3), (15, None, STOPPED, 143), (None, RunError("x"), FAILED, 1)],
)
def test_the_end(launch: Launch, signal: int | None, refusal: RunError | None, state: str, code: int) -> None:
    outcome = Outcome(Aggregate(time.perf_counter()), Engine(signal), refusal, Progress(launch))
    write_last_status(launch, outcome, code)
    report = read_status(launch.log_dir)
    assert report is not None
    assert (report.status.state, report.exit_code) == (state, code)


@pytest.mark.parametrize("has_run", [False, True])
def test_the_last_status_is_that_of_the_whole_job(launch: Launch, has_run: bool) -> None:
    """Also after a launch that had nothing to do, and after a retry, whose progress counts only what it ran again."""
    assert launch.job_file is not None
    launch.job_file.note_part(Part(Step(0, 0, 8), 6, {"decode": 2}, ""))
    write_last_status(launch, Outcome(Aggregate(time.perf_counter()), progress=Progress(launch) if has_run else None), 0)
    report = read_status(launch.log_dir)
    assert report is not None
    assert (report.status.state, report.status.done, report.status.total) == (FINISHED, 8, 10)
    assert report.status.errors == {"decode": 2}
