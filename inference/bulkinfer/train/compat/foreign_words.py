"""Words of other trainers' command lines that ours has under another name, or has no use for.

Spellings that only differ in the name are aliases in options.py. Here are those whose value has another form, and those of
hardware that is not here: they are left out with a note.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_FLAG = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?\Z", re.DOTALL)
_YES, _NO = ("true", "t", "1", "yes"), ("false", "f", "0", "no")

_OTHER_HARDWARE = "a setting of other hardware, of no effect here"
_ALWAYS_SO = "always so here"
_NO_PIPELINE = "a network is not cut into stages here; --recompute blocks saves memory"

# Flags that are left out: name -> (how many values: 0 a switch, 1, or 2 for any number; why).
_LEFT_OUT: dict[str, tuple[int, str]] = {
    "pipeline": (0, _NO_PIPELINE),
    **dict.fromkeys(("shards", "pipeline_schedule"), (1, _NO_PIPELINE)),
    **dict.fromkeys(("pipeline_splits", "device_mapping"), (2, _NO_PIPELINE)),
    **dict.fromkeys(
        ("num_ipus", "device_iteration", "device_iterations", "batches_per_step", "prefetch_depth", "dataloader_rebatch_size",
         "internal_exchange_optimisation_target", "internal_exchange_optimization_target", "exchange_memory_target",
         "num_io_tiles", "max_cross_replica_buffer_size", "max_reduce_many_buffer_size", "min_remote_tensor_size",
         "scheduling_algorithm", "select_ipu", "select_ipus", "model_cache_path", "validation_num_replicas"),
        (1, _OTHER_HARDWARE),
    ),
    "available_memory_proportion": (2, _OTHER_HARDWARE),
    "ckpt_all_instances": (0, "the replicas have the same weights, and the first one saves them"),
    **dict.fromkeys(
        ("prng", "half_partial", "half_partials", "enable_half_partials", "nanoo",
         "saturate_on_overflow", "simulation", "stochastic_rounding", "enable_stochastic_rounding", "offload_optimizer",
         "optimizer_state_offloading", "enable_optimizer_rts", "offload_fp32_weight_copy", "gather_conv_output",
         "conv_dithering", "enable_conv_dithering", "disable_variable_offloading", "on_demand", "fused_preprocessing",
         "enable_fast_groupnorm", "disable_stable_batchnorm", "accelerator_side_reduction"),
        (0, _OTHER_HARDWARE),
    ),
    **dict.fromkeys(
        ("eight_bit_io", "eight_bit_transfer", "accelerator_side_preprocess", "normalise_input", "stable_norm",
         "fp_exceptions", "enable_fp_exceptions", "latency"),
        (0, _ALWAYS_SO),
    ),
}  # fmt: skip

# Flags with a fixed meaning: name -> what stands for it where it is on, and where it is off ("" is nothing).
_SWITCHES: dict[str, tuple[str, str]] = {
    "validation": ("--validation=during", "--validation=none"),
    "enable_recomputation": ("--recompute=blocks", "--recompute=none"),
    "enable_pipeline_recompute": ("--recompute=blocks", "--recompute=none"),
    "enable_recompute": ("--recompute=blocks", "--recompute=none"),
    "recomputation": ("--recompute=blocks", "--recompute=none"),
    "recompute": ("--recompute=blocks", "--recompute=none"),
    "auto_loss_scaling": ("--loss_scaling_mode=dynamic", "--loss_scaling_mode=static"),
    "generated_data": ("--dataset=generated", ""),
    "synthetic_data": ("--dataset=synthetic", ""),
    "dataset_cache": ("", "--cache_mb=0"),
    "train_with_valid_preprocessing": ("--augment=none", ""),
    "batch_norm": ("--norm=batch", ""),
    "group_norm": ("--norm=group", ""),
}

# Values in another form: name -> ours, then theirs -> ours.
_VALUES: dict[str, tuple[str, dict[str, str]]] = {
    "precision": ("precision", {"half": "16.16", "16": "16.16", "full": "32.32", "32": "32.32"}),
    "optimizer": ("optimizer", {name.upper(): name for name in ("sgd", "lars", "adam")} | {"RMSprop": "rmsprop"}),
    "optimiser": ("optimizer", {name.upper(): name for name in ("sgd", "lars", "adam")} | {"RMSprop": "rmsprop"}),
    "lr_schedule": (
        "lr_schedule", {"no": "constant", "const": "constant", "step": "stepped", "polynomial_decay_lr": "polynomial"},
    ),
    "synthetic_data": ("dataset", {"cpu": "generated", "host": "generated", "ipu": "synthetic"}),
    "recompute_mode": ("recompute", {"auto": "blocks", "manual": ""}),
}  # fmt: skip
# Every so many epochs there, so often an epoch here.
_EVERY = {"checkpoint_save_freq": "checkpoints_per_epoch", "epochs_per_ckpt": "checkpoints_per_epoch"}
_GROUPS = ("groups", "groupnorm_group_num", "norm_num_groups")  # elsewhere these alone mean group norm
_DROPS = ("lr_drops", "learning_rate_schedule")
_FAKES = ("--dataset=generated", "--dataset=synthetic")
_CHECKPOINTS = ("checkpoint_input_dir", "checkpoint_input_path", "checkpoint_path", "checkpoint_output_dir")
_NORMS = ("norm", "norm_type", "normlayer", "batch_norm", "group_norm")


def words_to_validate(words: Sequence[str]) -> list[str] | None:
    """What `--training False` beside a place of checkpoints asks `bulkinfer validate`; None where training is asked for."""
    found, rest, given = {"training": "true"}, list[str](), list(words)
    while given:
        word = given.pop(0)
        name, value = _split(word)
        if name in ("training", "validation", *_CHECKPOINTS):
            found[name] = value if value is not None else given.pop(0) if given else ""
        else:
            rest.append(word)
    if found["training"].lower() not in _NO:
        return None
    return [*(found[name] for name in _CHECKPOINTS if name in found), *rest]


def translate_for_validation(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """As `translate`, for a command that makes no updates: batch norm is what it has."""
    kept = [word for word in words if _split(word)[0] != "batch_norm"]
    return _translate(kept, {}, {"precision": _VALUES["precision"]})


def translate(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words as ours, and a note for each reason for which some were left out. Unknown words stay as they are."""
    return _translate(words, _SWITCHES, _VALUES)


