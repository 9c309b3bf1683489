"""earlier_jobs.py: pictures were added to the folder of a job without --output, and the same command is run again."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.commands import infer_launch
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.launch.launcher import LaunchResult, launch
from bulkinfer.results.verify import verify

from tests.commands import records
from tests.launches import config_of


def without_output(folder: Path, monkeypatch: pytest.MonkeyPatch) -> LaunchConfig:
    monkeypatch.chdir(folder)
    return config_of(folder, engine="inline", batches_per_step=1, output="", max_failures=0)


def add_pictures(config: LaunchConfig) -> None:
    for path in sorted(Path(config.data_dir).iterdir())[:3]:
        shutil.copy(path, path.with_name(f"new-{path.name}"))


def output_of(result: LaunchResult) -> Path:
    assert result.output is not None
    return result.output


def told(capfd: pytest.CaptureFixture[str]) -> str:
    """The command at the end of the only warning."""
    lines = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
    assert len(lines) == 1, lines
    (line,) = lines
    return line


def run_words(command: str) -> int:
    name, *words = shlex.split(command)
    assert name == "infer_launch"
    return infer_launch.main(words)


def test_c30_an_interrupted_job_goes_on_with_what_it_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = without_output(tmp_path, monkeypatch)
    output = output_of(launch(config))
    next(output.glob("part-*-0000000004-*")).unlink()  # as after an interruption
    add_pictures(config)
    capfd.readouterr()
    again = launch(config)
    line = told(capfd)
    assert (again.output, again.records, again.exit_code) == (output, 10, 0)
    assert f"has changed since the job in {output} began: it goes on with the 10 pictures listed then" in line
    assert run_words(line.partition("once it is done: ")[2]) == 0
    (rest,) = {path.parent for path in tmp_path.glob("logs/tiny-*/results/part-*")} - {output}
    assert (len(records(output)), len(records(rest))) == (10, 3)
    assert verify(output).faults == verify(rest).faults == []


def test_c30_a_finished_job_is_named_with_the_command_that_reuses_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = without_output(tmp_path, monkeypatch)
    output = output_of(launch(config))
    add_pictures(config)
    capfd.readouterr()
    assert launch(replace(config, dry_run=True)).records == 13
    line = told(capfd)
    assert (
        f"{output} holds ok rows of 10 of these 13 pictures, and all run again; to run only the others: infer_launch " in line
    )
    command = line.partition("the others: ")[2]
    assert run_words(command) == 0
    (rest,) = {path.parent for path in tmp_path.glob("logs/tiny-*/results/part-*")} - {output}
    assert len(records(rest)) == 3
    capfd.readouterr()
    assert run_words(command) == 0  # again: nothing left
    assert capfd.readouterr().err == ""


def test_c30_jobs_of_other_folders_and_options_are_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = without_output(tmp_path, monkeypatch)
    launch(config)
    launch(config)
    add_pictures(config)
    shutil.copytree(config.data_dir, tmp_path / "elsewhere")
    for other in ({"top_k": 1}, {"data_dir": str(tmp_path / "elsewhere")}, {"output": "given"}, {"overwrite": True}):
        launch(replace(config, dry_run=True, **other))
    assert "warning" not in capfd.readouterr().err


def test_a_finished_output_is_refused_with_the_command_for_what_was_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(without_output(tmp_path, monkeypatch), output="out")
    launch(config)
    add_pictures(config)
    with pytest.raises(UsageError, match="out began: 3 of the 13 pictures there now have no ok row") as caught:
        launch(config)
    only, _, again = str(caught.value).partition("; to run only those: ")[2].partition("; to run all again: ")
    assert run_words(only) == 0
    assert (len(records(Path("out"))), len(records(Path("out-2")))) == (10, 3)
    for path in Path(config.data_dir).iterdir():
        if path.name.startswith("new-"):
            path.unlink()
    next(Path(config.data_dir).iterdir()).unlink()
    with pytest.raises(UsageError, match="pictures are gone, and each of the other 9 has an ok row; to run all again: infer_"):
        launch(config)
    assert run_words(again) == 0
    assert len(records(Path("out"))) == 9
