"""commands/get_model.py: the command that is printed as the next one."""

from __future__ import annotations

from typing import Any

import pytest
from bulkinfer.commands.get_model import next_command
from bulkinfer.config import GetModelConfig


@pytest.mark.parametrize(
    ("options", "is_random", "words"),
    [
        ({}, False, "--batch_size 6 --data_dir PICTURES"),
        ({"batch_size": 2}, True, "--batch_size 2 --synthetic"),
        ({"precision": "int8"}, False, "--batch_size 6 --precision int8 --data_dir PICTURES"),
        ({"precision": "fp16"}, False, "--batch_size 6 --precision fp16 --device cuda --data_dir PICTURES"),
        ({"model_path": "elsewhere"}, False, "--batch_size 6 --model_path elsewhere --data_dir PICTURES"),
    ],
)
def test_the_next_command_runs_what_was_made(options: dict[str, Any], is_random: bool, words: str) -> None:
    assert next_command(GetModelConfig(**options), "net", is_random) == f"infer_launch --model_name net {words}"
