"""train/compat/named_configs.py and the command around it: named options, which the command line overrules."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from bulkinfer.commands import train
from bulkinfer.commands.parse import parse
from bulkinfer.commands.train_words import COMMAND
from bulkinfer.errors import UsageError
from bulkinfer.train.compat.named_configs import OWN, words_of
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.ranks.world import World
from bulkinfer.train.setup import batches_of
from bulkinfer.train.update.optimisers import l2_of
from bulkinfer.train.update.schedules import make_schedule

TEXT = """
mine:
  model: cifar_resnet8
  lr_drops: [0.3, 0.6]
  label-smoothing: 0.1
  epochs: 3
  tensorboard: true
  recompute: blocks
"""


def config_of(home: Path, *words: str, text: str = TEXT) -> TrainConfig:
    """What the command makes of its words."""
    path = home / "my.yml"
    path.write_text(text)
    return parse(COMMAND, TrainConfig, train._as_ours(["--config=mine", f"--config_path={path}", *words])[0])


def test_options_of_a_file(tmp_path: Path) -> None:
    found = config_of(tmp_path)
    assert (found.model, found.lr_drops, found.label_smoothing, found.epochs) == ("cifar_resnet8", ("0.3", "0.6"), 0.1, 3.0)
    assert found.tensorboard
    assert found.recompute == ("blocks",)
    assert found.optimizer == "nesterov", "what it does not name keeps its default"


def test_the_command_line_wins(tmp_path: Path) -> None:
    found = config_of(tmp_path, "--model", "cifar_resnet14", "--steps", "7", "--notensorboard")
    assert (found.model, found.steps, found.epochs, found.tensorboard) == ("cifar_resnet14", 7, 0.0, False)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("  modle: x", "unknown flag: '--modle'; did you mean --model?"),
        ("  epochs: many", "epochs"),
        ("  micro_batch_size: 1.5", "not a whole number"),
        ("  optimizer: best", "should be one of"),
        ("  model: {a: 1}", "model must be a number, a word, true or false, or a list of these"),
        ("  tensorboard: 7", "is a switch"),
        (" : :\n - x", "is not YAML"),
    ],
)
def test_what_is_wrong_is_said(line: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        config_of(tmp_path, text=f"mine:\n  seed: 1\n{line}\n")
    assert reason in str(error.value)


def test_names_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no options called 'digits'; nearest are digits_resnet8"):
        words_of("digits", "")
    with pytest.raises(UsageError, match="No such file"):
        words_of("mine", str(tmp_path / "none.yml"))
    (tmp_path / "list.yml").write_text("- a")
    with pytest.raises(UsageError, match="must hold names with options below them"):
        words_of("mine", str(tmp_path / "list.yml"))


def test_nothing_is_made_of_what_a_file_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not YAML"):
        config_of(tmp_path, text="mine:\n  model: !!python/object/apply:os.getcwd []\n")


@pytest.mark.parametrize("name", yaml.safe_load(OWN.read_text()))
def test_our_own_are_sound(name: str) -> None:
    assert parse(COMMAND, TrainConfig, words_of(name, "")) != TrainConfig()


# Published by their sources: pictures of an update, peak rate, L2, schedule, epochs (or updates), norm and optimiser. Rates
# that depend on the batch: 2^-11 x 1024 = 0.5, 2^-11 x 768 = 0.375, 2^-13 x 16384 = 2, 2^-13 x 8192 = 1, 2^-6 x 32 = 0.5.
PUBLISHED = {
    "resnet8_test": (32, 0.5, 1e-6, "stepped", 10, "batch", "sgd"),
    "resnet50_gn": (1024, 0.5, 1e-4, "cosine", 65, "group", "momentum"),
    "resnet50_bn": (16384, 2.0, 1e-4, "cosine", 100, "batch", "momentum"),
    "resnet50_lars": (3520, 10.72, 5e-5, "polynomial", 38, "batch", "lars"),
    "resnet50_8k": (8192, 1.0, 1e-4, "cosine", 100, "batch", "momentum"),
    "resnext101": (768, 0.375, 1e-4, "cosine", 120, "group", "momentum"),
    "efficientnet_b0": (800, 0.05, 1e-5, "exponential", 350, "group", "rmsprop_tf"),
    "efficientnet_b4_g16": (768, 0.0483, 1e-5, "exponential", 350, "group", "rmsprop_tf"),
    "mobilenet_v3_small": (1024, 0.52, 3e-5, "cosine", 360, "batch", "momentum"),
    "mobilenet_v3_large": (1024, 0.52, 3e-5, "cosine", 360, "batch", "momentum"),
    "cifar_resnet8": (2000, 0.244140625, 1e-4, "cosine", 70, "batch", "sgd"),
    "cifar_resnet20": (128, 0.1, 1e-4, "stepped", 64000, "batch", "momentum"),
    "cifar_resnet32": (128, 0.1, 1e-4, "stepped", 64000, "batch", "momentum"),
    "cifar_resnet44": (128, 0.1, 1e-4, "stepped", 64000, "batch", "momentum"),
    "cifar_resnet56": (128, 0.1, 1e-4, "stepped", 64000, "batch", "momentum"),
}
ALIASES = {
    "mk2_resnet8_test": "resnet8_test",
    "mk2_resnet50_gn_16ipus": "resnet50_gn",
    "mk2_resnet50_bn_16ipus": "resnet50_bn",
    "mk2_resnet50_bn_64ipus": "resnet50_bn",
    "mk2_resnet50_bn_128ipus": "resnet50_bn",
    "mk2_resnext101_16ipus": "resnext101",
    "resnet50_16ipus_8k_bn_pipeline": "resnet50_8k",
    "resnet50_mlperf_pod16_lars": "resnet50_lars",
    "efficientnet-b4-g16-gn-pod16": "efficientnet_b4_g16",
}


def config_named(name: str, *words: str) -> TrainConfig:
    return parse(COMMAND, TrainConfig, train._as_ours([f"--config={name}", *words])[0])


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("replicas", [1, 4])
def test_a_recipe_has_the_published_figures_for_any_number_of_replicas(name: str, replicas: int) -> None:
    config = config_named(name)
    micro_batch = config.micro_batch_size if config.global_batch_size else config.micro_batch_size // replicas
    sizes = replace(config, micro_batch_size=micro_batch)
    batches = batches_of(sizes, World(size=replicas))
    schedule = make_schedule(config, batches, 1000, 10)
    found = (
        batches.global_batch,
        schedule.peak,
        l2_of(config),
        schedule.shape,
        config.epochs or config.steps,
        config.norm,
        config.optimizer,
    )
    assert found == PUBLISHED[name]


def test_names_of_other_trainers_are_the_same_recipes() -> None:
    sets = yaml.safe_load(OWN.read_text())
    assert {alias: sets[alias] for alias in ALIASES} == {alias: sets[name] for alias, name in ALIASES.items()}
    ours = {"fashion_resnet20", "digits_resnet8", *PUBLISHED}
    assert all(sets[name] in [sets[known] for known in PUBLISHED] for name in sets if name not in ours)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_recipe_says_where_it_is_from_and_that_it_was_not_run(name: str) -> None:
    line = next(line for line in OWN.read_text().splitlines() if re.match(rf"{name}:", line))
    comment = line.partition("#")[2]
    assert comment.endswith("not run here")
    assert "top-1" in comment or "%" in comment or "no accuracy" in comment or name == "efficientnet_b4_g16"
