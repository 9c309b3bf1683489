"""close.py: what is published is recorded, and what becomes of a launch that ends early."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import RunError
from bulkinfer.files.output_lock import LOCK_FILE, output_lock
from bulkinfer.launch import close as close_module
from bulkinfer.launch.close import close, note_parts
from bulkinfer.launch.jobs.job import Job
from bulkinfer.launch.reporting.totals import Aggregate, Outcome
from bulkinfer.results.find_output import require_job
from bulkinfer.results.job_file import job_path
from bulkinfer.results.parquet_parts import Part, write_part
from bulkinfer.results.part_names import part_name
from bulkinfer.types import Step

from tests.launches import launch_of
from tests.rows import filled_rows, task
from tests.temporaries import temporary_name


def publish(output: Path, job: Job, step: Step) -> Part:
    return write_part(output, filled_rows(step, task()), len(step), {"fingerprint": job.fingerprint})


def test_what_was_published_is_noted_reported_or_not(tmp_path: Path) -> None:
    launch = launch_of(tmp_path)
    job, output, job_file = launch.job, launch.output, launch.job_file
    assert output is not None
    assert job_file is not None
    reported = publish(output, job, Step(0, 0, 5))
    publish(output, job, Step(0, 5, 7))
    note_parts(job, output, job_file, [reported])
    found = require_job(output)
    assert sorted(found.parts) == [part_name(Step(0, 0, 5)), part_name(Step(0, 5, 7))]
    assert found.is_complete is False
    publish(output, job, Step(0, 7, 10))
    (output / temporary_name("0000")).touch()
    note_parts(job, output, job_file, [])
    assert not list(output.glob("_tmp-*")), "what a killed worker had begun to write"
    assert json.loads(job_path(output).read_text())["complete"] is True


def test_a_refusal_is_raised_even_if_the_books_cannot_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(close_module, "finish", full_disk)
    made = launch_of(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        close(made, Outcome(Aggregate(0.0)))
    with pytest.raises(RunError, match="the network is gone"):
        close(made, Outcome(Aggregate(0.0), None, RunError("the network is gone")))


def test_a_launch_whose_lock_is_anothers_keeps_no_books(tmp_path: Path) -> None:
    """The engine is that of a launcher that was cut off for a while."""
    made = launch_of(tmp_path)
    assert made.output is not None
    before = job_path(made.output).read_bytes()
    with output_lock(made.output, flag="--output") as lease:
        (made.output / LOCK_FILE).write_text("{}")
        with pytest.raises(RunError, match=r"_lock\.json was lost"):
            close(replace(made, leases=(lease,)), Outcome(Aggregate(0.0)))
    assert job_path(made.output).read_bytes() == before
    assert not (made.log_dir / "summary.json").exists()
