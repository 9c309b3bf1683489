"""tuned_flags.py: the flag file gives infer_launch the plan back, and is recognised where it does not belong."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.commands.parse import parse
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.files.flag_file import END_MARK, FIRST_LINE, refuse_unfit
from bulkinfer.host.cores import CoreBudget
from bulkinfer.launch.jobs.job import Job
from bulkinfer.launch.launcher import launch
from bulkinfer.launch.tuned_flags import conditions, require_place, warn_if_tuned_elsewhere, write_flag_file
from bulkinfer.runtime.devices import plan_workers

from tests.launches import config_of, job_of, plan_of

BUDGET = CoreBudget((0, 1, 2, 3), None)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return job_of(config_of(tmp_path))


def tuned(job: Job, folder: Path) -> LaunchConfig:
    """What infer_launch makes of a file of flags that were tuned for `job`."""
    plan = replace(plan_of(), streams=2, threads_per_stream=3, num_workers=5)
    write_flag_file(folder / "t.flags", job, plan, BUDGET, ["a: 10.0 images/sec", "winner: a"])
    return parse("infer_launch", LaunchConfig, ["--flagfile", str(folder / "t.flags")])


def test_infer_launch_takes_the_plan(job: Job, tmp_path: Path) -> None:
    config = tuned(job, tmp_path)
    plan = plan_workers(config, job.choice, BUDGET)
    assert (plan.streams, plan.threads_per_stream, plan.num_workers) == (2, 3, 5)
    assert (config.model_name, config.model_path, config.batch_size) == ("tiny", str(tmp_path / "models"), 4)
    assert (config.device, config.precision) == ("cpu", "fp32")
    assert config.tuned_for == conditions(job, 1, BUDGET)


@pytest.mark.parametrize("asked", [0, -1, 2])
def test_loader_processes_stay_as_they_were_asked_for(job: Job, tmp_path: Path, asked: int) -> None:
    job = replace(job, config=replace(job.config, loader_processes=asked))
    assert tuned(job, tmp_path).loader_processes == asked
    assert ("--loader_processes" in (tmp_path / "t.flags").read_text()) == bool(asked)


def test_cut_anywhere_it_is_refused(job: Job, tmp_path: Path) -> None:
    tuned(job, tmp_path)
    whole = (tmp_path / "t.flags").read_bytes()
    words = ["--flagfile", str(tmp_path / "t.flags")]
    least = len("# written by bulkinfer bench")  # less may be anybody's
    for size in range(least, len(whole) - 1):  # without its last line break nothing is missing
        (tmp_path / "t.flags").write_bytes(whole[:size])
        with pytest.raises(UsageError, match=r"^--flagfile: .*t\.flags is cut short: make it again with bulkinfer"):
            refuse_unfit(words)
    with pytest.raises(UsageError, match="is cut short"):
        parse("infer_launch", LaunchConfig, words)


def test_auto_becomes_what_was_measured(job: Job, tmp_path: Path) -> None:
    on_auto = replace(job, config=replace(job.config, device="auto"))
    assert tuned(on_auto, tmp_path).device == "cpu"


def test_comments_say_what_was_measured_where(job: Job, tmp_path: Path) -> None:
    tuned(job, tmp_path)
    comments = [line for line in (tmp_path / "t.flags").read_text().splitlines() if line.startswith("# ")]
    assert comments[-3:] == ["# a: 10.0 images/sec", "# winner: a", END_MARK]
    assert comments[0].startswith(f"{FIRST_LINE} at 2")
    said = "\n".join(comments)
    for word in (
        "host ",
        "4 usable of 4",
        f"tiny (graph sha256 {job.model.sidecar.sha256[:12]})",
        "fp32 on cpu",
        "onnxruntime 1.",
    ):
        assert word in said


def test_the_same_conditions_are_no_news(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for config in (tuned(job, tmp_path), LaunchConfig()):
        warn_if_tuned_elsewhere(replace(job, config=replace(job.config, tuned_for=config.tuned_for)), 1, BUDGET)
    assert capsys.readouterr().err == ""


def test_others_are_told_in_one_sentence(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = replace(job, config=replace(job.config, tuned_for=tuned(job, tmp_path).tuned_for))
    warn_if_tuned_elsewhere(elsewhere, 3, CoreBudget((0, 1), None))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: the flag file was tuned for tiny at batch size 4 in fp32 on cpu, 1 worker on 4 cores of ")
    assert ", this is tiny at batch size 4 in fp32 on cpu, 3 workers on 2 cores of " in line


def test_one_core_is_a_core(job: Job) -> None:
    assert " on cpu, 2 workers on 1 core of " in conditions(job, 2, CoreBudget((0,), None))


def test_where_a_flag_file_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("", "t.flags", str(tmp_path / "t.flags")):
        require_place("models", place)
    for place, told in ((".", "is a folder: name a file in it"), ("none/t.flags", "there is no folder none")):
        with pytest.raises(UsageError, match=told):
            require_place("models", place)
    with pytest.raises(UsageError, match="this name cannot be written into the flag file"):
        require_place("mod\udcff", "")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(UsageError, match=r"t\.flags: the folder \. may not be written to"):
        require_place("models", "t.flags")


def test_a_launch_tells_it_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(config_of(tmp_path, tuned_for="something else", dry_run=True)).exit_code == 0
    assert "the flag file was tuned for something else" in capsys.readouterr().err


def test_a_decode_mode_is_kept_where_it_is_not_the_default(job: Job, tmp_path: Path) -> None:
    assert tuned(job, tmp_path).decode == "exact"
    assert "--decode" not in (tmp_path / "t.flags").read_text()
    assert tuned(replace(job, config=replace(job.config, decode="fast")), tmp_path).decode == "fast"
