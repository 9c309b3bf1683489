"""merge.py: one output of all shards, whole or absent."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands import compare, infer_launch, report, score, watch
from bulkinfer.commands import merge as command
from bulkinfer.errors import LockedError, RunError, UsageError
from bulkinfer.files.output_lock import results_lock
from bulkinfer.files.own_folder import own_folder
from bulkinfer.insight.clean import plan_removals, remove
from bulkinfer.insight.jobs import list_jobs
from bulkinfer.launch import merge as merge_module
from bulkinfer.launch import merge_log
from bulkinfer.launch.launcher import launch
from bulkinfer.launch.merge import merge_shards
from bulkinfer.launch.options import MergeConfig, RetryConfig
from bulkinfer.launch.retry import retry
from bulkinfer.results.find_output import require_job
from bulkinfer.results.shard import SHARDS_FILE
from bulkinfer.results.verify import verify

from tests.commands import records, rows
from tests.forms import only_first
from tests.shards import BROKEN, NUM_PICTURES, launch_shard, launch_shards, shard_config


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job in three shards, all done, with one error row in the second."""
    folder = tmp_path_factory.mktemp("shards")
    launch_shards(folder)
    return folder


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "out", tmp_path / "out", copy_function=shutil.copy2)


def merge(out: Path, output: Path | str = "") -> Path:
    return merge_shards(MergeConfig(str(out), str(output))).output


def left_overs(out: Path) -> list[str]:
    known = {SHARDS_FILE, "merged", *(path.name for path in out.glob("*shard-*"))}
    return sorted({path.name for path in out.iterdir()} - known - {".merged.bulkinfer"})


def test_every_picture_is_there_once(made: Path, out: Path, tmp_path: Path) -> None:
    found = merge(out)
    assert found == out / "merged"
    assert len(rows(found)) == NUM_PICTURES == len(records(found))
    verdict = verify(found)
    assert (verdict.faults, verdict.num_ok, verdict.errors_by_stage) == ([], NUM_PICTURES - 1, {"decode": 1})
    together = verify(out)
    assert (together.faults, together.num_ok, len(together.parts)) == ([], verdict.num_ok, len(verdict.parts))
    job = require_job(found)
    assert (job.is_complete, job.shard, job.num_records) == (True, None, NUM_PICTURES)
    assert left_overs(out) == []
    whole = launch(replace(shard_config(tmp_path / "whole"), data_dir=str(made / "photos")))
    assert whole.output is not None
    assert rows(whole.output).equals(rows(found))
    assert require_job(whole.output).fingerprint == job.fingerprint


def test_what_looks_at_jobs_takes_the_merged_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch_shards(tmp_path)
    found, logs = merge(tmp_path / "out"), ["--log_path", str(tmp_path / "logs")]
    table = tmp_path / "labels.csv"
    table.write_text("key,label\n" + "".join(f"{key},{key[4:-4]}\n" for key in records(found)))
    assert score.main([str(found), "--labels", str(table), *logs]) == 0
    assert compare.main([str(found), str(tmp_path / "out" / "shard-1-of-3"), *logs]) == 0
    assert report.main([str(found), *logs]) == 0
    assert watch.main([str(found), "--once"]) == 3
    newest, *others = list_jobs(str(tmp_path / "logs"))
    assert (newest.state, newest.done, newest.total, newest.errors) == ("finished", NUM_PICTURES, NUM_PICTURES, 1)
    assert (newest.output, len(others)) == (found, 3)
    assert {"score", "compare", "report.html"} <= {path.name for path in newest.log_dir.iterdir()}
    assert "finished" in capsys.readouterr().out
    for removal in plan_removals((str(found),), "logs", str(tmp_path / "logs")):
        remove(removal)
    assert not newest.log_dir.exists()
    assert merge(tmp_path / "out") == found, "merged before there were such folders"
    assert list_jobs(str(tmp_path / "logs"))[0].output == found
    assert merge(tmp_path / "out") == found
    assert len(list_jobs(str(tmp_path / "logs"))) == 4


