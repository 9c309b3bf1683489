"""config.py: configs that Python callers make hold what flags could have given them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.bench.options import BenchConfig
from bulkinfer.config import GetModelConfig, LaunchConfig, PartitionConfig, check_values
from bulkinfer.errors import UsageError
from bulkinfer.train.options import TrainConfig

PUBLIC = (GetModelConfig, PartitionConfig, LaunchConfig, BenchConfig)


@pytest.mark.parametrize("kind", PUBLIC)
def test_defaults_are_legal(kind: type[Any]) -> None:
    assert kind() == kind(**{field.name: field.default for field in fields(kind)})


def test_paths_become_text_and_lists_become_tuples() -> None:
    config = LaunchConfig(data_dir=Path("photos"), save=["topk", "logits"], skip_done=[Path("a"), "b"])  # type: ignore[arg-type]
    assert config == LaunchConfig(data_dir="photos", save=("topk", "logits"), skip_done=("a", "b"))
    assert isinstance(config.data_dir, str)
    assert GetModelConfig(model_path=Path("models")) == GetModelConfig(model_path="models")  # type: ignore[arg-type]


def test_training_checks_when_it_begins() -> None:
    """Its configs are also made out of what runs hold."""
    config = TrainConfig(log_path=Path("logs"))  # type: ignore[arg-type]
    check_values(config)
    assert config == TrainConfig(log_path="logs")
    with pytest.raises(UsageError, match="norm is 'layer': legal are batch, group, none"):
        check_values(TrainConfig(norm="layer"))


@pytest.mark.parametrize(
    ("kind", "values", "told"),
    [
        (LaunchConfig, {"decode": "quick"}, "decode is 'quick': legal are exact, fast"),
        (LaunchConfig, {"batch_size": 0}, "batch_size is 0: it must be at least 1"),
        (LaunchConfig, {"save": "topk"}, r"save is 'topk': give a list, as in \['topk'\]"),
        (LaunchConfig, {"skip_done": Path("out")}, r"give a list, as in \['out'\]"),
        (LaunchConfig, {"batch_size": "6"}, "batch_size is '6': it must be a whole number"),
        (LaunchConfig, {"batch_size": 2.5}, "batch_size is 2.5: it must be a whole number"),
        (LaunchConfig, {"num_workers": None}, "num_workers is None: it must be a whole number"),
        (LaunchConfig, {"num_workers": True}, "num_workers is True: it must be a whole number"),
        (LaunchConfig, {"dry_run": "no"}, "dry_run is 'no': it must be True or False"),
        (LaunchConfig, {"data_dir": None}, "data_dir is None: it must be text"),
        (LaunchConfig, {"save": None}, "save is None: it must be a list of texts"),
        (LaunchConfig, {"save": [1]}, r"save is \(1,\): it must be a list of texts"),
        (PartitionConfig, {"mode": "link"}, "mode is 'link': legal are symlink, hardlink, copy, manifest"),
        (GetModelConfig, {"precision": "int4"}, "precision is 'int4': legal are fp32, fp16, int8"),
    ],
)
def test_what_no_flag_would_take_is_refused(kind: type[Any], values: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        kind(**values)


def test_the_home_folder_in_configs_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    config = LaunchConfig(output="~/out", skip_done=("~/a", "b"))
    assert (config.output, config.skip_done) == ("/home/me/out", ("/home/me/a", "b"))
