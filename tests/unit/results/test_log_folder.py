"""log_folder.py: a job has one log folder, which a resume finds by fingerprint and output, wherever the logs lie by then."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import LockedError, UsageError
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.launch.launcher import launch
from bulkinfer.results import log_folder
from bulkinfer.results.log_folder import LAUNCH_FILE, find_log_dir, of_fingerprint, recorded_output, take_log_dir

from tests.launches import as_an_earlier_version, config_of

DIGITS = "0123abcd" * 8
NAME = "tiny-0123abcd"


def folders(log_path: Path) -> list[str]:
    return sorted(path.name for path in log_path.iterdir() if not path.is_symlink())


def taken(log_path: Path, output: Path | None = None, time: str = "20260101T000000Z") -> Path:
    return take_log_dir(log_path / f"{NAME}-{time}", NAME, DIGITS, output)


def found(log_path: Path, output: Path | None = None) -> Path | None:
    return find_log_dir(log_path, NAME, DIGITS, output)


def lose_a_part(output: Path) -> None:
    next(output.glob("part-*")).unlink()


def job_without_output(folder: Path) -> LaunchConfig:
    return config_of(folder, engine="inline", batches_per_step=1, output="")


def test_jobs_that_differ_in_their_output_have_a_folder_each(tmp_path: Path) -> None:
    logs, outputs = tmp_path / "logs", (None, tmp_path / "one", tmp_path / "two")
    assert [found(logs, output) for output in outputs] == [None] * 3
    made = [taken(logs, output) for output in outputs]
    assert [path.name for path in made] == [f"{NAME}-20260101T000000Z{end}" for end in ("", "-2", "-3")]
    assert [taken(logs, output, "20270101T000000Z") for output in outputs] == made
    assert [found(logs, output) for output in outputs] == made
    assert [recorded_output(path) for path in made] == [made[0] / "results", *outputs[1:]]


def test_an_output_is_the_same_by_each_of_its_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("out")
    made, default = taken(Path("logs"), Path("out")), taken(Path("logs"))
    for path in (tmp_path / "out", Path("link"), Path("logs/../out")):
        assert found(Path("logs"), path) == made
    assert found(Path("logs"), default / "results") == default


def test_another_fingerprint_of_the_same_first_digits_is_another_job(tmp_path: Path) -> None:
    made, other = taken(tmp_path), DIGITS[:8] + "f" * 56
    assert find_log_dir(tmp_path, NAME, other, None) is None
    assert take_log_dir(made, NAME, other, None) == made.with_name(f"{made.name}-2")
    assert of_fingerprint(tmp_path, DIGITS) == [made, made.with_name(f"{made.name}-2")]


def test_launchers_that_begin_one_job_at_the_same_time_share_its_folder(tmp_path: Path) -> None:
    made, starting = list[Path](), threading.Barrier(8)

    def take(number: int) -> None:
        starting.wait()
        made.append(taken(tmp_path / "logs", None, f"20260101T00000{number}Z"))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len({*made}) == 1
    assert folders(tmp_path / "logs") == [made[0].name], "no lock is left"


def test_a_launcher_that_is_killed_while_it_makes_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(log_folder, "write_json", killed)
        with pytest.raises(Killed):
            taken(tmp_path)
    assert found(tmp_path) is None
    made = taken(tmp_path, None, "20270101T000000Z")
    assert made.name == f"{NAME}-20260101T000000Z", "the empty folder is used"
    assert folders(tmp_path) == [made.name]


def test_a_lock_that_a_killed_launcher_left_is_removed(tmp_path: Path) -> None:
    made = taken(tmp_path)
    lock = tmp_path / f".{DIGITS[:16]}.lock"
    lock.write_text("{}")
    with pytest.raises(LockedError, match="is damaged: if no bulkinfer process works there, remove it: rm -r "):
        taken(tmp_path)
    lock.unlink()
    ends_inside = "import os, pathlib, sys; from bulkinfer.files.file_lock import exclusive\n"
    ends_inside += "with exclusive(pathlib.Path(sys.argv[1]), lambda: None): os._exit(0)"
    subprocess.run([sys.executable, "-c", ends_inside, lock], check=True)
    assert lock.exists()
    assert taken(tmp_path) == made
    assert folders(tmp_path) == [made.name]


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 1, "output": 3}'])
def test_a_damaged_record_is_not_the_only_one(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    for each in (config, replace(config, output="")):
        result = launch(each)
        assert result.output is not None
        (result.log_dir / LAUNCH_FILE).write_bytes(content)
        lose_a_part(result.output)
        caplog.clear()
        again = launch(each)
        assert (again.log_dir, again.output, again.exit_code) == (result.log_dir, result.output, 0)
        assert f"{LAUNCH_FILE} is damaged" in caplog.text


def test_a_record_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (taken(tmp_path) / LAUNCH_FILE).write_text('{"format": 99}')
    with pytest.raises(UsageError, match=r"has format 99; .* install a newer bulkinfer"):
        found(tmp_path)


def test_logs_that_were_moved_are_gone_on_with(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = job_without_output(tmp_path)
    before = launch(config)
    (tmp_path / "logs").rename(tmp_path / "moved")
    lose_a_part(tmp_path / "moved" / before.log_dir.name / "results")
    again = launch(replace(config, log_path=str(tmp_path / "moved")))
    assert again.log_dir == tmp_path / "moved" / before.log_dir.name
    assert again.output == again.log_dir / "results"
    assert "resume: 6 of 10 records are done" in caplog.text
    assert not (tmp_path / "logs").exists()


def test_another_log_path_gets_logs_of_its_own_and_the_job_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What the job had listed is found in the logs that it began with."""
    config = config_of(tmp_path, engine="inline", batches_per_step=1)
    began = launch(config)
    lose_a_part(tmp_path / "out")
    shutil.copy(tmp_path / "photos" / "000-black.png", tmp_path / "photos" / "new.png")
    again = launch(replace(config, log_path=str(tmp_path / "other")))
    assert (again.log_dir.parent, again.records) == (tmp_path / "other", 10)
    assert "resume: 6 of 10 records are done" in caplog.text
    (tmp_path / "photos" / "new.png").unlink()
    assert launch(config).log_dir == began.log_dir


