"""suggest.py: words of other tools lead to an option that the command has, and that works when it is typed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from bulkinfer.bench.options import BenchConfig
from bulkinfer.commands import suggest
from bulkinfer.commands.parse import parse
from bulkinfer.config import GetModelConfig, LaunchConfig, PartitionConfig
from bulkinfer.errors import UsageError
from bulkinfer.runtime.device_words import DEVICE_WORDS
from bulkinfer.runtime.devices import parse_device
from bulkinfer.runtime.providers import PROVIDERS
from bulkinfer.train.data.options import GetDatasetConfig
from bulkinfer.train.options import TrainConfig

from tests.configs import CONFIGS


def suggested(config: type[Any], word: str) -> str:
    known = {field.name: field.metadata["choices"] for field in dataclasses.fields(config)}
    return suggest.nearest_option(word, known)


@pytest.mark.parametrize(("config", "word", "option"), [
    (LaunchConfig, "model", "model_name"), (LaunchConfig, "input", "data_dir"), (LaunchConfig, "images", "data_dir"),
    (LaunchConfig, "dir", "data_dir"), (LaunchConfig, "path", "data_dir"), (LaunchConfig, "out", "output"),
    (LaunchConfig, "gpu", "device cuda"), (LaunchConfig, "gpus", "num_devices"), (LaunchConfig, "half", "precision fp16"),
    (LaunchConfig, "fp16", "precision fp16"), (LaunchConfig, "int8", "precision int8"),
    (LaunchConfig, "workers", "num_workers"),
    (LaunchConfig, "bs", "batch_size"), (LaunchConfig, "batch", "batch_size"), (LaunchConfig, "force", "overwrite"),
    (LaunchConfig, "resume", ""), (LaunchConfig, "classes", "labels"), (LaunchConfig, "embedding", "save"),
    (LaunchConfig, "lr", ""), (LaunchConfig, "batchsize", "batch_size"), (LaunchConfig, "num_divices", "num_devices"),
    (LaunchConfig, "xyzzy", ""), (LaunchConfig, "q", ""),
    (TrainConfig, "learning_rate", "lr"), (TrainConfig, "half", "precision 16.16"), (TrainConfig, "gpus", "replicas"),
    (TrainConfig, "amp", "precision 16.32"), (TrainConfig, "bs", "micro_batch_size"), (TrainConfig, "network", "model"),
    (PartitionConfig, "input", "data_dir"), (PartitionConfig, "shards", "partitions"), (PartitionConfig, "out", "output"),
    (GetModelConfig, "license", "licence"), (GetModelConfig, "arch", "model_name"), (GetDatasetConfig, "force", "force"),
    (BenchConfig, "images", "data_dir"),
])  # fmt: skip
def test_options_by_meaning_then_by_letters(config: type[Any], word: str, option: str) -> None:
    assert suggested(config, word) == option


def test_a_job_is_continued_without_an_option() -> None:
    with pytest.raises(UsageError, match="unknown flag: '--resume'; leave it out: the same infer_launch continues a job"):
        parse("infer_launch", LaunchConfig, ["--resume"])
    with pytest.raises(UsageError, match="'--resume'; see get_model --help"):
        parse("get_model", GetModelConfig, ["--resume"])


@pytest.mark.parametrize("config", CONFIGS.values())
def test_every_suggestion_with_a_value_works_when_it_is_typed(config: type[Any]) -> None:
    options = {field.name for field in dataclasses.fields(config)}
    for word in suggest._OPTIONS:
        option, _, value = suggested(config, word).partition(" ")
        assert not option or option in options
        if value and option != "device":  # runtime/devices.py checks those
            try:
                parse("act", config, [f"--{option}", value])
            except UsageError as error:  # it does not fit the rest, which was not given
                assert "value should be one of" not in str(error)  # noqa: PT017


@pytest.mark.parametrize(("word", "device"), DEVICE_WORDS.items())
def test_a_word_for_a_device_is_known_wherever_it_is_typed(word: str, device: str) -> None:
    assert suggest.nearest_value(word, PROVIDERS) == device
    with pytest.raises(UsageError, match=f"did you mean {device}\\?$"):
        parse_device(word, "fp32")


@pytest.mark.parametrize(("word", "known", "value"), [
    ("half", ("auto", "fp32", "fp16"), "fp16"), ("half", ("32.32", "16.16"), "16.16"), ("GPU", ("auto", "cuda"), "cuda"),
    ("tpu", ("auto", "cpu"), ""), ("symlnk", ("symlink", "copy"), "symlink"), ("x", ("y",), ""),
])  # fmt: skip
def test_values(word: str, known: tuple[str, ...], value: str) -> None:
    assert suggest.nearest_value(word, known) == value
