"""Where the own files of an output lie during and after launches, and which folder a user means."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from bulkinfer.commands import retry as retry_command
from bulkinfer.commands import verify as verify_command
from bulkinfer.errors import LockedError, UsageError
from bulkinfer.files import lease
from bulkinfer.files.output_lock import output_lock
from bulkinfer.files.own_folder import own_folder
from bulkinfer.launch.launcher import launch
from bulkinfer.results.job_file import JOB_FILE
from bulkinfer.results.reader import read_results
from bulkinfer.results.verify import verify

from tests.commands import records
from tests.forms import only_first
from tests.launches import config_of

# -- the own folder of an output -----------------------------------------------------------------------------------------


def as_an_earlier_version(output: Path) -> None:
    """Move the own files of an output to where earlier versions had them."""
    for path in own_folder(output).iterdir():
        path.rename(output / path.name)
    own_folder(output).rmdir()


def test_c48_an_output_of_an_earlier_version_goes_on_and_its_own_files_move(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    output = tmp_path / "out"
    assert launch(config).exit_code == 0
    found = records(output)
    as_an_earlier_version(output)
    assert (output / JOB_FILE).is_file()
    assert (verify(output).faults, len(read_results(output))) == ([], 10)
    rest = replace(config, output=str(tmp_path / "rest"), skip_done=(str(output),))
    assert launch(rest).records == 0
    assert (output / JOB_FILE).is_file()  # nothing was written there
    next(output.glob("part-*-0000000004-*")).write_bytes(b"damaged")
    assert launch(config).exit_code == 0
    assert sorted(path.name for path in own_folder(output).iterdir()) == [
        JOB_FILE,
        "_part-00000-0000000004-0000000008.parquet.damaged",
    ]
    assert (records(output), {path.name[:5] for path in output.iterdir()}) == (found, {"part-"})
    as_an_earlier_version(output)
    assert launch(config).exit_code == 0
    assert {path.name[:5] for path in output.iterdir()} == {"part-"}


def test_c48_a_lock_of_an_earlier_version_is_respected(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline")
    assert launch(config).exit_code == 0
    with (
        output_lock(tmp_path / "out", flag="--output"),
        pytest.raises(LockedError, match=r"out is in use by a launcher on .*: wait for it"),
    ):
        launch(config)
    assert launch(config).exit_code == 0


def test_c48_a_results_folder_that_was_renamed_is_found_again(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline")
    assert launch(config).exit_code == 0
    (tmp_path / "out").rename(tmp_path / "kept")
    assert launch(config).exit_code == 0  # a new job: the record of the other stays
    with pytest.raises(UsageError) as caught:
        verify(tmp_path / "kept")
    assert f"kept holds 3 parts, but {tmp_path / '.kept.bulkinfer'}/_job.json does not exist" in str(caught.value)
    advice = str(caught.value).rpartition(": ")[2]
    assert advice.startswith("cp ")
    subprocess.run(advice, shell=True, check=True)
    assert verify(tmp_path / "kept").faults == []


def test_c48_another_job_may_take_the_name_of_a_results_folder_that_is_gone(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline")
    assert launch(config).exit_code == 0
    with pytest.raises(UsageError, match="holds the results of another job"):
        launch(replace(config, top_k=2))
    shutil.rmtree(tmp_path / "out")
    assert launch(replace(config, top_k=2)).exit_code == 0
    assert verify(tmp_path / "out").faults == []


# -- the folder that is meant --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["logs/latest", "logs/latest/results", "out\n1", "logs/latest/"])
def test_c57_the_results_folder_of_a_log_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert launch(config_of(tmp_path, engine="inline", output="out\n1")).exit_code == 0
    capfd.readouterr()
    assert verify_command.main([given]) == 0
    assert capfd.readouterr().err == ""
    assert retry_command.main([given]) == 0
    assert capfd.readouterr().err == ""
    assert len(read_results(given)) == 10


def test_c57_the_default_output_is_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = launch(config_of(tmp_path, engine="inline", output=""))
    assert verify_command.main(["logs/latest"]) == 0
    (result.log_dir / "run.json").unlink()
    assert verify_command.main(["logs/latest/results"]) == 0
    assert verify_command.main(["logs/latest"]) == 0
    assert result.output is not None
    shutil.rmtree(result.output)
    with pytest.raises(UsageError, match=r"is the log folder of a job; its results were in .*results, which is gone"):
        verify("logs/latest")


def test_c57_an_output_in_the_folder_of_the_logs_is_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline", output="")
    log_dir = launch(config).log_dir
    with pytest.raises(UsageError, match="is the folder of this job's logs: give another folder"):
        launch(replace(config, output=str(log_dir)))


@pytest.mark.parametrize("content", only_first([b"garbage", b"", b"{}"]))
def test_c57_a_damaged_lock_is_replaced_by_overwrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(lease, "_WRITING_S", 0.1)
    config = config_of(tmp_path, engine="inline")
    log_dir = launch(config).log_dir
    for folder in (log_dir, own_folder(tmp_path / "out")):
        (folder / "_lock.json").write_bytes(content)
    with pytest.raises(LockedError, match=r"is damaged: if no bulkinfer process works there, remove it: rm -r ") as caught:
        launch(config)
    assert launch(replace(config, overwrite=True)).exit_code == 0
    (log_dir / "_lock.json").write_bytes(content)
    subprocess.run(str(caught.value).rpartition(": ")[2], shell=True, check=True)
    assert launch(config).exit_code == 0
