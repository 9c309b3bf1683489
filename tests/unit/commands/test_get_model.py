"""commands/get_model.py: the command that is printed as the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands.get_model import next_command
from bulkinfer.config import GetModelConfig
from bulkinfer.types import explained


@pytest.mark.parametrize(
    ("options", "is_random", "words"),
    [
        ({}, False, "--batch_size 6 --data_dir PHOTOS"),
        ({"batch_size": 2}, True, "--batch_size 2 --synthetic"),
        ({"precision": "int8"}, False, "--batch_size 6 --precision int8 --data_dir PHOTOS"),
        ({"precision": "int8", "calibration_dir": "my own"}, False, "--batch_size 6 --precision int8 --data_dir 'my own'"),
        ({"precision": "fp16"}, False, "--batch_size 6 --precision fp16 --device cuda --data_dir PHOTOS"),
        ({"model_path": "elsewhere"}, False, "--batch_size 6 --model_path elsewhere --data_dir PHOTOS"),
    ],
)
def test_the_next_command_runs_what_was_made(
    options: dict[str, Any], is_random: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA_DIR", raising=False)
    assert next_command(GetModelConfig(**options), "net", is_random) == explained(f"infer_launch --model_name net {words}")
