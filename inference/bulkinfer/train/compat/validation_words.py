"""Flags of other trainers' validation, of train without training, and of --config -> options of validate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from bulkinfer.errors import UsageError
from bulkinfer.train.compat.reference_flags import LEFT_OUT, Row, rows_by_flag
from bulkinfer.train.data.which import dataset_of
from bulkinfer.train.defaults import default_model
from bulkinfer.train.options import TrainConfig
from bulkinfer.train.validation.options import ValidateConfig
from bulkinfer.types import Given

_ANYWHERE = ("data_dir", "device", "precision", "half_type", "num_workers", "cache_mb", "on_bad_picture", "valid_batch_size")
_WITHOUT_PATH = ("model", "model_size", "image_size", "dataset")
_NO_EFFECT = "of no effect in a validation"
_OF_CHECKPOINT = "a checkpoint names its network and its data"


def validation_rows() -> dict[str, Row]:
    """The rows that hold for validate: not for spellings that it has itself, unless the row says which option it is."""
    return {name: row for name, row in rows_by_flag().items() if row.validate or name not in _own()}


def as_validation(given: Sequence[Given], of_the_set: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The options of validate by name, as texts, and notes to print.

    `of_the_set` are those of --config: what is given wins. Raises UsageError for a network that validate cannot build.
    """
    table, options, left_out = validation_rows(), dict[str, str](), dict[str, list[str]]()
    has_path = any(each.name == "path" or _option(table.get(each.name)) == "path" for each in given)
    for each in given:
        row = table.get(each.name)
        if row is None:
            options[each.name] = each.value
            continue
        option = _option(row)
        if option and row.kind != LEFT_OUT:
            options[option] = _text(row, option, each)
        elif _is_of_network(row) and not has_path and not _is_default(row, each):
            raise UsageError(f"{_word(each)}: validate builds a network as it is by default; give a run or a checkpoint of it")
        elif not _is_default(row, each):
            why = row.why if row.kind == LEFT_OUT else _OF_CHECKPOINT if _is_of_network(row) else _NO_EFFECT
            left_out.setdefault(why, []).append(_word(each))
    taken = {name: text for name, text in selected(of_the_set, has_path=has_path).items() if name not in options}
    return {**taken, **options}, [f"note: {', '.join(dict.fromkeys(words))}: {why}" for why, words in left_out.items()]


def without_training(
    given: Sequence[Given], resolve: Callable[[Sequence[Given]], Mapping[str, str]]
) -> tuple[dict[str, str], list[str]]:
    """What train without training is here: the options of validate by name, as texts, and notes to print.

    `given` are the flags of the command line, `resolve(flags)` gives the options that they and the sets they name come to.
    Raises UsageError if there is no validation either.
    """
    table = rows_by_flag()
    places = [each for each in given if each.name in table and table[each.name].validate == "path"]
    others = [each for each in given if each not in places and each.name != "training"]
    options = resolve(others)
    if options.get("validation") == "none":
        raise UsageError("nothing to do: training and validation are both switched off; leave one of the flags out")
    found = selected(options, has_path=bool(places))
    found |= {"path": places[-1].value} if places else {"weights": "random"}
    if not places and found.keys().isdisjoint(("model", "model_size")):
        found["model"] = default_model(dataset_of(found.get("dataset", ""), found.get("data_dir", "")))
    used = {*found, "micro_batch_size", "config", "config_path", "like", "validation"}
    unused = [_word(each) for each in others if not used.intersection(_sets(each, table))]
    return found, [f"note: {', '.join(dict.fromkeys(unused))}: {_NO_EFFECT}"] if unused else []


def _sets(given: Given, table: Mapping[str, Row]) -> tuple[str, ...]:
    """The options of train that a flag sets."""
    return table[given.name].ours if given.name in table else (given.name,)


def selected(options: Mapping[str, str], *, has_path: bool) -> dict[str, str]:
    """Those of train's options that validate has, too; beside a checkpoint not those of network and data."""
    names = [name for name in _ANYWHERE if not (has_path and name == "data_dir")] + ([] if has_path else [*_WITHOUT_PATH])
    found = {name: options[name] for name in names if name in options}
    if "micro_batch_size" in options:
        found.setdefault("valid_batch_size", options["micro_batch_size"])
    return found


@cache
def _own() -> frozenset[str]:
    """The spellings that validate has itself."""
    fields = dataclasses.fields(ValidateConfig)
    return frozenset(spelling for field in fields for spelling in (field.name, *field.metadata["aliases"]))


def _option(row: Row | None) -> str:
    """The option of validate that a row sets; empty if it has none."""
    if row is None:
        return ""
    return row.validate or next((name for name in row.ours[:1] if name in ValidateConfig.__dataclass_fields__), "")


def _text(row: Row, option: str, given: Given) -> str:
    if isinstance(getattr(ValidateConfig, option), bool):
        return "false" if given.value == "false" else "true"
    return row.map.get(given.value, given.value)


@cache
def _network_options() -> frozenset[str]:
    """The options of train that change the network."""
    group, found = "", set()
    for field in dataclasses.fields(TrainConfig):
        group = field.metadata["group"] or group
        found |= {field.name} if group == "model" else set()
    return frozenset(found)


def _is_of_network(row: Row) -> bool:
    return row.kind != LEFT_OUT and bool(_network_options().intersection(row.ours))


def _is_default(row: Row, given: Given) -> bool:
    """Whether a flag asks for what is there anyway."""
    text = row.map.get(given.value, given.value)
    return row.kind != LEFT_OUT and (not text or (bool(row.ours) and text == str(getattr(TrainConfig, row.ours[0], None))))


def _word(given: Given) -> str:
    return given.word.partition("=")[0]
