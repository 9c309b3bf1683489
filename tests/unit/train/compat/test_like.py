"""train/compat/like.py: the defaults of each trainer, by data, network and options."""

from __future__ import annotations

import pytest
from bulkinfer.commands.train_words import read
from bulkinfer.train.compat.like import family
from bulkinfer.train.compat.translation import translate


def defaults(trainer: str, kind: str, words: str = "") -> dict[str, str]:
    return translate([read(words.split())], like=trainer, data_kind=lambda _: kind).options


@pytest.mark.parametrize(
    ("model", "size", "name"),
    [("resnet50", "", "resnet"), ("resnext", "101", "resnext"), ("", "x50", "resnext"), ("", "B0", "efficientnet"),
     ("efficientnet-b4", "", "efficientnet"), ("mobilenet-v2", "", "mobilenet"), ("", "", "resnet"), ("timm:vgg11", "", ""),
     ("timm:resnet18", "", ""), ("wide_resnet50_2", "", ""), ("resnet", "51", ""),
     ("cifar_resnet8", "", "resnet")],
)  # fmt: skip
def test_families(model: str, size: str, name: str) -> None:
    assert family(model, size) == name


@pytest.mark.parametrize(
    ("trainer", "kind", "words", "expected"),
    [
        ("popart", "small", "", "model_size=20 norm=group norm_groups=16 shortcut_type=B micro_batch_size=32 l2=0 "
         "optimizer=sgd base_learning_rate=-6 epochs=30 precision=16.16 lr_multipliers=1,0.1,0.01 lr_drops=0.5,0.75 "
         "keep_last=0"),
        ("popart", "small", "--norm-type BATCH", "norm=BATCH norm_groups=- model_size=20"),
        ("popart", "large", "", "model_size=- norm_groups=16 base_learning_rate=-6"),
        ("popart", "small", "--epochs 5 --lr 0.5", "epochs=5 lr=0.5 base_learning_rate=-"),
        ("poptorch", "large", "", "model=resnet18 norm=batch norm_groups=- optimizer=sgd momentum=0 lr=0.01 "
         "lr_schedule=constant micro_batch_size=1 epochs=10 l2=0 precision=16.16 loss_scaling=1 validation=after keep_last=0 "
         "logs_per_epoch=1"),
        ("poptorch", "small", "--normlayer group", "norm_groups=32 stochastic_rounding=off"),
        ("poptorch", "small", "--enable-stochastic-rounding", "stochastic_rounding=on"),
        ("poptorch", "small", "--precision 32.32", "stochastic_rounding=-"),
        ("poptorch", "small", "--optimizer rmsprop_tf", "optimizer=rmsprop_tf rmsprop_decay=0.99 optimizer_eps=1e-08"),
        ("tf1", "large", "", "model=resnet norm=group norm_groups=32 optimizer=sgd micro_batch_size=4 base_learning_rate=-8 "
         "l2=0.0001 epochs=100 lr_schedule=stepped lr_drops=0.3,0.6,0.8,0.9 lr_decay=0.1 warmup_epochs=5 warmup_mode=mask "
         "precision=16.16 loss_scaling=128 validation=after keep_last=0 zero_gamma=true crop_area=0.05,1 label_smoothing=-"),
        ("tf1", "small", "", "norm=batch norm_groups=- norm_momentum=0.03 micro_batch_size=32 base_learning_rate=-6 l2=1e-06 "
         "epochs=160 lr_drops=0.5,0.75 crop_area=-"),
        ("tf1", "small", "--group-norm", "norm=group norm_groups=16 norm_momentum=-"),
        ("tf1", "large", "--optimiser momentum", "optimizer=momentum momentum=0.9 base_learning_rate=-11"),
        ("tf1", "large", "--model resnext", "model=resnext micro_batch_size=1 norm_groups=32 base_learning_rate=-8"),
        ("tf1", "small", "--model resnext", "micro_batch_size=8 norm=batch"),
        ("tf1", "large", "--model efficientnet --optimiser RMSprop --batch-size 4 --gradient-accumulation-count 128",
         "norm=group norm_groups=4 base_learning_rate=-14 rmsprop_decay=0.96875 l2=1e-05 epochs=350 label_smoothing=0.1 "
         "zero_gamma=-"),
        ("tf1", "large", "--model efficientnet", "base_learning_rate=-7 micro_batch_size=4"),
        ("tf1", "large", "--model efficientnet --optimiser momentum", "base_learning_rate=-10"),
        ("tf1", "large", "--model efficientnet --lr-schedule exponential",
         f"lr_decay=0.97 lr_decay_epochs={350 / 146!r} lr_drops=-"),
        ("tf1", "small", "--model efficientnet",
         "norm=group norm_groups=4 epochs=300 micro_batch_size=8 base_learning_rate=-6"),
        ("tf1", "large", "--lr-schedule polynomial_decay_lr",
         "lr_schedule=polynomial warmup_mode=shift lr_power=2 lr_end=1e-05 lr_drops=-"),
        ("tf1", "large", "--iterations 500", "steps=500 epochs=- warmup_epochs=0"),
        ("tf1", "large", "--batch-norm", "norm=batch norm_momentum=0.03 norm_groups=-"),
        ("tf2", "small", "", "model=cifar_resnet8 norm=batch norm_momentum=0.03 optimizer=sgd micro_batch_size=1 epochs=1 "
         "base_learning_rate=-13.287712379549449 lr_schedule=constant l2=0 weight_decay=0 precision=16.16 logs_per_epoch=1 "
         "validation=after keep_last=0 warmup_epochs=-"),
        ("popart", "small", "--model mobilenet-v2", "model_size=- norm=group norm_groups=16"),
        ("popart", "small", "--model timm:vgg11", "model_size=- norm=- norm_groups=-"),
        ("tf1", "large", "--model timm:resnet18", "norm=- norm_momentum=- zero_gamma=- l2=0.0001"),
        ("tf2", "small", "--model timm:resnet18", "norm=- norm_momentum=-"),
        ("tf2", "large", "--num-epochs 3", "model=- epochs=3"),
        ("tf2", "small", "--optimizer-params momentum=0.9", "optimizer=momentum momentum=0.9"),
    ],
)  # fmt: skip
def test_defaults(trainer: str, kind: str, words: str, expected: str) -> None:
    found = defaults(trainer, kind, words)
    for text in expected.split():
        name, _, value = text.partition("=")
        assert found.get(name, "-") == value, name