def _translate(
    words: Sequence[str], switches: dict[str, tuple[str, str]], values_of: dict[str, tuple[str, dict[str, str]]]
) -> tuple[list[str], list[str]]:
    ours: list[str] = []
    left_out: dict[str, list[str]] = {}
    names = {name for name, _ in map(_split, words)}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, value = _split(word)
        is_off = name.startswith("no_") and (name[3:] in switches or name[3:] in _LEFT_OUT)
        name = name[3:] if is_off else name
        if name in _LEFT_OUT:
            count, why = _LEFT_OUT[name]
            _take_values(rest, count, value)
            left_out.setdefault(why, []).append(word.partition("=")[0])
        elif name in switches and (is_off or _is_switch(value, rest)):
            on, off = switches[name]
            is_on = not is_off and (value or (rest.pop(0) if rest and _is_boolean(rest[0]) else "true")).lower() in _YES
            ours += [text for text in [on if is_on else off] if text]
        elif name in values_of and (value is not None or (rest and not rest[0].startswith("-"))):
            target, values = values_of[name]
            given = value if value is not None else rest.pop(0)
            found = values.get(given, given)
            if found == "sgd" and _momentum(words):  # elsewhere one name stands for both
                found = "momentum"
            ours += [f"--{target}={found}"] if found else []
        elif name in _EVERY and (value is not None or rest):
            epochs = value if value is not None else rest.pop(0)
            ours.append(f"--{_EVERY[name]}={'0' if epochs == '0' else f'1/{epochs}'}")
        else:
            ours.append(word)
            if name in _DROPS and "lr_schedule" not in names:  # elsewhere that is the usual schedule
                ours.insert(len(ours) - 1, "--lr_schedule=stepped")
            if name in _GROUPS and names.isdisjoint(_NORMS):
                ours.insert(len(ours) - 1, "--norm=group")
    fakes = [word for word in ours if word in _FAKES]  # they win over the data set that such a command names as well
    ours = [word for word in ours if word not in _FAKES] + fakes
    return ours, [f"note: {', '.join(flags)}: {why}" for why, flags in left_out.items()]


def _split(word: str) -> tuple[str, str | None]:
    match = _FLAG.match(word)
    return (match[1].replace("-", "_"), match[2]) if match else ("", None)


def _momentum(words: Sequence[str]) -> bool:
    """Whether the words give a momentum that is not 0."""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        name, value = _split(word)
        if name == "momentum":
            return (following if value is None else value).strip("0.") != ""
    return False


def _is_boolean(word: str) -> bool:
    return word.lower() in _YES + _NO


def _is_switch(value: str | None, rest: list[str]) -> bool:
    """Whether a flag that ours takes values for stands alone, or with a truth value."""
    following = value if value is not None else rest[0] if rest else "--"
    return _is_boolean(following) or (value is None and following.startswith("-"))


def _take_values(rest: list[str], count: int, value: str | None) -> None:
    """Take the values of a flag that is left out off the words behind it."""
    if value is not None:
        return
    if count == 0:
        if rest and (_is_boolean(rest[0]) or rest[0] in ("ON", "OFF", "RI")):
            del rest[0]
    elif count == 1:
        del rest[:1]
    else:
        while rest and not rest[0].startswith("-"):
            del rest[0]
