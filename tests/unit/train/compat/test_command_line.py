"""train/compat/command_line.py: the command lines of four other trainers, and what they come to with --like and without."""

from __future__ import annotations

import pickle
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from bulkinfer.commands import train
from bulkinfer.commands.train_words import read, resolve
from bulkinfer.train.compat.command_line import trainers_of

from tests.forms import long

PICTURES = 2200  # more than any global batch below


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


@pytest.fixture(autouse=True)
def no_first_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan does not depend on them, and drawing them takes longer than all the rest."""
    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            monkeypatch.setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)


R50 = "--model resnet --model-size 50 --dataset imagenet --data-dir D"
END = (
    "--internal-exchange-optimisation-target balanced --normalise-input --stable-norm --enable-half-partials "
    "--lr-schedule cosine --label-smoothing 0.1 --eight-bit-io"
)
PIPE4 = "--pipeline --pipeline-splits b1/2/relu b2/3/relu b3/5/relu"
MOMENTUM = f"--enable-recomputation --optimiser momentum --momentum 0.90 --ckpts-per-epoch 1 {END}"
AMP = "--available-memory-proportion 0.6 0.6 0.6 0.6 0.6 0.6 0.16 0.2"
GROUPED = "--enable-recomputation --pipeline-schedule Grouped"
B0 = f"--model efficientnet --model-size B0 --data-dir D --shards 4 --pipeline {GROUPED}"
C8 = (
    "--model cifar_resnet8 --num-epochs 6 --precision 16.16 --micro-batch-size 8 --validation False --half-partials True "
    "--gradient-accumulation 8 --dataset-path C --logs-per-epoch"
)
SMALL8 = "cifar_resnet8; batch; sgd; 0.0064; 0; 64; 16.16"

# The trainer, a command line of its README or of its options, and what it trains there, computed by hand from its defaults:
# network; norm, with groups; optimiser; rate at its peak; L2; global batch; precision.
COMMANDS = [
    ("popart", "--data-dir=C", "cifar_resnet20; group 16; sgd; 0.5; 0; 32; 16.16"),
    (
        "popart",
        "--data-dir=D --size x50 --dataset IMAGENET --base-learning-rate -6 --batch-size 32 --replication-factor 2 "
        "--num-ipus 2 --gradient-accumulation-factor 4 --recompute --no-prng --pipeline",
        "resnext50; group 16; sgd; 0.5; 0; 128; 16.16",
    ),
    ("poptorch", "--data imagenet --imagenet-data-path D", "resnet18; batch; sgd; 0.01; 0; 1; 16.16"),
    (
        "poptorch",
        "--model resnet50 --data cifar10 --data-dir C --normlayer group --groupnorm-group-num 32 --replicas 4 --batch-size 4 "
        "--device-iteration 2 --pipeline-splits layer1/2 layer2/3 layer3/3 --enable-pipeline-recompute --no-validation "
        "--precision half --gradient-accumulation 64",
        "resnet50; group 32; sgd; 0.01; 0; 1024; 16.16",
    ),
    (
        "poptorch",
        "--model efficientnet-b0 --data-dir D --precision half --pipeline-splits _blocks/1/_project_conv _blocks/4/_bn1 "
        "_blocks/10 --device-iteration 1 --available-memory-proportion 0.1 --enable-pipeline-recompute --no-validation "
        "--batch-size 4 --gradient-accumulation 128 --epoch 10 --replicas 4",
        "efficientnet_b0; batch; sgd; 0.01; 0; 2048; 16.16",
    ),
    (
        "poptorch",
        "--data cifar10 --data-dir C --disable-metrics --lr 0.01 --lr-schedule step --lr-decay 0.5 --lr-epoch-decay 4 8 "
        "--warmup-epoch 2 --optimizer sgd --momentum 0.9 --loss-scaling 128 --enable-stochastic-rounding --half-partial "
        "--checkpoint-path ck --epoch 10",
        "resnet18; batch; momentum; 0.01; 0; 1; 16.16",
    ),
    ("tf1", "--dataset imagenet --data-dir D", "resnet18; group 32; sgd; 0.015625; 0.0001; 4; 16.16"),
    ("tf1", f"{R50} --batch-size 8", "resnet50; group 32; sgd; 0.03125; 0.0001; 8; 16.16"),
    (
        "tf1",
        "--dataset imagenet --data-dir D --model-size 50 --batch-size 2 --shards 2 --pipeline "
        "--gradient-accumulation-count 128 --pipeline-splits b3/0/relu --available-memory-proportion 0.4 --replicas 4 "
        + GROUPED,
        "resnet50; group 32; sgd; 4; 0.0001; 1024; 16.16",
    ),
    (
        "tf1",
        f"{R50} --replicas 16 --batch-size 8 --gradient-accumulation-count 8 --epochs 65 {MOMENTUM}",
        "resnet50; group 32; momentum; 0.5; 0.0001; 1024; 16.16",
    ),
    (
        "tf1",
        "--dataset imagenet --data-dir D --model-size 50 --batch-size 1 --available-memory-proportion 0.1",
        "resnet50; group 32; sgd; 0.00390625; 0.0001; 1; 16.16",
    ),
    (
        "tf1",
        f"{R50} --shards 4 --replicas 4 --batch-size 4 --gradient-accumulation-count 64 --epochs 65 {PIPE4} "
        f"--pipeline-schedule Grouped --max-cross-replica-buffer-size 100000000 {AMP} {MOMENTUM}",
        "resnet50; group 32; momentum; 0.5; 0.0001; 1024; 16.16",
    ),
    (
        "tf1",
        "--model resnext --model-size 101 --dataset imagenet --data-dir D --shards 2 --replicas 8 --batch-size 6 "
        "--gradient-accumulation-count 16 --epoch 120 --pipeline --pipeline-splits b3/3/relu --pipeline-schedule Grouped "
        f"--disable-variable-offloading --base-learning-rate -11 --no-validation {MOMENTUM}",
        "resnext101; group 32; momentum; 0.375; 0.0001; 768; 16.16",
    ),
    (
        "tf1",
        f"{B0} --batch-size 4 --gradient-accumulation-count 128 --pipeline-splits block2b block4a block6a --optimiser RMSprop "
        "--precision 16.32",
        "efficientnet_b0; group 4; rmsprop_tf; 0.03125; 1e-05; 512; 16.32",
    ),
    (
        "tf1",
        f"{B0} --batch-size 8 --gradient-accumulation-count 64 --pipeline-splits block2a/SE block4a block5c --precision 16.32 "
        "--optimiser RMSprop --group-dim 16 --expand-ratio 4 --groups 4",
        "efficientnet_b0; group 4; rmsprop_tf; 0.03125; 1e-05; 512; 16.32",
    ),
    (
        "tf1",
        f"--dataset imagenet --data-dir D --model-size 50 --batch-size 4 --batches-per-step 1 --shards 4 {PIPE4} "
        "--gradient-accumulation-count 64 --enable-recomputation --replicas 4 --distributed --no-stochastic-rounding "
        "--base-learning-rate -11",
        "resnet50; group 32; sgd; 0.5; 0.0001; 1024; 16.16",
    ),
    (
        "tf1",
        "--dataset cifar-10 --data-dir C --no-hostside-norm --standard-imagenet --no-dataset-cache --seed 3 --BN-span 1 "
        "--select-ipus 1 --fp-exceptions --sharding-exclude-filter a --sharding-include-filter b",
        "cifar_resnet20; batch; sgd; 0.5; 1e-06; 32; 16.16",
    ),
    ("tf2", "--dataset-path C", "cifar_resnet8; batch; sgd; 0.0001; 0; 1; 16.16"),
    ("tf2", "--dataset-path C --num-replicas 16 --training True", "cifar_resnet8; batch; sgd; 0.0016; 0; 16; 16.16"),
    ("tf2", "--dataset-path C --auto-loss-scaling", "cifar_resnet8; batch; sgd; 0.0001; 0; 1; 16.16"),
    ("tf2", "--synthetic-data cpu", "cifar_resnet8; batch; sgd; 0.0001; 0; 1; 16.16"),
    ("tf2", "--synthetic-data ipu", "cifar_resnet8; batch; sgd; 0.0001; 0; 1; 16.16"),
    *(("tf2", f"{C8} {logs}", SMALL8) for logs in ("1", "2", "10", "1/2", "1/3", "0")),
]
FURTHER = range(23, 28)  # which differ in --logs-per-epoch alone


def lines_of(printed: str) -> dict[str, str]:
    """The lines of a plan by name."""
    return dict(line.split(": ", 1) for line in printed.splitlines() if ": " in line)


def resolved(plan: dict[str, str]) -> str:
    """What a plan trains, as in COMMANDS."""
    norm = plan["norm"].replace(" (default)", "").split(", ")
    groups = f" {norm[1].removesuffix(' groups')}" if norm[0] == "group" else ""
    optimiser = plan["optimiser"].replace(" (default)", "").split(", ")
    l2 = next((part.removeprefix("L2 ") for part in optimiser if part.startswith("L2 ")), "0")
    rate = re.search(r", ([\d.e-]+)( \(default\))? at its peak", plan["rate"])
    assert rate
    return "; ".join(
        [
            plan["network"].split(",")[0].removesuffix(" (default)"),
            norm[0] + groups,
            optimiser[0],
            rate[1],
            l2,
            plan["batches"].rpartition(" ")[2],
            plan["precision"].split(" ")[0],
        ]
    )


@pytest.fixture
def in_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(place)
    monkeypatch.delenv("DATA_DIR", raising=False)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    yield
    assert not (place / "logs").exists(), "a plan writes nothing"


@pytest.mark.usefixtures("in_place")
@pytest.mark.parametrize("number", [pytest.param(n, marks=[long] if n in FURTHER else []) for n in range(len(COMMANDS))])
def test_with_like_it_is_what_they_train(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    trainer, words, expected = COMMANDS[number]
    assert train.main([*shlex.split(words), "--like", trainer, "--dry_run"]) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert resolved(lines_of(printed)) == expected
    assert "not given" not in printed


# Without --like: what the plan says of a command line of theirs, where that is not what ours would be without it.
WITHOUT = [
    (1, "network: resnext50; micro batch 32 x accumulation 4 x replicas 2 = global batch 256; 4 at its peak; --like popart"),
    (3, "group; 32 groups; validation: none; = global batch 1024; 16.16 (bfloat16); --recompute blocks; --like poptorch takes"),
    (5, "stepped, 0.01 at its peak; momentum, momentum 0.9; --lr_drops 0.4 0.8; --warmup_epochs 2; --log_path ck"),
    (9, "rate: cosine, 0.1; momentum, momentum 0.9, L2 0.0005 (default); --label_smoothing 0.1; --like tf1 takes its defaults"),
    (14, "efficientnet_b0; group; 4 groups; rmsprop_tf; --expand_ratio 4 --group_width 16"),
    (16, "cifar_resnet20 (default); --cache_mb 0; --seed 3"),
    (18, "micro batch 128 x accumulation 1 x replicas 16 = global batch 2048"),
    (20, "data: generated"),
    (21, "data: synthetic"),
    (24, "cifar_resnet8; = global batch 64; validation: none; 16.16; --logs_per_epoch 10"),
]
SINGLE = 10  # its micro batch is one picture, with batch norm


@pytest.mark.usefixtures("in_place")
@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=[] if n in dict(WITHOUT) else [long]) for n in range(len(COMMANDS)) if n != SINGLE],
)
def test_without_like_they_have_a_plan(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main([*shlex.split(COMMANDS[number][1]), "--dry_run"]) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    for part in dict(WITHOUT).get(number, "").split("; "):
        assert part in printed


@pytest.mark.usefixtures("in_place")
def test_batch_norm_of_single_pictures_is_refused_without_like(capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main([*shlex.split(COMMANDS[SINGLE][1]), "--dry_run"]) == 2
    assert "batch norm needs --micro_batch_size 2 or more, or --norm group, which --like tf1 sets" in capsys.readouterr().err
    small = "--data-dir C --like poptorch --image_size 32 --dry_run"
    assert train.main(small.split()) == 2, "the last norm of resnet18 would get one value of a picture"
    assert "at 32 x 32 pixels it gets a single value of a picture" in capsys.readouterr().err


@pytest.mark.usefixtures("in_place")
def test_warm_up_of_a_trainer_that_is_too_long_is_said_with_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(["--data-dir", "C", "--like", "tf1", "--epochs", "5", "--dry_run"]) == 2
    assert "--warmup_epochs 5 of --like tf1 is the whole run or more (5 epochs)" in capsys.readouterr().err


def notes_of(words: str) -> list[str]:
    return resolve(read(words.split())).notes


def test_what_is_not_given_is_said_once_with_the_trainer() -> None:
    assert notes_of("--num-epochs 3 --optimizer sgd --l2 0 --precision 16.32 --norm group") == [
        "note: not given, so ours: schedule cosine; --like tf2 takes its defaults"
    ]
    (note,) = notes_of("--BN-decay 0.9 --epochs 3")
    assert note == (
        "note: not given, so ours: norm batch, optimiser nesterov, L2 0.0005, schedule cosine, precision 32.32; --like tf1 "
        "takes its defaults"
    )
    (several,) = notes_of("--dataset-path D --imagenet-data-path D --steps 3")
    assert several.endswith("--like poptorch or tf2 takes the defaults of that trainer")
    assert notes_of("--epochs 3 --lr 0.1 --batch_size 32") == []
    assert notes_of("--num-epochs 3 --like tf2") == []


def test_decoupled_decay_is_said_where_it_is_not_expected() -> None:
    (note,) = notes_of("--weight_decay 0.1")
    assert note == "note: --weight_decay is decoupled; as L2 it is --l2"
    for words in ("--weight_decay 0.1 --optimizer adamw", "--weight_decay 0", "--weight_decay 0.1 --l2 0", "--l2 0.1"):
        assert notes_of(words) == []
    assert notes_of("--weight-decay 0.1 --like tf2") == []


def test_the_trainer_that_most_flags_belong_to() -> None:
    assert trainers_of(["seed", "lr"]) == []
    assert trainers_of(["num_ipus", "pipeline", "prng"]) == ["popart"]
    assert trainers_of(["gradient_accumulation_count"]) == ["tf1", "tf2"]


def test_a_set_of_options_may_follow_a_trainer(tmp_path: Path) -> None:
    sets = tmp_path / "sets.yml"
    sets.write_text("mine: {like: tf1, optimiser: momentum, epochs: 65, norm-layer: {name: batch_norm}}")
    options = resolve(read(["--config", "mine", "--config-path", str(sets), "--epochs", "3"])).options
    assert (options["epochs"], options["optimizer"], options["norm"], options["l2"]) == ("3", "momentum", "batch", "1e-06")


def test_a_run_that_is_continued_keeps_its_options(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    found = resolve(read(["--restore-path", str(tmp_path), "--num-ipus", "2"]))
    assert found.options == {"resume": str(tmp_path)}
    assert found.notes == ["note: --num-ipus: a setting of other hardware, of no effect here"]
