"""begun_config.py: the options that a job began with, read from its _job.json and written as a command."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path

import pytest
from bulkinfer.config import LaunchConfig, RunConfig
from bulkinfer.errors import RunError
from bulkinfer.launch.jobs.begun_config import begun_config, command_with, continuing, leaving_out
from bulkinfer.results.job_file import JobFile


def test_options_of_another_kind_are_damage(tmp_path: Path) -> None:
    assert begun_config(JobFile({"config": {"top_k": 3, "younger": 1, "save": ["topk"]}}), tmp_path) == LaunchConfig(top_k=3)
    assert begun_config(JobFile({}), tmp_path) == LaunchConfig()
    with pytest.raises(RunError, match=r"_job\.json is damaged \(config\.top_k is '3', not int\)"):
        begun_config(JobFile({"config": {"top_k": "3"}}), tmp_path)


def test_c30_a_printed_command_holds_every_option_that_was_given() -> None:
    config = LaunchConfig(data_dir="a b", save=("topk", "logits"), allow_cpu_nodes=True, num_devices=2)
    words = shlex.split(command_with(config, skip_done=("x's", "y")))
    given = {"infer_launch", "--data_dir", "a b", "--num_devices", "2", "--save", "topk", "logits", "--allow_cpu_nodes"}
    assert set(words) == given | {"--skip_done", "x's", "y"}


def test_the_command_to_continue_is_the_one_that_was_typed() -> None:
    typed = RunConfig(data_dir="my big", output="c6", overwrite=True, dry_run=True, save=("topk", "embedding"))
    assert continuing(typed) == "bulkinfer run 'my big' --output c6 --save topk embedding"
    assert continuing(RunConfig(model_name="resnext101_32x4d")) == "bulkinfer run --model_name resnext101_32x4d"
    assert continuing(RunConfig(data_dir="-x")) == "bulkinfer run --data_dir -x"
    assert continuing(LaunchConfig(model_name="efficientnet_lite0")) == "infer_launch --model_name efficientnet_lite0"


def test_annotations_stay_in_the_command_that_takes_them(tmp_path: Path) -> None:
    typed = RunConfig(data_dir="photos", labels="Instances.JSON", model_name="resnext101_32x4d", top_k=3)
    assert continuing(typed) == "bulkinfer run photos --labels Instances.JSON --model_name resnext101_32x4d --top_k 3"
    assert continuing(begun_config(JobFile({"config": asdict(typed)}), tmp_path)) == "infer_launch --data_dir photos --top_k 3"
    table = RunConfig(data_dir="photos", labels="classes.csv")
    assert "--labels classes.csv" in continuing(begun_config(JobFile({"config": asdict(table)}), tmp_path))


def test_what_has_no_ok_row_yet_goes_where_the_options_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out-2").mkdir()
    there = leaving_out(RunConfig(data_dir="photos", output="out", overwrite=True), Path("out"))
    assert there == "bulkinfer run photos --skip_done out --output out-3"
    into_logs = leaving_out(RunConfig(data_dir="photos", top_k=3), Path("logs/a/results"))
    assert into_logs == "bulkinfer run photos --skip_done logs/a/results --top_k 3"
