"""train/compat/reference_flags.py and references.yml: every flag of the four trainers has a row, and the row is true."""

from __future__ import annotations

import dataclasses

import pytest
from bulkinfer.commands import train
from bulkinfer.commands.parse import parse
from bulkinfer.commands.train_words import COMMAND, read, resolve
from bulkinfer.errors import UsageError
from bulkinfer.train.compat.conversions import CONVERSIONS
from bulkinfer.train.compat.reference_flags import (
    LEFT_OUT,
    REFUSED,
    SAME,
    TRAINERS,
    VALUE_MAP,
    Row,
    blocks,
    rows,
    rows_by_flag,
)
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.plan_text import options_text

FIELDS = {field.name: field for field in dataclasses.fields(TrainConfig)}
# The flags of their scripts for training, validation and restoring, as their parsers and READMEs have them.
FLAGS = {
    "popart": """
        dataset data-dir num-workers batch-size size norm-type norm-groups shortcut-type precision prng no-prng fp-exceptions
        half-partials base-learning-rate learning-rate-decay learning-rate-schedule epochs weight-decay no-validation
        valid-per-epoch steps-per-log num-ipus replication-factor pipeline recompute gradient-accumulation-factor
        batches-per-step simulation log-dir log_dir_string get-reports""",
    "poptorch": """
        model batch-size micro-batch-size data imagenet-data-path pipeline-splits replicas device-iteration device-iterations
        precision half-partial available-memory-proportion gradient-accumulation lr epoch normlayer groupnorm-group-num
        norm-type norm-num-groups norm-eps batchnorm-momentum enable-fast-groupnorm disable-stable-batchnorm no-validation
        validation-mode validation-frequency disable-metrics enable-pipeline-recompute enable-recompute recompute-mode
        recompute-checkpoints lr-schedule lr-decay lr-epoch-decay warmup-epoch lr-scheduler-freq checkpoint-path
        checkpoint-output-dir checkpoint-input-dir checkpoint-input-path checkpoint-save-freq optimizer momentum weight-decay
        optimizer-eps rmsprop-decay loss-scaling initial-loss-scaling auto-loss-scaling enable-stochastic-rounding
        enable-fp-exceptions label-smoothing mixup-alpha cutmix-lambda-low cutmix-lambda-high cutmix-disable-prob
        weight-avg-strategy weight-avg-exp-decay weight-avg-N half-res-training fine-tune-epoch fine-tune-lr
        fine-tune-micro-batch-size fine-tune-gradient-accumulation fine-tune-first-trainable-layer eight-bit-io
        normalization-location dataloader-worker dataloader-rebatch-size iterations use-bbox-info offload-optimizer
        enable-optimizer-rts seed config wandb wandb-weight-histogram logs-per-epoch profile compile-only model-cache-path
        input-image-padding num-io-tiles exchange-memory-target efficientnet-expand-ratio efficientnet-group-dim""",
    "tf1": """
        model model-size convolution-groups group-dim widenet expand-ratio dropout-rate block-survival-prob no-se depth-divisor
        top-width use-relu width-coefficient depth-coefficient proxy-norm proxy-epsilon norm-epsilon image-size batch-norm
        group-norm groups BN-decay BN-span stable-norm dataset data-dir dataset-percentage-to-use pipeline-num-parallel
        no-dataset-cache standard-imagenet prefetch-depth fused-preprocessing train-with-valid-preprocessing dataset-benchmark
        normalise-input hostside-norm no-hostside-norm eight-bit-io generated-data synthetic-data batch-size
        gradient-accumulation-count replicas base-learning-rate abs-learning-rate lr-schedule learning-rate-decay
        learning-rate-schedule lr-decay-rate lr-drops poly-lr-decay-power poly-lr-end-ratio abs-end-learning-rate warmup-epochs
        epochs epoch iterations optimiser momentum rmsprop-decay rmsprop-base-decay-exp rmsprop-epsilon lars-epsilon
        lars-skip-list lars-weight-decay lars-eeta weight-decay label-smoothing mixup-alpha cutmix-lambda cutmix-version
        hostside-image-mixing loss-scaling precision offload-fp32-weight-copy saturate-on-overflow enable-half-partials
        no-stochastic-rounding stochastic-rounding shards pipeline pipeline-splits pipeline-schedule enable-recomputation
        variable-filter init-path ckpts-per-epoch epochs-per-ckpt ckpt-epochs-offset ckpt-all-instances weight-avg-N
        weight-avg-exp no-validation valid-batch-size restore-path repeat inference latency log-dir logs-path name-suffix
        logs-per-epoch log-freq no-logs log-all-instances mlperf-logging wandb wandb-project batches-per-step device-iterations
        seed distributed syncs-per-epoch epochs-per-sync config config-path gc-profile compile-only on-demand select-ipu
        select-ipus fp-exceptions available-memory-proportion num-io-tiles max-cross-replica-buffer-size min-remote-tensor-size
        disable-variable-offloading internal-exchange-optimisation-target scheduling-algorithm gather-conv-output
        enable-conv-dithering micro-batch-size total-batch-size rts max-reduce-many-buffer-size sharding-exclude-filter
        sharding-include-filter""",
    "tf2": """
        config config-path model model-name dataset dataset-path micro-batch-size num-replicas gradient-accumulation
        gradient-accumulation-count global-batch-size num-epochs weight-updates-per-epoch training validation
        validation-micro-batch-size validation-num-replicas pipeline-validation-model ckpts-per-epoch first-ckpt-epoch
        checkpoint-output-dir checkpoint-input-dir ckpt-all-instances clean-dir logs-per-epoch precision optimizer
        optimizer-params weight-decay l2-regularization loss-scaling auto-loss-scaling lr-schedule lr-schedule-params
        lr-warmup-params lr-staircase label-smoothing norm-layer dbn-replica-group-size stable-norm eight-bit-transfer
        accelerator-side-preprocess fused-preprocessing pipeline-num-parallel prefetch-depth synthetic-data pipeline-splits
        device-mapping pipeline-schedule recomputation seed deterministic shuffle stochastic-rounding fp-exceptions nanoo
        half-partials optimizer-state-offloading available-memory-proportion max-cross-replica-buffer-size
        max-reduce-many-buffer-size gather-conv-output conv-dithering min-remote-tensor-size
        internal-exchange-optimization-target scheduling-algorithm on-demand compile-only wandb wandb-run-name wandb-tags
        mlperf-logging sweep target-accuracy accelerator-side-reduction""",
}
KINDS = (SAME, VALUE_MAP, LEFT_OUT, REFUSED)
ROWS = [pytest.param(row, id=f"{row.flag}-{'-'.join(row.of)}") for row in rows()]
SPECIAL = {"norm": "group", "dataset": "cifar100", "validation": "after", "recompute": "blocks",
           "average": "mean"}  # fmt: skip
