"""begun_config.py: the options that a job began with, read from its _job.json and written as a command."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError
from bulkinfer.launch.begun_config import begun_config, command_with
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
