"""job_copies.py: a missing or damaged _job.json is found again in the logs, and the command that is named repairs it."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import BulkinferError, RunError
from bulkinfer.files.own_folder import own_folder
from bulkinfer.launch.launcher import launch
from bulkinfer.results.reader import read_results
from bulkinfer.results.verify import verify

from tests.launches import config_of


def harmed(config: LaunchConfig, harm: str) -> None:
    path = own_folder(Path(config.output)) / "_job.json"
    path.unlink() if harm == "missing" else path.write_text(path.read_text()[:-9])


def repaired(error: BulkinferError) -> None:
    subprocess.run(["cp", *shlex.split(str(error).rpartition(": cp ")[2])], check=True)


@pytest.mark.parametrize("harm", ["missing", "damaged"])
@pytest.mark.parametrize("logs", ["logs", "my logs"])
def test_the_log_folder_gives_a_job_file_back(tmp_path: Path, harm: str, logs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, engine="inline", log_path=str(tmp_path / logs), output=str(tmp_path / "a place" / "o"))
    (tmp_path / "a place").mkdir()
    assert launch(config).exit_code == 0
    before = read_results(config.output).table()
    harmed(config, harm)
    with pytest.raises(
        RunError, match=r"_job\.json is the _job\.json of a job with the same pictures and settings: cp "
    ) as caught:
        launch(config)
    repaired(caught.value)
    assert launch(config).exit_code == 0
    assert read_results(config.output).table().equals(before)
    assert not verify(config.output).faults
    monkeypatch.chdir(tmp_path)
    harmed(config, harm)
    with pytest.raises(BulkinferError, match=r"cp " if logs == "logs" else "--output|moved and copied together") as caught:
        verify(config.output)  # it looks below logs/ alone
    if logs == "logs":
        repaired(caught.value)
        assert not verify(config.output).faults


def test_of_two_outputs_of_one_job_each_gets_its_own_record(tmp_path: Path) -> None:
    """The logs of both are looked through: in --log_path, and in logs/ beside the output."""
    one = config_of(tmp_path, engine="inline")
    other = replace(one, output=str(tmp_path / "other"), log_path=str(tmp_path / "other logs"), batches_per_step=2)
    assert [launch(config).exit_code for config in (one, other)] == [0, 0]
    for config in (one, other):
        harmed(config, "missing")
        with pytest.raises(RunError) as caught:
            launch(replace(config, log_path=other.log_path))
        copied = Path(shlex.split(str(caught.value).rpartition(": cp ")[2])[0])
        name = Path(config.output).name
        assert copied in (
            Path(config.log_path) / copied.parent.name / "_job.json",
            tmp_path / f".{name}.bulkinfer" / "_job.json",
        )
        repaired(caught.value)


def test_a_record_of_another_job_is_not_taken(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline")
    assert launch(config).exit_code == 0
    (job_file,) = tmp_path.glob("logs/tiny-*/_job.json")
    job_file.write_text(job_file.read_text()[:-9])
    harmed(config, "damaged")
    with pytest.raises(RunError, match=r"is damaged .*: run the job with --overwrite, or into another --output$"):
        launch(config)