def test_old_logs_of_each_kind_are_gone_on_with(tmp_path: Path) -> None:
    for config in (config_of(tmp_path, engine="inline", batches_per_step=1), job_without_output(tmp_path)):
        log_dir = as_an_earlier_version(launch(config).log_dir)
        assert re.fullmatch("tiny-[0-9a-f]{8}", log_dir.name)
        output = Path(config.output or log_dir / "results")
        lose_a_part(output)
        again = launch(config)
        assert (again.log_dir, again.output, again.exit_code) == (log_dir, output, 0)
        assert not (log_dir / LAUNCH_FILE).exists(), "an earlier version may go on with it"
        shutil.rmtree(tmp_path / "logs")


def test_old_logs_of_another_output_are_left_alone(tmp_path: Path) -> None:
    config = config_of(tmp_path, engine="inline")
    old = as_an_earlier_version(launch(config).log_dir)
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    for other in ("", str(tmp_path / "other")):
        result = launch(replace(config, output=other))
        assert result.log_dir != old
        assert read_json(result.log_dir / "summary.json")["pictures"] == 10
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before


def test_a_dated_folder_comes_before_an_old_one(tmp_path: Path) -> None:
    old = tmp_path / NAME
    old.mkdir()
    write_json(old / "run.json", {"output": str(tmp_path / "out")})
    assert found(tmp_path, tmp_path / "out") == old
    new = old.with_name(f"{NAME}-20260101T000000Z")
    new.mkdir()
    write_json(new / LAUNCH_FILE, {"fingerprint": DIGITS, "output": str(tmp_path / "out")})
    assert found(tmp_path, tmp_path / "out") == new


def test_names_that_only_begin_alike_are_not_taken(tmp_path: Path) -> None:
    for name in (f"{NAME}4", f"{NAME}-mine", f"{NAME}-20260101T000000Z-mine", f"x{NAME}"):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / LAUNCH_FILE, {"fingerprint": DIGITS, "output": "results"})
    (tmp_path / NAME).write_text("a file")
    assert found(tmp_path) is None
