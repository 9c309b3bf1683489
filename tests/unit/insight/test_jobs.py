"""jobs.py: what the log folders say of their jobs."""

from __future__ import annotations

import itertools
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.files.output_lock import output_lock, results_lock
from bulkinfer.files.own_folder import own_folder
from bulkinfer.insight import jobs, published
from bulkinfer.insight.jobs import LoggedJob, list_jobs
from bulkinfer.insight.watch import job_status
from bulkinfer.launch.launcher import launch
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.part_names import part_name
from bulkinfer.results.status_file import read_status, write_status
from bulkinfer.types import Step

from tests.launches import config_of
from tests.shown_job import NUM_ERRORS, NUM_OK, finished_job


@pytest.fixture
def home(tmp_path: Path) -> Path:
    finished_job(tmp_path, output="")
    return tmp_path


def only(home: Path) -> LoggedJob:
    (job,) = list_jobs(str(home / "logs"))
    return job


def test_a_finished_job(home: Path) -> None:
    job = only(home)
    output = job.log_dir / "results"
    assert (job.state, job.done, job.total, job.errors, job.output) == (
        "finished", NUM_OK + NUM_ERRORS, NUM_OK + NUM_ERRORS, NUM_ERRORS, output
    )  # fmt: skip
    files = [*output.iterdir(), *own_folder(output).iterdir()]
    assert job.size_bytes == sum(path.stat().st_size for path in files)


def test_a_job_that_runs(home: Path) -> None:
    output = only(home).output
    assert output is not None
    with results_lock(output):
        assert only(home).state == "running"
    assert only(home).state == "finished"


def test_errors_of_a_job_that_runs_are_those_of_its_status(home: Path) -> None:
    job = only(home)
    report = read_status(job.log_dir)
    assert report is not None
    assert job.output is not None
    running = replace(report.status, state="running", errors={"read": 3, "decode": 4})
    write_status(job.log_dir, report.launcher, running)
    with output_lock(job.log_dir, flag=""), results_lock(job.output):
        assert (only(home).state, only(home).errors) == ("running", 7)
        (job.log_dir / "status.json").unlink()
        assert only(home).errors == NUM_ERRORS


def killed(job: LoggedJob) -> tuple[int, int | None, int]:
    """What watch sees of a job whose launcher is gone: rows, of how many, errors. Its last status.json was an early one."""
    report = read_status(job.log_dir)
    assert report is not None
    write_status(job.log_dir, report.launcher, replace(report.status, state="running", done=1, errors={}))
    seen = job_status(job.log_dir).status
    assert seen.state == "killed"
    return seen.done, seen.total, sum(seen.errors.values())


def test_errors_in_parts_of_a_launch_that_was_killed_are_counted(home: Path) -> None:
    output = only(home).output
    assert output is not None
    job = JobFile.read(output)
    assert job is not None
    for name in list(job.parts):
        job.forget_part(name)
    job.write(output)
    assert only(home).errors == NUM_ERRORS
    assert killed(only(home)) == (NUM_OK + NUM_ERRORS, NUM_OK + NUM_ERRORS, NUM_ERRORS)
    for name in ("first", "last"):
        part = sorted(output.glob("part-*"))[0 if name == "first" else -1]
        part.rename(home / name)
        assert killed(only(home)) == (only(home).done, NUM_OK + NUM_ERRORS, only(home).errors)
    (home / "last").rename(part)
    sorted(output.glob("part-*"))[-1].write_bytes(b"damaged")
    assert only(home).errors <= NUM_ERRORS


