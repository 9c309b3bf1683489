"""train/compat/translation.py: flags of other trainers become options of ours; stronger layers win."""

from __future__ import annotations

import pytest
from bulkinfer.commands.train_words import read
from bulkinfer.errors import UsageError
from bulkinfer.train.compat.translation import Translation, rivals, translate


def made(*layers: str, like: str = "", kind: str = "small") -> Translation:
    return translate([read(layer.split()) for layer in layers], like=like, data_kind=lambda _: kind)


def options(*layers: str, like: str = "") -> str:
    return " ".join(f"{name}={value}" for name, value in made(*layers, like=like).options.items())


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--validation False", "validation=none"),
        ("--validation true --lr 1", "lr=1"),
        ("--validation after", "validation=after"),
        ("--no-validation", "validation=none"),
        ("--no-recompute", "recompute=none"),
        ("--recompute --lr 1", "recompute=blocks lr=1"),
        ("--recompute layer1 layer2", "recompute=layer1,layer2"),
        ("--recompute False", "recompute=none"),
        ("--enable-recomputation", "recompute=blocks"),
        ("--recompute-mode none", "recompute=none"),
        ("--recompute-mode manual --recompute-checkpoints a b", "recompute=a,b"),
        ("--auto-loss-scaling False", "loss_scaling_mode=static"),
        ("--precision=half", "precision=16.16"),
        ("--precision 32", "precision=32.32"),
        ("--precision 16.32", "precision=16.32"),
        ("--lr-schedule const", "lr_schedule=constant"),
        ("--groups 4", "norm=group norm_groups=4"),
        ("--groups 4 --normlayer batch", "norm_groups=4 norm=batch"),
        ("--group-norm --groups 4", "norm=group norm_groups=4"),
        ("--synthetic-data --lr 1", "lr=1 dataset=synthetic"),
        ("--synthetic-data cpu", "dataset=generated"),
        ("--generated-data --dataset imagenet", "dataset=generated"),
        ("--available-memory-proportion 0.1 0.2 --lr 1", "lr=1"),
        ("--half-partials", ""),
        ("--checkpoint-save-freq 4 --lr 1", "lr=1 checkpoints_per_epoch=1/4"),
        ("--epochs-per-ckpt=0", ""),
        ("--training True", ""),
        ("--no-dataset-cache", "cache_mb=0"),
        ("--weight-updates-per-epoch -1", ""),
        ("--base-learning-rate -6 --weight-decay 0.1", "base_learning_rate=-6 weight_decay=0.1"),
    ],
)
def test_words_in_another_form(theirs: str, ours: str) -> None:
    assert sorted(options(theirs).split()) == sorted(ours.split())


def test_the_last_flag_of_a_layer_counts() -> None:
    assert options("--epochs 3 --num-epochs 4 --epoch 5") == "epochs=5"


def test_stronger_layers_win_and_silence_rivals() -> None:
    assert options("--epochs 3", "--epochs 5 --lr 0.5") == "epochs=3 lr=0.5"
    assert options("--steps 7", "--num-epochs 5 --lr 0.5") == "steps=7 lr=0.5"
    assert options("--base-learning-rate -6", "--lr 0.5") == "base_learning_rate=-6"
    assert options("--lr-decay 0.2", "--learning-rate-decay 1,0.1") == "lr_decay=0.2"
    assert options("--lr-drops 0.3", "--learning-rate-decay 1,0.1") == "lr_schedule=stepped lr_drops=0.3"
    assert rivals(["lr", "seed"]) == {"lr", "base_learning_rate", "seed"}


def test_a_conversion_takes_values_of_all_layers() -> None:
    assert options("--lr-epoch-decay 4 8", "--num-epochs 10").endswith("warmup_mode=mask lr_drops=0.4,0.8")


def test_what_is_implied_gives_way() -> None:
    assert options("--lr-drops 0.4 --lr-schedule cosine") == "lr_schedule=cosine lr_drops=0.4"
    assert options("--groups 4", "--norm batch") == "norm=group norm_groups=4", "the stronger layer implies it"


def test_what_is_left_out_is_said_once_for_each_reason() -> None:
    found = made("--num-ipus=2 --half-partials --simulation --simulation --ckpt-all-instances --epochs 3")
    assert found.words == ["--epochs=3"]
    assert found.notes == [
        "note: --num-ipus, --half-partials, --simulation: a setting of other hardware, of no effect here",
        "note: --ckpt-all-instances: the replicas have the same weights, and the first one saves them",
    ]


def test_what_is_refused_is_refused_in_every_layer() -> None:
    for layers in (("--proxy-norm",), ("--lr 1", "--proxy-norm")):
        with pytest.raises(UsageError, match="--proxy-norm: proxy norm is not built"):
            made(*layers)


def test_rows_that_hold_with_like_alone() -> None:
    assert options("--weight-decay 0.1") == "weight_decay=0.1"
    assert "l2=0.1" in options("--weight-decay 0.1", like="poptorch")
    assert "weight_decay=0.1" in options("--weight-decay 0.1 --optimizer adamw", like="poptorch")
    assert "weight_decay=0.1" in options("--weight-decay 0.1", like="tf2")
    assert "optimizer=momentum" in options("--optimizer SGD --momentum 0.9", like="poptorch")
    assert "optimizer=sgd" in options("--optimiser SGD --momentum 0.9", like="tf1")
    assert "optimizer=momentum" in options("--optimiser SGD --momentum 0.9")