def test_merged_results_without_a_place_for_logs_are_whole(out: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def denied(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(merge_log, "take_log_dir", denied)
    assert verify(merge(out)).faults == []
    assert "warning: the merged results get no log folder: Permission denied: " in caplog.text


def test_parts_are_linked_and_a_retry_leaves_the_shards_alone(tmp_path: Path) -> None:
    launch_shards(tmp_path)
    found = merge(tmp_path / "out")
    assert all(path.stat().st_nlink == 2 for path in found.iterdir())
    whole = (tmp_path / "photos" / "013-cyan.png").read_bytes()
    (tmp_path / "photos" / BROKEN).write_bytes(whole)
    assert retry(RetryConfig(str(found))).exit_code == 0
    assert not verify(found).faults
    assert records(found)[BROKEN]["status"] == "ok"
    broken = tmp_path / "out" / "shard-2-of-3"
    assert records(broken)[BROKEN]["status"] == "error"
    assert retry(RetryConfig(str(broken))).exit_code == 0
    assert not verify(broken).faults
    assert records(broken)[BROKEN]["status"] == "ok"


def test_what_is_merged_already_stays(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_ino for path in merge(out).iterdir()}
    assert command.main([str(out)]) == 3  # as a launch that did all of it: there is an error row
    assert {path: path.stat().st_ino for path in (out / "merged").iterdir()} == before
    printed = capsys.readouterr().out
    assert f"{out}/merged holds the rows of all shards already" in printed
    assert "records: 26 = 25 ok + 1 errors" in printed


def forget(part: str) -> Callable[[Path], None]:
    """Remove a part of the second shard, and what its _job.json says of it."""

    def change(out: Path) -> None:
        output = out / "shard-2-of-3"
        job = require_job(output)
        job.forget_part(part)
        job.write(output)
        (output / part).unlink()

    return change


def content(**changes: Any) -> Callable[[Path], None]:
    def change(out: Path) -> None:
        job = require_job(out / "shard-2-of-3")
        job.content.update(changes)
        job.write(out / "shard-2-of-3")

    return change


def overlap(out: Path) -> None:
    """The second shard says that it has a part of the first one."""
    (part,) = (path for path in (out / "shard-1-of-3").iterdir() if "-0000000012-" in path.name)
    shutil.copy(part, out / "shard-2-of-3")
    job = require_job(out / "shard-2-of-3")
    job.content["parts"][part.name] = require_job(out / "shard-1-of-3").parts[part.name]
    job.write(out / "shard-2-of-3")


def other_job(out: Path) -> None:
    for name in ("shard-2-of-3", ".shard-2-of-3.bulkinfer"):
        shutil.rmtree(out / name)
    config = shard_config(out.parent / "other", limit=20)
    launch_shard(config, 2)
    for name in ("shard-2-of-3", ".shard-2-of-3.bulkinfer"):
        shutil.move(out.parent / "other" / "out" / name, out)


def other_shard(out: Path) -> None:
    for name in ("shard-2-of-3", ".shard-2-of-3.bulkinfer"):
        shutil.rmtree(out / name)
        shutil.copytree(out / name.replace("2", "1"), out / name)


def removed(out: Path) -> None:
    for name in ("shard-2-of-3", "shard-3-of-3"):
        shutil.rmtree(out / name)


def changed(out: Path) -> None:
    part = sorted((out / "shard-2-of-3").iterdir())[0]
    part.write_bytes(part.read_bytes()[:-1])


FIRST = "part-00000-0000000004-0000000008.parquet"


@pytest.mark.parametrize(("change", "sentence"), [
    (removed, "2 of 3 shards are not complete (2/3; 3/3): run infer_launch "),
    (content(complete=False), "1 of 3 shards is not complete (2/3): run infer_launch "),
    (forget(FIRST), "shard-2-of-3 says that it is complete, and its parts do not hold each of its records once"),
    (overlap, "holds records that do not belong to this shard"),
    (other_job, "shard-2-of-3 holds another job (fingerprint"),
    (other_shard, "shard-2-of-3 holds shard 1/3 in steps of 4 records, not shard 2/3 in steps of 4: move it away"),
    (content(resolved={"provider": "cpu", "precision": "int8"}), "ran with precision int8, the other shards with fp32"),
    (changed, "was changed after it was published: bulkinfer verify"),
    (lambda out: (out / "shard-2-of-3" / FIRST).unlink(), f"{FIRST} is gone: run infer_launch of that shard again"),
])  # fmt: skip
def test_gaps_overlaps_and_other_jobs_are_refused(out: Path, change: Callable[[Path], None], sentence: str) -> None:
    change(out)
    with pytest.raises(RunError) as refused:
        merge(out)
    assert sentence in str(refused.value)
    assert str(refused.value).count("\n") == 0
    assert not (out / "merged").exists()
    assert left_overs(out) == []
    assert verify(out).faults or not require_job(out / "shard-2-of-3").is_complete, "verify sees it too"


def test_the_command_for_a_missing_shard_keeps_the_rows_that_it_has(tmp_path: Path) -> None:
    config = replace(shard_config(tmp_path), overwrite=True)
    for index in (1, 2):
        launch_shard(config, index)
    out = tmp_path / "out"
    forget(FIRST)(out)
    content(complete=False)(out)  # as a shard that was interrupted
    kept = {path.name: path.stat().st_ino for path in (out / "shard-2-of-3").glob("part-*")}
    assert kept
    with pytest.raises(RunError, match=r"2 of 3 shards are not complete \(2/3; 3/3\): run ") as refused:
        merge(out)
    command = str(refused.value).partition(": run ")[2].removesuffix(", and so the others")
    words = shlex.split(command)
    assert "--overwrite" not in words
    assert (words[0], words[words.index("--shard") + 1], words[words.index("--output") + 1]) == (
        "infer_launch",
        "2/3",
        str(out),
    )
    assert infer_launch.main(words[1:]) == 3
    assert kept.items() < {path.name: path.stat().st_ino for path in (out / "shard-2-of-3").glob("part-*")}.items()


def test_a_shard_that_runs_is_waited_for(out: Path) -> None:
    with results_lock(out / "shard-3-of-3"), pytest.raises(RunError, match=r"shard-3-of-3 is in use by .*: wait for it"):
        merge(out)
    merge(out)


def test_two_merges_at_once(out: Path) -> None:
    with results_lock(out / "merged"), pytest.raises(LockedError, match="merged is in use by"):
        merge(out)
    merge(out)


@pytest.mark.parametrize("place", ["merged", "elsewhere"])
def test_a_folder_with_something_else_is_not_touched(out: Path, place: str) -> None:
    output = out / place
    output.mkdir()
    (output / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="exists and is not what these shards give: give another --output"):
        merge(out, output)
    assert [path.name for path in output.iterdir()] == ["mine.txt"]


def test_an_empty_folder_and_a_link_are_filled(out: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    merge(out, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert not verify(tmp_path / "empty").faults


@pytest.mark.parametrize(("given", "sentence"), [
    ("nowhere", "nowhere holds no _shards.json: give the --output of launches with --shard"),
    ("out/shard-1-of-3", "is one of the shards: bulkinfer merge"),
])  # fmt: skip
def test_a_folder_that_holds_no_shards_is_refused(out: Path, given: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        merge(out.parent / given)
    assert sentence in str(refused.value)
    with pytest.raises(UsageError, match="holds the results of a job: give a folder outside of it"):
        merge(out, out / "shard-1-of-3" / "merged")
    assert command.main([]) == 2


def test_where_files_cannot_be_linked_they_are_copied(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def refuse(source: Any, target: Any, **options: Any) -> None:
        if str(source).endswith(".parquet"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source), None, str(target))
        link(source, target, **options)

    monkeypatch.setattr(os, "link", refuse)
    found = merge(out)
    assert all(path.stat().st_nlink == 1 for path in found.iterdir())
    assert not verify(found).faults


def test_a_full_disk_leaves_nothing(out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    gathered = list[Path]()

    def full(source: Path, target: Path) -> None:
        gathered.append(target)
        if len(gathered) == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        os.link(source, target)

    monkeypatch.setattr(merge_module, "_link", full)
    assert command.main([str(out)]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert not (out / "merged").exists()
    assert left_overs(out) == []
    assert not own_folder(out / "merged").exists()
    monkeypatch.undo()
    merge(out)


KILLED = """
import os, signal, sys
from bulkinfer.launch import merge
from bulkinfer.launch.options import MergeConfig
from bulkinfer.results.job_file import JobFile
plain, calls = getattr(*eval(sys.argv[2])), []
def killing(*words, **options):
    calls.append(1)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(*words, **options)
setattr(*eval(sys.argv[2]), killing)
merge.merge_shards(MergeConfig(sys.argv[1]))
"""


@pytest.mark.parametrize(("function", "call"), only_first([
    ("(merge, '_link')", 5), ("(merge, 'fsync_directory')", 2), ("(merge, '_link')", 1), ("(JobFile, 'write')", 1),
    ("(os, 'rename')", 2),
], 2))  # fmt: skip
def test_a_merge_that_is_killed_is_absent_or_whole(out: Path, function: str, call: int) -> None:
    words = [sys.executable, "-c", KILLED, str(out), function, str(call)]
    killed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    is_whole = function == "(merge, 'fsync_directory')"
    assert (out / "merged").exists() == is_whole
    if is_whole:
        assert not verify(out / "merged").faults
    merge(out)
    assert not verify(out / "merged").faults
    assert left_overs(out) == []
    assert len(records(out / "merged")) == NUM_PICTURES
