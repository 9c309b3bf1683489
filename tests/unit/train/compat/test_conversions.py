"""train/compat/conversions.py and its parts: values that follow from more than a table, with results computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bulkinfer.commands.train_words import read
from bulkinfer.errors import UsageError
from bulkinfer.train.compat.translation import translate


def converted(words: str | list[str], like: str = "") -> dict[str, str]:
    given = read(words.split() if isinstance(words, str) else words)
    return translate([given], like=like).options


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--optimizer sgd --momentum 0.9", "optimizer=momentum momentum=0.9"),
        ("--optimizer SGD --momentum=0.0", "optimizer=sgd"),
        ("--optimizer sgd", "optimizer=sgd"),
        ("--optimizer sgd_combined --momentum 0.9", "optimizer=momentum"),
        ("--optimizer RMSprop", "optimizer=rmsprop_tf"),
        ("--optimiser RMSProp", "optimizer=rmsprop_tf"),
        ("--optimizer rmsprop", "optimizer=rmsprop"),
        ("--optimiser LARS", "optimizer=lars"),
        ("--BN-decay 0.97", "norm_momentum=0.03"),
        ("--cutmix-disable-prob 0.35", "mix_probability=0.65"),
        ("--valid-per-epoch 0.5", "validation_epochs=2"),
        ("--variable-filter fc layer4.", "train_only=fc|layer4\\."),
        ("--model resnext --group-dim 8", "width=8 group_width=-"),
        ("--size x50 --group-dim 8", "width=8"),
        ("--model efficientnet --group-dim 16", "group_width=16 width=-"),
        ("--optimiser LARS --lars-weight-decay 0.001", "l2=0.001"),
        ("--optimiser momentum --lars-weight-decay 0.001", "l2=-"),
        ("--initial-loss-scaling 16 --loss-scaling 128", "loss_scaling_mode=ramp loss_scaling_start=16 loss_scaling=128"),
        ("--initial-loss-scaling 128 --loss-scaling 128", "loss_scaling_mode=static loss_scaling_start=-"),
        *((f"{words} --precision half", f"stochastic_rounding={value}") for words, value in {
            "--prng": "on", "--no-prng": "off", "--enable-stochastic-rounding": "on", "--stochastic-rounding ON": "on",
            "--stochastic-rounding OFF": "off", "--stochastic-rounding RI": "on", "--stochastic-rounding RI_prng_stable": "on",
            "--no-stochastic-rounding": "off", "--stochastic_rounding": "on", "--nostochastic_rounding": "off",
            "--stochastic_rounding false": "off", "--stochastic_rounding=auto": "auto",
        }.items()),
        *((f"{words} --precision 16.32", "stochastic_rounding=-") for words in
          ("--prng", "--no-prng", "--no-stochastic-rounding", "--stochastic-rounding ON", "--stochastic-rounding OFF")),
        *((words, f"stochastic_rounding={value}") for words, value in {  # our own: refused where it has no effect
            "--stochastic_rounding": "on", "--stochastic_rounding off": "off", "--stochastic_rounding=true": "on"}.items()),
        ("--cutmix-lambda 0.85", "cutmix_share=0.85,0.85"),
        ("--cutmix-lambda-low 0.65 --cutmix-lambda-high 1.0", "cutmix_share=0.65,1.0"),
        ("--cutmix-lambda-high 0.9 --cutmix-lambda-low 0.5", "cutmix_share=0.5,0.9"),
        ("--learning-rate-decay 1,0.1,0.01", "lr_multipliers=1,0.1,0.01 lr_decay=-"),
        ("--learning-rate-decay 0.1", "lr_decay=0.1 lr_multipliers=-"),
        ("--lr-drops 0.3 0.6", "lr_drops=0.3,0.6 lr_schedule=stepped"),
        ("--lr-drops 146 --lr-schedule exponential --epochs 292", "lr_decay_epochs=2 lr_drops=-"),
        ("--lr-epoch-decay 4 8 --epoch 10", "lr_drops=0.4,0.8 warmup_mode=mask lr_schedule=stepped"),
        ("--lr-epoch-decay 4 8 --epoch 10 --warmup-epoch 2 --warmup_mode shift", "lr_drops=0.25,0.75 warmup_mode=shift"),
        ("--lr-scheduler-freq 0.5 --lr-schedule exponential", "lr_updates_per_epoch=0.5 lr_decay_epochs=2"),
        ("--lr-scheduler-freq 16 --lr-schedule cosine", "lr_updates_per_epoch=16 lr_decay_epochs=-"),
        ("--optimizer-params momentum=0.9", "momentum=0.9 optimizer=-"),
        ("--optimizer sgd --optimizer-params momentum=0.9", "optimizer=momentum momentum=0.9"),
        ("--optimizer lars --optimizer-params momentum=0.9 weight_decay=0.1 eeta=0.002 epsilon=0.5",
         "optimizer=lars momentum=0.9 l2=0.1 lars_trust=0.002 optimizer_eps=0.5"),
        ("--optimizer rmsprop --micro-batch-size 4 --num-replicas 2 --gradient-accumulation 8 "
         "--optimizer-params momentum=0.9 base_decay_exponent=-10 epsilon=0.001", "rmsprop_decay=0.9375 momentum=0.9"),
        ("--optimizer rmsprop --global-batch-size 512 --optimizer-params base_decay_exponent=-11", "rmsprop_decay=0.75"),
        ("--norm-layer name=group_norm num_groups=8", "norm=group norm_groups=8"),
        ("--norm-layer name=group_norm,channels_per_group=4", "norm=group norm_channels_per_group=4"),
        ("--norm-layer name=custom_batch_norm momentum=0.9", "norm=batch norm_momentum=0.1"),
        ("--weight-avg-N 10", "average=mean average_last=10"),
        ("--weight-avg-N -1 --weight-avg-strategy exponential", "average=exponential average_last=-"),
        ("--weight-avg-exp 0.97", "average=exponential average_decay=0.97"),
        ("--lr-warmup-params warmup_mode=mask warmup_epochs=5", "warmup_mode=mask warmup_epochs=5"),
        ("--lr-schedule cosine --lr-schedule-params initial_learning_rate=0.0009765625 epochs_to_total_decay=95",
         "lr_schedule=cosine base_learning_rate=-10 lr_decay_length=95"),
        ("--lr-schedule-params initial_learning_rate=0.5 end_learning_rate_ratio=0.01 power=3",
         "base_learning_rate=-1 lr_end=0.01 lr_power=3"),
    ],
)  # fmt: skip
def test_values(words: str, expected: str) -> None:
    found = converted(words)
    for text in expected.split():
        name, _, value = text.partition("=")
        assert found.get(name, "-") == value, name


def test_a_dictionary_in_yaml() -> None:
    steps = '{"boundaries": [2, 4], "values": [0.5, 0.05, 0.005]}'
    found = converted(["--num-epochs", "8", "--lr-schedule", "stepped", "--lr-schedule-params", steps])
    assert (found["lr"], found["lr_drops"], found["lr_multipliers"]) == ("0.5", "0.25,0.5", "1,0.1,0.01")
    shifted = converted(["--num-epochs", "6", "--lr-schedule-params", steps, "--lr-warmup-params", "{warmup_epochs: 2}"])
    assert shifted["lr_drops"] == "0,0.5", "the schedule begins when the warm-up is over"


def test_the_batch_of_all_replicas_and_its_rate() -> None:
    """Their 32 pictures on two replicas are 16 on each; the rate is 2^-6 x 32 = 0.5, which is 2^-8 of the global 128."""
    words = "--batch-size 32 --replication-factor 2 --gradient-accumulation-factor 4 --base-learning-rate -6"
    found = converted(words, like="popart")
    assert (found["micro_batch_size"], found["base_learning_rate"]) == ("16", "-8")
    follows = converted("--batch-size 32 --global-batch-size 128 --base-learning-rate -6", like="popart")
    assert (follows["micro_batch_size"], follows["base_learning_rate"]) == ("32", "-8")
    with pytest.raises(UsageError, match=r"--batch-size 32 is the batch of all replicas: .* a multiple of the 3 replicas"):
        converted("--batch-size 32 --replication-factor 3", like="popart")


def test_under_a_launcher_its_processes_are_the_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert converted("--batch-size 32", like="popart")["micro_batch_size"] == "8"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--initial-loss-scaling 3 --loss-scaling 100", "--initial-loss-scaling 3: doubling it never gives --loss_scaling 100"),
        ("--initial-loss-scaling 128 --loss-scaling 16", "doubling it never gives"),
        ("--checkpoint-save-freq 0", "--checkpoint-save-freq 0: it must be above 0"),
        ("--BN-decay high", "--BN-decay 'high' is not a number"),
        ("--weight-avg-exp 0.9 0.97", "--weight-avg-exp: a run makes one average: give one number"),
        ("--lr-epoch-decay 12 --epoch 10", "--lr-epoch-decay: epoch 12 is not between 0 and 10"),
        ("--lr-epoch-decay 4 --steps 10", "--lr-epoch-decay is in epochs, and --steps gives the length of the run in updates"),
        ("--lr-drops 0 --lr-schedule exponential", "--lr-drops 0: it must be above 0"),
        ("--optimizer-params beta=1", "names momentum, weight_decay, eeta, epsilon, base_decay_exponent"),
        ("--optimizer-params 0.9", "give name=value or a YAML dictionary"),
        (
            "--norm-layer name=layer_norm",
            "--norm-layer: name is 'layer_norm': legal are batch_norm, ",
        ),
        (
            "--lr-schedule-params boundaries=1",
            "there is one rate more than boundaries: give values before, ",
        ),
        ("--lr-schedule-params initial_learning_rate=0", "initial_learning_rate is 0: it must be above 0"),
        ("--optimizer-params base_decay_exponent=1", "the decay of rmsprop would be 1 - 2^1 x 1 = -1: give --rmsprop_decay"),
    ],
)
def test_values_that_cannot_be(words: str, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        converted(words)
    assert sentence in str(error.value)


def test_a_folder_of_checkpoints_is_where_runs_go_or_a_run(tmp_path: Path) -> None:
    assert converted(["--checkpoint-path", str(tmp_path / "ck")]) == {"log_path": str(tmp_path / "ck")}
    (tmp_path / "ck" / "checkpoints").mkdir(parents=True)
    assert converted(["--checkpoint-path", str(tmp_path / "ck")]) == {"resume": str(tmp_path / "ck")}
    with pytest.raises(UsageError, match="--checkpoint-path and --log_path both say where the run goes"):
        converted("--checkpoint-path ck --log_path logs")


def test_a_cluster_is_started_by_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    found = translate([read(["--distributed"])])
    assert (found.words, found.notes) == (
        [],
        ["note: --distributed: without TF_CONFIG there is one process; torchrun starts several"],
    )
    workers = {"cluster": {"worker": ["a.example:1234", "b.example:1234"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(workers))
    with pytest.raises(UsageError) as error:
        converted("--distributed")
    assert (
        "torchrun --nnodes 2 --nproc-per-node 1 --node-rank 1 --master-addr a.example --master-port 1234 -m bulkinfer train"
        in str(error.value)
    )
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {}}')
    with pytest.raises(UsageError, match="TF_CONFIG has no cluster"):
        converted("--distributed")
