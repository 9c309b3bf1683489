"""shards.py: which shard a launch is, and that all shards of a job agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.files.json_file import read_json, write_json
from bulkinfer.launch import plan as plan_module
from bulkinfer.launch.jobs.begun_config import begun_config
from bulkinfer.launch.jobs.shards import shard_of, with_shard
from bulkinfer.launch.launcher import launch
from bulkinfer.results.find_output import require_job
from bulkinfer.results.shard import SHARDS_FILE, Shard
from bulkinfer.results.verify import verify

from tests.commands import records
from tests.shards import NUM_PICTURES, launch_shard, shard_config
from tests.temporaries import temporary_name

ASKED = LaunchConfig(shard="3/16", batches_per_step=5, batch_size=6, output="out")


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)


def test_a_shard_gets_a_folder_of_its_own() -> None:
    found = with_shard(ASKED)
    assert found == replace(ASKED, output="out/shard-03-of-16")
    assert with_shard(found) == found
    assert shard_of(found) == Shard(3, 16, 30)
    assert with_shard(LaunchConfig()) == LaunchConfig()
    assert shard_of(LaunchConfig()) is None


@pytest.mark.parametrize(("word", "variables", "shard"), [
    ("slurm", {"SLURM_PROCID": "0", "SLURM_NTASKS": "16"}, "1/16"),
    ("slurm", {"SLURM_PROCID": "15", "SLURM_NTASKS": "16", "SLURM_ARRAY_TASK_ID": "3"}, "16/16"),
    ("slurm", {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, "1/1"),
    ("kubernetes/16", {"JOB_COMPLETION_INDEX": "2"}, "3/16"),
    ("1/1", {}, "1/1"),
    ("03/16", {}, "3/16"),
])  # fmt: skip
def test_the_number_comes_from_the_environment_where_that_is_asked(
    word: str, variables: dict[str, str], shard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert with_shard(replace(ASKED, shard=word)).shard == shard


@pytest.mark.parametrize(("changes", "variables", "sentence"), [
    ({"shard": "0/16"}, {}, "--shard 0/16: there is no shard 0 of 16: they are numbered from 1 to 16"),
    ({"shard": "17/16"}, {}, "there is no shard 17 of 16"),
    ({"shard": "3/0"}, {}, "--shard 3/0 is one of 0 shards: give 1 to 100,000"),
    ({"shard": "1/100001"}, {}, "is one of 100001 shards: give 1 to 100,000"),
    ({"shard": "3"}, {}, "--shard 3 is no shard: give I/N"),
    ({"shard": "-1/16"}, {}, "is no shard"),
    ({"shard": "3/16/2"}, {}, "is no shard"),
    ({"shard": "kubernetes"}, {}, "is no shard"),
    ({"shard": "\u0663/16"}, {}, "is no shard"),
    ({"shard": "slurm"}, {}, "takes its number from the variable SLURM_PROCID, which is not set"),
    ({"shard": "slurm"}, {"SLURM_PROCID": "2"}, "takes its number from the variable SLURM_NTASKS"),
    ({"shard": "slurm"}, {"SLURM_PROCID": "x", "SLURM_NTASKS": "16"}, "variable SLURM_PROCID is 'x', not a number"),
    ({"shard": "slurm"}, {"SLURM_PROCID": "16", "SLURM_NTASKS": "16"}, "there is no shard 17 of 16"),
    ({"shard": "slurm"}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_ARRAY_TASK_ID": "3"}, "in a job array from 1 to N"),
    ({"shard": "kubernetes/16"}, {}, "from the variable JOB_COMPLETION_INDEX, which is not set"),
    ({"shard": "kubernetes/2"}, {"JOB_COMPLETION_INDEX": "2"}, "there is no shard 3 of 2"),
    ({"batches_per_step": 0}, {}, "--shard 3/16 needs --batches_per_step N"),
    ({"output": ""}, {}, "--shard 3/16 needs --output FOLDER"),
    ({"synthetic": True}, {}, "is of pictures, and --synthetic has none"),
])  # fmt: skip
def test_a_shard_that_cannot_be_is_refused(
    changes: dict[str, Any], variables: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as refused:
        with_shard(replace(ASKED, **changes))
    assert sentence in str(refused.value)


def test_a_launch_runs_its_shard_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = shard_config(tmp_path)
    first = launch_shard(config, 1)
    assert (first.exit_code, first.records, first.ok) == (0, 10, 10)  # of seven steps the first, the fourth and the last
    assert first.output == tmp_path / "out" / "shard-1-of-3"
    assert sorted(key[:3] for key in records(first.output)) == [f"{n:03d}" for n in (0, 1, 2, 3, 12, 13, 14, 15, 24, 25)]
    job = require_job(first.output)
    assert (job.is_complete, job.num_records, job.shard) == (True, 10, Shard(1, 3, 4))
    assert not verify(first.output).faults
    next(first.output.glob("part-*-0000000012-*")).unlink()
    capsys.readouterr()
    assert launch_shard(config, 1).exit_code == 0
    assert "resume: 6 of 10 records are done, 4 to do" in capsys.readouterr().out
    assert begun_config(job, first.output) == replace(config, shard="1/3", output=str(first.output))


def test_more_shards_than_steps_leave_some_empty(tmp_path: Path) -> None:
    config = shard_config(tmp_path, limit=8)
    third = launch_shard(config, 3)
    assert (third.exit_code, third.records) == (0, 0)
    assert third.output is not None
    assert not verify(third.output).faults
    assert require_job(third.output).is_complete


def test_all_shards_must_agree(tmp_path: Path) -> None:
    config = shard_config(tmp_path)
    launch_shard(config, 1)
    shown = tmp_path / "out"
    for other, sentence in (
        (
            replace(config, shard="2/4"),
            f"{shown} holds the shards of a job in 3, not in 4: give --shard I/3, or another --output",
        ),
        (
            replace(config, shard="2/3", batches_per_step=2),
            "has 4 records, and one of this launch 8: give --batches_per_step 1",
        ),
        (
            replace(config, shard="2/3", limit=9),
            f"{shown} holds the results of another job; it differs in limit (0 there, 9 now)",
        ),
        (replace(config, shard="2/3", overwrite=True, limit=9), "give the options of the other shards, or another --output"),
        (config, f"--output {shown} holds the shards of a job: give --shard"),
        (replace(config, output=f"{shown}/shard-1-of-3"), f"give --shard 1/3 --batches_per_step 1 --output {shown}"),
    ):
        with pytest.raises(UsageError) as refused:
            launch(replace(other, log_path=str(tmp_path / "others")))
        assert sentence in str(refused.value)
    assert not (tmp_path / "others").exists()
    assert not (shown / "shard-2-of-3").exists()


def test_what_auto_became_for_the_first_shard_holds_for_the_others(tmp_path: Path) -> None:
    config = shard_config(tmp_path, precision="auto")
    assert launch_shard(config, 1).exit_code == launch_shard(config, 3).exit_code == 0
    shared = tmp_path / "out" / SHARDS_FILE
    there = read_json(shared)
    assert there["resolved"]["precision"] == "fp32"
    assert there["num_records"] == NUM_PICTURES
    write_json(shared, {**there, "resolved": {**there["resolved"], "graph_sha256": "0" * 64}})
    with pytest.raises(RunError, match=r"another launch began the first shard in .* meanwhile: run the command again"):
        launch_shard(config, 2)


def test_launches_that_begin_at_the_same_time_must_agree_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks before another has written what they share."""
    config = shard_config(tmp_path)
    launch_shard(config, 1)
    monkeypatch.setattr(plan_module, "shards_beside", lambda config, begun: None)
    for other, sentence in (
        (replace(config, shard="2/4"), "holds the shards of a job in 3, not in 4"),
        (replace(config, shard="2/3", batches_per_step=2), "has 4 records, and one of this launch 8"),
        (replace(config, shard="2/3", limit=9), "it differs in limit"),
    ):
        with pytest.raises(UsageError) as refused:
            launch(other)
        assert sentence in str(refused.value)
    assert launch_shard(config, 2).exit_code == 3
    assert launch_shard(config, 3).exit_code == 0
    assert verify(tmp_path / "out").faults == []


def test_what_a_killed_launch_was_writing_beside_the_shards_is_removed(tmp_path: Path) -> None:
    config = shard_config(tmp_path)
    (tmp_path / "out").mkdir()
    left = tmp_path / "out" / temporary_name("ab")
    left.touch()
    launch_shard(config, 1)
    assert not left.exists()


def test_a_shard_is_not_put_into_the_results_of_a_whole_job(tmp_path: Path) -> None:
    config = shard_config(tmp_path)
    assert launch(config).exit_code == 3
    with pytest.raises(UsageError, match="holds the results of a job: give a folder outside of it"):
        launch_shard(config, 1)


def test_a_dry_run_counts_the_shard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = launch(replace(shard_config(tmp_path), shard="1/3", dry_run=True))
    assert (found.records, found.ok) == (10, 0)
    assert "shard: 1/3, 10 of these records" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_overwrite_starts_one_shard_again(tmp_path: Path) -> None:
    config = shard_config(tmp_path)
    launch_shard(config, 1)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("shard-1-*/part-*")}
    assert launch_shard(replace(config, overwrite=True), 1).exit_code == 0
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("shard-1-*/part-*")}
    assert after.keys() == before.keys()
    assert all(after[path] > before[path] for path in before)
