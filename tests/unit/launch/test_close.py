"""close.py: what is published is recorded, and what becomes of a launch that ends early."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import RunError, StoreError
from bulkinfer.files.addresses import AddressPath
from bulkinfer.files.json_file import read_json
from bulkinfer.files.output_lock import LOCK_FILE, output_lock
from bulkinfer.launch import close as close_module
from bulkinfer.launch.close import close, note_parts
from bulkinfer.launch.jobs.job import Job
from bulkinfer.launch.launcher import launch as launch_job
from bulkinfer.launch.reporting.totals import Aggregate, Outcome
from bulkinfer.results.find_output import require_job
from bulkinfer.results.job_file import job_path
from bulkinfer.results.parquet_parts import Part, write_part
from bulkinfer.results.part_names import part_name
from bulkinfer.results.status_file import read_status
from bulkinfer.results.verify import verify
from bulkinfer.types import Step
from bulkinfer.worker import publisher as publisher_module

from tests import memory_store
from tests.launches import config_of, launch_of
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
    def full_disk(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(close_module, "finish", full_disk)
    made = launch_of(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        close(made, Outcome(Aggregate(0.0)))
    with pytest.raises(RunError, match="the network is gone"):
        close(made, Outcome(Aggregate(0.0), None, RunError("the network is gone")))


class _DeadLock:
    """The lock of an output in a bucket that does not answer any more."""

    path, token, refusal = AddressPath("s3://bucket/out/.bulkinfer/_lock.json"), "", None

    def check(self) -> None:
        raise StoreError("s3://bucket does not answer after 9 tries: check the network")


@pytest.mark.parametrize("refusal", [None, StoreError("worker 0 saw it first")])
@pytest.mark.parametrize("where", ["lock", "books"])
def test_a_bucket_that_dies_leaves_the_summary_and_the_status_in_the_logs(
    where: str, refusal: StoreError | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = launch_of(tmp_path)
    store = memory_store.put_in_place(monkeypatch, tmp_path / "cache")
    assert made.output is not None
    part = publish(made.output, made.job, Step(0, 0, 5))
    aggregate = Aggregate(0.0)
    aggregate.parts.append(part)
    output = AddressPath("s3://bucket/out")

    def dead(*_: Any) -> Any:
        raise RunError("s3://bucket/out/.bulkinfer/_job.json: the store refuses access to it")

    if where == "books":
        monkeypatch.setattr(close_module, "published_steps", dead)
    with output_lock(made.log_dir, flag="") as lease:
        leases = (lease, _DeadLock()) if where == "lock" else (lease,)
        with pytest.raises(RunError) as raised:
            close(replace(made, leases=leases, output=output), Outcome(aggregate, None, refusal))
    assert raised.value is refusal or refusal is None
    summary, report = read_json(made.log_dir / "summary.json"), read_status(made.log_dir)
    assert (summary["ok"], summary["exit_code"], summary["refusal"]) == (5, 1, str(raised.value))
    assert report is not None
    assert (report.status.state, report.status.done, report.exit_code) == ("failed", 5, 1)
    assert store.requests == []


def test_rows_of_an_output_that_was_removed_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    output, written = Path(config.output), list[Part]()

    def then_removed(*words: Any, **options: Any) -> Part:
        written.append(write_part(*words, **options))
        shutil.rmtree(output)
        return written[-1]

    with monkeypatch.context() as during:
        during.setattr(publisher_module, "write_part", then_removed)
        with pytest.raises(RunError, match=rf"^{output} was removed or renamed while the job ran: run the same command again"):
            launch_job(config)
    assert len(written) == 1
    printed = capsys.readouterr()
    assert "records: 10 = 0 ok + 0 errors + 10 not done\n" in printed.out
    assert "results: " not in printed.out
    assert printed.err == "", "the error that is raised says it"
    summary = read_json(next((tmp_path / "logs").glob("tiny-*/summary.json")))
    assert (summary["ok"], summary["exit_code"]) == (0, 1)
    assert launch_job(config).exit_code == 0, "the same command"
    assert verify(output).faults == []
    assert verify(output).num_ok == 10


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
