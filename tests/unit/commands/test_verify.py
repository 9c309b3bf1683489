"""bulkinfer verify: the command that it prints for what has to run again."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from bulkinfer.commands import infer_launch, verify
from bulkinfer.launch.launcher import launch
from bulkinfer.results.find_output import require_job

from tests.launches import config_of
from tests.shards import launch_shards

WORDS = "to run the job again: "


def printed(capsys: pytest.CaptureFixture[str], *outputs: Path) -> tuple[list[str], str]:
    """The commands that verify prints, and what it says is wrong."""
    capsys.readouterr()
    assert verify.main([*map(str, outputs)]) == 1
    told = capsys.readouterr()
    return [line.removeprefix(WORDS) for line in told.out.splitlines() if line.startswith(WORDS)], told.err


def test_the_command_mends_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(tmp_path, engine="inline", batches_per_step=1, overwrite=True)
    assert launch(config).exit_code == 0
    output = Path(config.output)
    next(output.glob("part-*")).unlink()
    (command,), _ = printed(capsys, output)
    assert "--overwrite" not in command
    assert infer_launch.main(shlex.split(command)[1:]) == 0
    assert verify.main([str(output)]) == 0


def test_what_no_launch_mends_has_no_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(tmp_path, engine="inline")
    assert launch(config).exit_code == 0
    (Path(config.output) / "run the job again.csv").touch()
    commands, wrong = printed(capsys, Path(config.output))
    assert commands == []
    assert "run the job again.csv is no part of the job" in wrong


def test_each_shard_has_its_own_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch_shards(tmp_path)
    out = tmp_path / "out"
    for name in ("shard-1-of-3", "shard-3-of-3"):
        next((out / name).glob("part-*")).unlink()
    commands, _ = printed(capsys, out)
    assert [command.partition("--shard ")[2].split()[0] for command in commands] == ["1/3", "3/3"]
    for command in commands:
        assert infer_launch.main(shlex.split(command)[1:]) == 0
    assert verify.main([str(out)]) == 0


def test_options_that_cannot_be_read_are_one_more_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(tmp_path, engine="inline")
    assert launch(config).exit_code == 0
    output = Path(config.output)
    job = require_job(output)
    job.content["config"]["top_k"] = "3"
    job.write(output)
    next(output.glob("part-*")).unlink()
    commands, wrong = printed(capsys, output)
    assert commands == []
    first, *_, last = wrong.splitlines()
    assert "was published, and is gone" in first
    assert last.startswith("bulkinfer verify: ")
    assert "_job.json is damaged (config.top_k is '3', not int)" in last
