"""docs/training.md: what other trainers have is there, with a test that proves it, or left out, with a reason."""

from __future__ import annotations

import re

import pytest

from tests.rules.source import ROOT

PAGE = ROOT / "docs" / "training.md"
# What four trainers of CNNs offer, taken together: a feature, and what its rows of the table have in them.
FEATURES = {
    "networks": ["`--model`", "`--shortcut-type`", "cardinality", "EfficientNet's factors"],
    "data sets": ["`--dataset`", "CIFAR-10/100 in both forms", "MNIST", "TFRecords", "generated", "synthetic",
                  "`--dataset_percentage`"],
    "norms": ["`--norm`", "`--norm_groups`", "`--norm_eps`", "`--norm_momentum`", "`--norm_span`"],
    "precisions": ["`--precision`", "`--half_type`", "`--loss_scaling_mode static`, `ramp`, `dynamic`"],
    "batches": ["`--micro_batch_size`", "`--gradient_accumulation`", "`--replicas`", "`--global_batch_size`"],
    "optimisers": ["`--optimizer`", "`--weight_decay` decoupled, `--l2`", "`--lars_skip`"],
    "rates": ["`--lr_schedule`", "`--base_learning_rate`, `--lr`", "`--warmup_mode`", "`--lr_staircase`",
              "`--lr_updates_per_epoch`"],
    "smoothing and mixing": ["`--label_smoothing`", "`--mixup_alpha`", "`--cutmix_alpha`"],
    "averages": ["`--ema`", "`bulkinfer average`"],
    "checkpoints": ["`--checkpoints_per_epoch`", "`--first_checkpoint_epoch`", "`--keep_last`", "`--resume`",
                    "`--init_checkpoint`, `--train_only`", "`--train_from`"],
    "validation": ["`--validation`", "`bulkinfer validate logs/RUN`", "`--valid_batch_size`"],
    "bytes to the device": ["device-side normalisation"],
    "named options": ["`--config`, `--config-path`"],
    "logs": ["`--log_path`", "`--logs_per_epoch`", "`--tensorboard`", "`--wandb`", "`--target_accuracy`"],
    "seeds": ["`--seed`, `--deterministic`"],
    "many processes": ["torchrun", "`--shard_optimizer`", "`--pipeline-splits`"],
    "recomputation": ["`--recompute blocks` or patterns"],
    "profiles": ["`--profile N`", "`--dry_run`", "`bulkinfer bench --data_only`", "`bulkinfer get_dataset`"],
    "benchmarks": ["`bulkinfer bench`"],
}  # fmt: skip
LEFT_OUT = ["FSDP", "proxy norm", "sweeps", "logs snapped", "a cache in memory", "toy networks", "a server and its client"]


def rows_below(header: str) -> list[list[str]]:
    """The cells of each row of the table that begins with this header."""
    lines = PAGE.read_text().partition(f"{header}\n")[2].splitlines()[1:]
    end = next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]


@pytest.mark.parametrize("feature", FEATURES)
def test_what_is_there_is_in_the_table(feature: str) -> None:
    cells = [f"{theirs} {ours}" for theirs, ours, _ in rows_below("| theirs | here | test |")]
    assert [word for word in FEATURES[feature] if not any(word in cell for cell in cells)] == []


def test_every_row_names_a_test() -> None:
    assert [row for row in rows_below("| theirs | here | test |") if not re.search(r"`\S+`", row[2])] == []


def test_nothing_else_is_left_out() -> None:
    rows = rows_below("| left out | why |")
    assert [word for word, row in zip(LEFT_OUT, rows, strict=True) if not row[0].startswith(word)] == []
    assert all(why for _, why in rows)