@pytest.mark.parametrize("is_whole", [True, False])
def test_parts_of_a_launch_that_was_killed_are_listed_and_read_once(
    home: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    output = only(home).output
    assert output is not None
    if not is_whole:
        sorted(output.glob("part-*"))[-1].unlink()
    job = JobFile.read(output)
    assert job is not None
    for name in list(job.parts):
        job.forget_part(name)
    job.write(output)
    report = read_status(only(home).log_dir)
    assert report is not None
    write_status(only(home).log_dir, report.launcher, replace(report.status, state="running"))
    read, listed = list[str](), list[Path]()
    counting, listing = published.count_stages, published.listed_steps

    def noted_count(folder: Path, step: Step) -> dict[str, int]:
        read.append(part_name(step))
        return counting(folder, step)

    def noted_list(folder: Path) -> dict[Step, bool]:
        listed.append(folder)
        return listing(folder)

    monkeypatch.setattr(published, "count_stages", noted_count)
    for module in (published, jobs):
        monkeypatch.setattr(module, "listed_steps", noted_list)
    assert only(home).state == ("finished" if is_whole else "killed")
    assert (sorted(read), listed) == (sorted(path.name for path in output.glob("part-*")), [output])


def test_a_job_with_rows_to_do(home: Path) -> None:
    output = only(home).output
    assert output is not None
    sorted(output.iterdir())[0].unlink()
    job = only(home)
    assert (job.state, job.done) == ("incomplete", NUM_OK + NUM_ERRORS - 4)


def test_a_damaged_job_and_one_whose_output_is_gone(home: Path) -> None:
    output = only(home).output
    assert output is not None
    (own_folder(output) / "_job.json").write_text("{}")
    assert (only(home).state, only(home).done) == ("damaged", NUM_OK + NUM_ERRORS)
    shutil.rmtree(output)
    assert only(home).state == "gone"


def test_a_copy_of_the_logs_is_of_its_own_results(home: Path) -> None:
    copy = home / "copy"
    shutil.copytree(home / "logs", copy, symlinks=True)
    (job,) = list_jobs(str(copy))
    assert job.output == job.log_dir / "results"
    assert job.log_dir.parent == copy


def test_runs_without_pictures_and_the_newest_first(home: Path) -> None:
    launch(config_of(home, synthetic=True, engine="inline", iterations=1, batches_per_step=1))
    first, second = list_jobs(str(home / "logs"))
    assert (first.state, first.output, second.state) == ("no rows", None, "finished")


@pytest.mark.parametrize(
    ("last", "shown"),
    [("stopped", "stopped"), ("failed", "failed"), ("running", "killed"), ("finished", "incomplete"), ("", "incomplete")],
)
def test_how_the_last_launch_of_an_incomplete_job_ended(home: Path, last: str, shown: str) -> None:
    job = only(home)
    assert job.output is not None
    sorted(job.output.iterdir())[0].unlink()
    report = read_status(job.log_dir)
    assert report is not None
    if last:
        write_status(job.log_dir, report.launcher, replace(report.status, state=last))
    else:
        (job.log_dir / "status.json").unlink()
    assert only(home).state == shown


@pytest.mark.parametrize(("moment", "count"), [(os.scandir, 1), *((Path.stat, count) for count in range(1, 8))])
def test_a_job_that_is_removed_meanwhile_is_left_out(
    home: Path, monkeypatch: pytest.MonkeyPatch, moment: Any, count: int
) -> None:
    folder, calls = only(home).log_dir, itertools.count(1)

    def removed_before(path: Any, *more: Any, **options: Any) -> Any:
        if Path(path).is_relative_to(folder) and next(calls) == count:
            folder.rename(home / "removed")
        return moment(path, *more, **options)

    monkeypatch.setattr(os if moment is os.scandir else Path, moment.__name__, removed_before)
    assert list_jobs(str(home / "logs")) == []


def test_other_folders_are_no_jobs(tmp_path: Path) -> None:
    (tmp_path / "logs" / "mine").mkdir(parents=True)
    assert list_jobs(str(tmp_path / "logs")) == []
    with pytest.raises(UsageError, match="does not exist: give the folder of job logs"):
        list_jobs(str(tmp_path / "nowhere"))
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file is a file: give the folder of job logs"):
        list_jobs(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("name", "state", "done"), [("_job.json", "damaged", 16), ("launch.json", "finished", 16), ("", "damaged", 0)]
)
def test_a_job_whose_files_cannot_be_read_hides_no_other(
    name: str, state: str, done: int, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = only(home)
    assert job.output is not None
    finished_job(home, output=str(home / "other"), top_k=2)
    folder = own_folder(job.output) if name == "_job.json" else job.log_dir
    opened, stat = os.open, os.stat

    def denied(real: Any) -> Any:
        def ask(path: Any, *rest: Any, **options: Any) -> Any:
            if isinstance(path, str | Path) and Path(path).parent == folder and name in (Path(path).name, ""):
                raise PermissionError(13, "Permission denied", os.fspath(path))
            return real(path, *rest, **options)

        return ask

    monkeypatch.setattr(os, "open", denied(opened))
    if not name:
        monkeypatch.setattr(os, "stat", denied(stat))
    states = {found.log_dir: (found.state, found.done) for found in list_jobs(str(home / "logs"))}
    assert (states.pop(job.log_dir), [*states.values()]) == ((state, done), [("finished", 16)])
    assert f"warning: Permission denied: {folder / name}" in caplog.text