VALUES = {bool: "false", int: "7", float: "0.25", str: "word", tuple: "a"}  # one for an option of this type
BESIDE = {
    "lars_skip": ["--optimizer", "lars"],
    "average": ["--keep_last", "0"],
    **{name: ["--wandb"] for name in ("wandb_project", "wandb_run_name", "wandb_tags")},
}  # what it needs


def of_kind(*kinds: str) -> list[object]:
    return [param for param in ROWS if param.values[0].kind in kinds]


def words_of(row: Row, value: str) -> list[str]:
    """The flag with this value; a switch that is on stands alone."""
    return [f"--{row.flag}"] if value == "true" and row.values == "none" else [f"--{row.flag}={value}"]


@pytest.mark.parametrize("trainer", FLAGS)
def test_every_flag_of_theirs_has_a_row(trainer: str) -> None:
    of = {row.flag for row in rows() if trainer in row.of}
    names = {flag.replace("-", "_") for flag in FLAGS[trainer].split()}
    assert {name for name in names if name not in of and name.removeprefix("no_") not in of} == set()


@pytest.mark.parametrize("row", ROWS)
def test_rows_are_sound(row: Row) -> None:
    assert row.kind in KINDS
    assert row.values in ("none", "one", "many", "any", "optional")
    assert set(row.of) <= set(TRAINERS)
    assert set(row.implies) <= set(FIELDS)
    assert row.by == "" or (row.by in CONVERSIONS and row.kind == VALUE_MAP)
    if row.kind in (SAME, VALUE_MAP):
        assert set(row.ours) <= set(FIELDS)
        assert row.ours or row.map
        assert row.kind == SAME or row.map or row.by
    else:
        assert row.why
        there = set(row.ours) & set(FIELDS)
        assert not there, f"references.yml: bulkinfer has --{', --'.join(there)} now: --{row.flag} can be of the kind same"


