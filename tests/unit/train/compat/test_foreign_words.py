"""train/compat/foreign_words.py: command lines of other trainers run with the name of the script alone replaced."""

from __future__ import annotations

import pickle
import shlex
from pathlib import Path

import numpy as np
import pytest
from bulkinfer.commands import train, validate
from bulkinfer.train.compat import foreign_words
from bulkinfer.train.compat.foreign_words import translate, translate_for_validation, words_to_validate
from bulkinfer.train.validation import validate as validation

PICTURES = 2100  # more than any global batch below


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """D: class folders of files that a plan does not open; C: a set in CIFAR-10's python form."""
    home = tmp_path_factory.mktemp("reference")
    for folder, count in (("D/train", PICTURES // 2), ("D/validation", 2)):
        for name in ("cat", "dog"):
            (home / folder / name).mkdir(parents=True)
            for number in range(count):
                (home / folder / name / f"{number}.jpg").touch()
    random = np.random.default_rng(0)
    files = home / "C" / "cifar-10-batches-py"
    files.mkdir(parents=True)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        data = random.integers(0, 256, (PICTURES // 5, 3072), np.uint8)
        (files / name).write_bytes(pickle.dumps({"data": data, "labels": [0, 9] * (PICTURES // 10)}))
    return home


# A command line of theirs, the data that it runs on, and what its plan must say.
COMMANDS = [
    ("--data-dir=./", "C", "cifar_resnet20 (default), "),
    (
        "--data-dir=./ --size x50 --dataset IMAGENET --base-learning-rate -6 --batch-size 32 --replication-factor 2 "
        "--num-ipus 2 --gradient-accumulation-factor 4 --recompute --no-prng --pipeline",
        "D",
        "resnext50, ; micro batch 32 x accumulation 4 x replicas 2 = global batch 256; 4 at its peak",
    ),
    (
        "--data imagenet --imagenet-data-path .",
        "D",
        "resnet18 (default), ; input 224x224; folder: 2100 pictures, 2 classes; validation: 4 pictures",
    ),
    (
        "--data-dir . --model resnet50 --data cifar10 --normlayer group --groupnorm-group-num 32 --replicas 4 --batch-size 4 "
        "--device-iteration 2 --pipeline-splits layer1/2 layer2/3 layer3/3 --enable-pipeline-recompute --no-validation "
        "--precision half --gradient-accumulation 64",
        "C",
        "resnet50, ; input 224x224; validation: none; = global batch 1024; 16.16 (bfloat16) on cpu",
    ),
    (
        "--data-dir . --model efficientnet-b0 --precision half --pipeline-splits _blocks/1/_project_conv _blocks/4/_bn1 "
        "_blocks/10 --device-iteration 1 --available-memory-proportion 0.1 --enable-pipeline-recompute --no-validation "
        "--batch-size 4 --gradient-accumulation 128 --epoch 10 --replicas 4",
        "D",
        "efficientnet_b0, ; validation: none; = global batch 2048; 20 updates, 2 an epoch; 16.16 (bfloat16) on cpu",
    ),
    ("--model resnet --model-size 50 --dataset imagenet --data-dir . --batch-size 8", "D", "resnet50, ; micro batch 8 x"),
    (
        "--dataset imagenet --data-dir . --model-size 50 --batch-size 2 --shards 2 --pipeline "
        "--gradient-accumulation-count 128 --pipeline-splits b3/0/relu --pipeline-schedule Grouped "
        "--available-memory-proportion 0.4 --enable-recomputation --replicas 4",
        "D",
        "resnet50, ; micro batch 2 x accumulation 128 x replicas 4 = global batch 1024",
    ),
    (
        "--model resnet --model-size 50 --dataset imagenet --data-dir . --replicas 16 --batch-size 8 "
        "--gradient-accumulation-count 8 --epochs 65 --enable-recomputation --optimiser momentum --momentum 0.90 "
        "--ckpts-per-epoch 1 --internal-exchange-optimisation-target balanced --normalise-input --stable-norm "
        "--enable-half-partials --lr-schedule cosine --label-smoothing 0.1 --eight-bit-io",
        "D",
        "resnet50, ; = global batch 1024; rate: cosine",
    ),
    (
        "--model resnext --model-size 101 --dataset imagenet --data-dir . --shards 2 --replicas 8 --batch-size 6 "
        "--gradient-accumulation-count 16 --epoch 120 --pipeline --pipeline-splits b3/3/relu --pipeline-schedule Grouped "
        "--enable-recomputation --optimiser momentum --momentum 0.9 --base-learning-rate -11 --no-validation "
        "--lr-schedule cosine --label-smoothing 0.1",
        "D",
        "resnext101, ; = global batch 768; 0.375 at its peak; validation: none",
    ),
    (
        "--model efficientnet --model-size B0 --data-dir . --shards 4 --batch-size 4 --pipeline "
        "--gradient-accumulation-count 128 --pipeline-splits block2b block4a block6a --enable-recomputation "
        "--pipeline-schedule Grouped --optimiser RMSprop --precision 16.32",
        "D",
        "efficientnet_b0, ; = global batch 512; 16.32 (bfloat16) on cpu",
    ),
    (
        "--model efficientnet --model-size B0 --data-dir . --shards 4 --batch-size 4 --gradient-accumulation-count 128 "
        "--group-dim 16 --expand-ratio 4 --groups 4",
        "D",
        "efficientnet_b0, ",
    ),
    ("--config digits_resnet8 --epochs 50 --dataset imagenet --data-dir .", "D", "3300 updates, 66 an epoch"),
    *(
        (
            "--model cifar_resnet8 --num-epochs 6 --precision 16.16 --micro-batch-size 8 --validation False "
            f"--half-partials True --gradient-accumulation 8 --logs-per-epoch {logs} --data-dir .",
            "C",
            "cifar_resnet8, ; validation: none; = global batch 64",
        )
        for logs in ("1", "2", "10", "1/2", "1/3", "0")
    ),
    ("--synthetic-data cpu", "C", "data: generated"),
    ("--synthetic-data ipu", "C", "data: synthetic"),
    ("--auto-loss-scaling --data-dir .", "C", "cifar_resnet20 (default), "),
]


@pytest.mark.parametrize(("words", "data", "told"), COMMANDS)
def test_their_commands_make_a_plan(
    words: str, data: str, told: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place / data)
    assert train.main([*shlex.split(words), "--dry_run"]) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    for part in told.split("; "):
        assert part in printed
    assert [path.name for path in (place / data).iterdir() if path.name == "logs"] == []


def test_what_is_left_out_is_told_once_for_each_reason() -> None:
    words, notes = translate(["--pipeline", "--shards", "2", "--num-ipus=2", "--no-prng", "--epochs", "3"])
    assert words == ["--epochs", "3"]
    assert notes == [
        "note: --pipeline, --shards: a network is not cut into stages here; --recompute blocks saves memory",
        "note: --num-ipus, --no-prng: a setting of other hardware, of no effect here",
    ]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--validation False", "--validation=none"),
        ("--validation true --lr 1", "--validation=during --lr 1"),
        ("--no-recompute", "--recompute=none"),
        ("--auto-loss-scaling False", "--loss_scaling_mode=static"),
        ("--optimizer sgd --momentum 0.9", "--optimizer=momentum --momentum 0.9"),
        ("--optimizer SGD --momentum=0.0", "--optimizer=sgd --momentum=0.0"),
        ("--learning-rate-schedule 0.3,0.6", "--lr_schedule=stepped --learning-rate-schedule 0.3,0.6"),
        ("--validation after", "--validation after"),
        ("--no-validation", "--validation=none"),
        ("--recompute --lr 1", "--recompute=blocks --lr 1"),
        ("--recompute layer1 layer2", "--recompute layer1 layer2"),
        ("--enable-recomputation", "--recompute=blocks"),
        ("--precision=half", "--precision=16.16"),
        ("--precision 32", "--precision=32.32"),
        ("--precision 16.32", "--precision=16.32"),
        ("--precision", "--precision"),
        ("--optimiser RMSprop", "--optimizer=rmsprop"),
        ("--lr-schedule const", "--lr_schedule=constant"),
        ("--groups 4", "--norm=group --groups 4"),
        ("--groups 4 --normlayer group", "--groups 4 --normlayer group"),
        ("--group-norm --groups 4", "--norm=group --groups 4"),
        ("--synthetic-data --lr 1", "--lr 1 --dataset=synthetic"),
        ("--generated-data --dataset imagenet", "--dataset imagenet --dataset=generated"),
        ("--recompute-mode none", "--recompute=none"),
        ("--base-learning-rate -6 --x y z", "--base-learning-rate -6 --x y z"),
        ("--stochastic-rounding RI --lr 1", "--lr 1"),
        ("--available-memory-proportion 0.1 0.2 --lr 1", "--lr 1"),
        ("--half-partials", ""),
        ("--checkpoint-save-freq 4 --lr 1", "--checkpoints_per_epoch=1/4 --lr 1"),
        ("--epochs-per-ckpt=0", "--checkpoints_per_epoch=0"),
    ],
)
def test_words_in_another_form(theirs: str, ours: str) -> None:
    assert translate(theirs.split())[0] == ours.split()


def test_every_flag_that_is_left_out_is_none_of_ours() -> None:
    options = train.TrainConfig.__dataclass_fields__
    known = {name for field, facts in options.items() for name in (field, *facts.metadata["aliases"])}
    assert known.isdisjoint(foreign_words._LEFT_OUT)


def test_training_false_validates(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []
    monkeypatch.setattr(validation, "validate", lambda config: asked.append(f"{config.path} {config.precision}"))
    words = ["--training", "False", "--checkpoint-input-dir", "P", "--precision", "half", "--num-ipus", "2"]
    assert train.main(words) == 0
    assert asked == ["P 16.16"]
    assert train.main(["--training=False", "--checkpoint-input-dir=P", "--lr", "1"]) == 2
    assert "unknown flag: '--lr'" in capsys.readouterr().err
    assert words_to_validate(["--training", "True", "--lr", "1"]) is None


def test_their_validation_measures_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr(validation, "validate", found.append)
    words = "--model efficientnet --model-size B0 --batch-size 8 --generated-data --repeat 10 --batch-norm"
    assert validate.main([*words.split(), "--dataset", "imagenet"]) == 0
    assert (found[0].model, found[0].model_size, found[0].valid_batch_size, found[0].generated_data) == (
        "efficientnet", "B0", 8, True
    )  # fmt: skip
    assert translate_for_validation(["P", "--precision", "half"])[0] == ["P", "--precision=16.16"]
