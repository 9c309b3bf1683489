"""Where the own files of an output lie during and after launches, and which folder a user means."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands import retry as retry_command
from bulkinfer.commands import verify as verify_command
from bulkinfer.errors import LockedError, RunError, UsageError
from bulkinfer.files import lease
from bulkinfer.files.output_lock import output_lock, results_lock
from bulkinfer.files.own_folder import own_folder
from bulkinfer.launch import claim as claim_module
from bulkinfer.launch.jobs.changed_pictures import TIMES_FILE
from bulkinfer.launch.launcher import launch
from bulkinfer.results.job_file import JOB_FILE, JobFile
from bulkinfer.results.reader import read_results
from bulkinfer.results.status_file import STATUS_FILE
from bulkinfer.results.verify import verify

from tests.commands import records
from tests.forms import only_first
from tests.launches import config_of, write_photos

# -- the own folder of an output -----------------------------------------------------------------------------------------


def as_an_earlier_version(output: Path) -> None:
    """Move the own files of an output to where earlier versions had them, which wrote no status and no times."""
    for name in (STATUS_FILE, TIMES_FILE):
        (own_folder(output) / name).unlink()
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
        TIMES_FILE,
        STATUS_FILE,
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


def test_another_output_is_not_held_by_the_other_launcher(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline")
    log_dir = launch(config).log_dir
    for locked in (lambda: output_lock(log_dir, flag=""), lambda: results_lock(tmp_path / "out")):
        with locked():
            with pytest.raises(LockedError, match=r"wait for it, or give another --output$"):
                launch(config)
            assert launch(replace(config, output=str(tmp_path / "o"))).exit_code == 0


def test_verify_says_that_a_launcher_is_at_work(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    assert launch(config).exit_code == 0
    next((tmp_path / "out").glob("part-*")).unlink()
    gap = "partition 0: records 0 to 4 have no row: "
    assert f"{gap}run the job again to complete it" in verify(config.output).faults
    with results_lock(tmp_path / "out"):
        found = verify(config.output)
    assert f"{gap}wait for the launcher" in found.faults
    (note,) = found.notes
    assert f", pid {os.getpid()}, started " in note
    assert note.endswith(" is at work on it: what is missing may still come, verify it again after that")


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


def test_a_launch_into_a_renamed_results_folder_names_its_record_not_overwrite(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline")
    assert launch(config).exit_code == 0
    (tmp_path / "out").rename(tmp_path / "kept")
    moved = replace(config, output=str(tmp_path / "kept"))
    with pytest.raises(RunError) as caught:
        launch(moved)
    told = str(caught.value)
    assert f"kept holds 3 parts, but {tmp_path / '.kept.bulkinfer'}/_job.json does not exist: " in told
    assert "--overwrite" not in told
    assert not (tmp_path / ".kept.bulkinfer").exists()  # it was made for the lock only
    subprocess.run(told.rpartition(": ")[2], shell=True, check=True)
    assert launch(moved).exit_code == 0
    assert verify(tmp_path / "kept").faults == []


def test_parts_of_another_job_are_refused_and_never_set_aside(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline")
    other = replace(config, top_k=2, output=str(tmp_path / "b"))
    assert launch(config).exit_code == launch(other).exit_code == 0
    (tmp_path / "out").rename(tmp_path / "a")
    (tmp_path / "b").rename(tmp_path / "out")
    found = records(tmp_path / "out")
    with pytest.raises(RunError, match=r"part-.* belongs to another job") as caught:
        launch(config)
    assert records(tmp_path / "out") == found
    told = str(caught.value)
    assert f"{tmp_path / '.b.bulkinfer'}/_job.json is the _job.json of a job with the same pictures and settings: cp " in told
    subprocess.run(told.rpartition(": ")[2], shell=True, check=True)
    assert launch(replace(other, output=config.output)).exit_code == 0
    assert (records(tmp_path / "out"), verify(tmp_path / "out").faults) == (found, [])
    with pytest.raises(UsageError) as caught_usage:  # the record of the other job stayed, under another name
        verify(tmp_path / "a")
    subprocess.run(str(caught_usage.value).rpartition(": ")[2], shell=True, check=True)
    assert verify(tmp_path / "a").faults == []


@pytest.mark.parametrize("how", only_first(["mv", "rm"]))
@pytest.mark.parametrize("overwrite", [True, False])
def test_an_emptied_results_folder_is_new_and_the_old_record_stays(tmp_path: Path, how: str, overwrite: bool) -> None:
    config = config_of(tmp_path, engine="inline")
    output, kept = tmp_path / "out", tmp_path / "kept"
    assert launch(config).exit_code == 0
    if how == "mv":
        output.rename(kept)
        output.mkdir()
    else:
        kept.mkdir()
        for path in output.iterdir():
            path.rename(kept / path.name)
    assert launch(replace(config, top_k=2, overwrite=overwrite)).exit_code == 0
    assert verify(output).faults == []
    with pytest.raises(UsageError) as caught:
        verify(kept)
    subprocess.run(str(caught.value).rpartition(": ")[2], shell=True, check=True)
    assert verify(kept).faults == []


def test_a_results_folder_that_the_file_server_does_not_show_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: Path, **options: Any) -> os.stat_result:
        if path == tmp_path / "out":
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return os.stat(path, follow_symlinks=False)

    monkeypatch.setattr(claim_module.os, "lstat", stale)
    monkeypatch.setattr(Path, "is_dir", lambda _: False)
    with pytest.raises(OSError, match="Stale file handle"):
        claim_module._is_gone(tmp_path / "out")
    assert claim_module._is_gone(tmp_path / "absent")


def test_a_refused_launch_leaves_no_own_folder(tmp_path: Path) -> None:
    output = tmp_path / ("x" * 250)  # its own files lie inside
    with results_lock(output):
        assert (output / ".bulkinfer" / "_lock.json").exists()
    assert not (output / ".bulkinfer").exists()


@pytest.mark.parametrize("first", [".out.bulkinfer", "out/.bulkinfer"])
def test_a_lock_in_either_place_excludes_all(tmp_path: Path, first: str) -> None:
    """As where the launchers do not have the same rights, and begin at the same time."""
    for place in (".out.bulkinfer", "out/.bulkinfer"):
        (tmp_path / place).mkdir(parents=True)
    second = {".out.bulkinfer": "out/.bulkinfer", "out/.bulkinfer": ".out.bulkinfer"}[first]
    with output_lock(tmp_path / first, flag="--output"):
        (tmp_path / second / "_job.json").touch()
        with pytest.raises(LockedError, match="out is in use by a launcher"), results_lock(tmp_path / "out"):
            pass
    with results_lock(tmp_path / "out"):
        pass


def test_a_record_that_appears_during_a_launch_is_not_overwritten(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / JOB_FILE).write_text("of an earlier version")
    with pytest.raises(RunError, match=r"_job.json was put there during this launch, .*: move it away, then run again"):
        JobFile({}).write(output)
    assert (output / JOB_FILE).read_text() == "of an earlier version"


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
    with pytest.raises(UsageError, match="is the folder of a job's logs: give another folder"):
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


def test_an_output_that_holds_the_pictures_is_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline", data_dir=str(write_photos(tmp_path / "data" / "photos", 10)))
    for output in (config.data_dir, str(tmp_path / "data")):
        with pytest.raises(UsageError, match=r"the pictures in .* lie in it: give a folder for the results alone"):
            launch(replace(config, output=output))
    assert launch(replace(config, output=str(Path(config.data_dir) / "out"))).records == 10


@pytest.mark.parametrize("option", ["output", "log_path"])
def test_a_file_as_a_folder_is_refused(tmp_path: Path, option: str) -> None:
    config = config_of(tmp_path, engine="inline")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=rf"--{option} .*file is not a folder: give another folder"):
        launch(replace(config, **{option: str(tmp_path / "file")}))
    with pytest.raises(UsageError, match=rf"{option} is 'a.x00b': it must be text"):
        replace(config, **{option: "a\0b"})