def test_rows_of_one_flag_take_as_many_values() -> None:
    assert len({(row.flag, row.values) for row in rows()}) == len({row.flag for row in rows()})


@pytest.mark.parametrize("row", ROWS)
def test_a_flag_takes_its_values_and_no_more(row: Row) -> None:
    flag, one = f"--{row.flag.replace('_', '-')}", next(iter(row.map), "7")  # an optional value is one of them
    values = {"none": [[]], "one": [["7"]], "many": [["7"], ["7", "8"]], "any": [[], ["7", "8"]], "optional": [[], [one]]}
    for words in values[row.values]:
        found = read([flag, *words, "--deterministic"])
        assert [each.name for each in found] == [row.flag, "deterministic"]
        assert found[0].value == (",".join(words) or "true").replace("True", "true")
    if row.values in ("one", "many"):
        for following in ("--deterministic", "--unheard"):
            with pytest.raises(UsageError, match=f"{flag} needs (a|at least one) value"):
                read([flag, following])
    else:
        assert [each.value for each in read([f"--no-{row.flag}", flag, "False"])] == ["false", "false"]


@pytest.mark.parametrize("row", of_kind(SAME))
def test_the_plan_shows_another_name_of_an_option(row: Row) -> None:
    (option,) = row.ours
    value = SPECIAL.get(option, VALUES[type(FIELDS[option].default)])
    if option in ("config", "config_path", "resume"):  # which a plan resolves
        found = read([f"--{row.flag}", value])
        assert [(each.name, each.value) for each in found] == [(row.flag, value)]
        return
    value = "true" if FIELDS[option].default is False else value
    words = [*words_of(row, value), *(f"--{name}={text}" for name, text in row.implies.items()), *BESIDE.get(option, ())]
    config = parse(COMMAND, TrainConfig, train._as_ours([*words, *(["--like", row.of[0]] if row.with_like else [])])[0])
    shown = {"true": f"--{option}", "false": f"--no{option}"}.get(value, f"--{option} {value}")
    assert shown in options_text(config).split(" --")[0] or f" {shown}" in f" {options_text(config)}"


@pytest.mark.parametrize("row", of_kind(SAME, VALUE_MAP))
def test_values_are_mapped(row: Row) -> None:
    for theirs, ours in row.map.items():
        if row.by and ours:
            continue  # test_conversions.py
        options = resolve(read([*words_of(row, theirs), *(["--like", row.of[0]] if row.with_like else [])])).options
        if ours:
            assert options[row.ours[0]] == ours
        else:
            assert set(options).isdisjoint(row.ours)


@pytest.mark.parametrize("row", of_kind(LEFT_OUT))
def test_what_is_left_out_is_said(row: Row) -> None:
    words, notes = train._as_ours([f"--{row.flag}"] if row.values in ("none", "optional", "any") else [f"--{row.flag}", "7"])
    assert words == []
    assert f"note: --{row.flag}: {row.why}" in notes


@pytest.mark.parametrize("row", of_kind(REFUSED))
def test_what_is_refused_says_why(row: Row) -> None:
    with pytest.raises(UsageError) as error:
        train._as_ours([f"--{row.flag}"] if row.values == "none" else [f"--{row.flag}", "77"])
    assert str(error.value) == f"--{row.flag}: {row.why}"
    for nothing in row.map:
        assert train._as_ours([f"--{row.flag}={nothing}"])[0] == []


@pytest.mark.parametrize("trainer", TRAINERS)
def test_defaults_of_a_trainer_are_its_flags_or_options_of_ours(trainer: str) -> None:
    for block in blocks(trainer):
        for name in block.take:
            of = [row for row in rows() if row.flag == name]
            assert name in FIELDS or any(trainer in row.of for row in of), name
        assert set(block.when) <= {"data", "family", *FIELDS}


def test_the_last_row_with_like_wins() -> None:
    assert rows_by_flag()["weight_decay"].ours == ("weight_decay",)
    assert rows_by_flag("tf2")["weight_decay"].ours == ("weight_decay",)
    assert rows_by_flag("tf1")["weight_decay"].ours == ("l2", "weight_decay")
    assert rows_by_flag("tf1")["batch_size"].by == ""
    assert rows_by_flag("popart")["batch_size"].by == "batch_over_replicas"
