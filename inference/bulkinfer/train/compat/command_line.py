"""The command line of train -> options of ours, with those of --config and --like, and what there is to say about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bulkinfer.train.compat.conversions import is_run
from bulkinfer.train.compat.named_configs import words_of
from bulkinfer.train.compat.reference_flags import TRAINERS, rows, rows_by_flag
from bulkinfer.train.compat.translation import Translation, translate
from bulkinfer.train.options import DEFAULT_EPOCHS, DEFAULT_L2, TrainConfig
from bulkinfer.types import Given

# What an optimiser calls weight decay is mostly L2: these are known with the decoupled one, or both are the same to them.
_EXPECTED = ("adam", "adamw", "sgd")
# Options whose defaults decide what is trained -> what the note calls them.
_DECISIVE = {"norm": "norm", "optimizer": "optimiser", "l2": "L2", "lr_schedule": "schedule", "precision": "precision"}


def as_ours(
    given: Sequence[Given],
    read: Callable[[Sequence[str]], list[Given]],
    *,
    data_kind: Callable[[Mapping[str, str]], str],
    of_the_run: Callable[[str], Mapping[str, Any]],
) -> Translation:
    """The options that a command line gives, with those of the sets that it names.

    `read(words)` reads words as the command line is read. `data_kind` is that of translate(), `of_the_run(path)` gives the
    options of a run. Raises UsageError for a set that is not there, and for flags that are refused.
    """
    values = {each.name: each.value for each in given}
    run = _continued(values)
    layers = [given]
    if values.get("config") and not run:
        layers.append(read(words_of(values["config"], values.get("config_path", ""))))
    like = next((each.value for layer in layers for each in layer[::-1] if each.name == "like"), "").lower()
    is_like = like in TRAINERS and not run
    made = translate(
        layers, like=like if is_like else "", data_kind=data_kind, of_the_run=lambda: of_the_run(run) if run else {}
    )
    if not is_like and not run:
        made.notes += notes(layers, made.options)
    return made


def _continued(values: Mapping[str, str]) -> str:
    """The run that a command line continues; empty if it begins one. Its flags have their values."""
    names = [name for name, row in rows_by_flag().items() if "resume" in row.ours]
    places = [values[name] for name in ("resume", *names) if name in values]
    return next((place for place in places if is_run(place) or place == values.get("resume")), "")


def notes(layers: Iterable[Sequence[Given]], options: Mapping[str, str]) -> list[str]:
    """What somebody may not expect who comes from another trainer."""
    found = []
    if trainers := trainers_of(each.name for layer in layers for each in layer):
        known = {*options, *(["l2"] if "weight_decay" in options else [])}
        missing = [f"{label} {_default(name)}" for name, label in _DECISIVE.items() if name not in known]
        missing += [f"epochs {DEFAULT_EPOCHS:g}"] if options.keys().isdisjoint(("epochs", "steps")) else []
        names = " or ".join(filter(None, (", ".join(trainers[:-1]), trainers[-1])))
        whose = "its defaults" if len(trainers) == 1 else "the defaults of that trainer"
        if missing:
            found.append(f"note: not given, so ours: {', '.join(missing)}; --like {names} takes {whose}")
    optimiser = options.get("optimizer", TrainConfig.optimizer)
    if options.get("weight_decay", "0").strip("0.") and "l2" not in options and optimiser not in _EXPECTED:
        found.append("note: --weight_decay is decoupled; as L2 it is --l2")
    return found


def trainers_of(names: Iterable[str]) -> list[str]:
    """The trainers that most of the spellings that are none of ours belong to; empty if there is no such spelling."""
    own = {spelling for field in dataclasses.fields(TrainConfig) for spelling in (field.name, *field.metadata["aliases"])}
    of = [{trainer for row in rows() if row.flag == name for trainer in row.of} for name in set(names) - own]
    counts = {trainer: sum(trainer in each for each in of) for trainer in TRAINERS}
    return [trainer for trainer in TRAINERS if of and counts[trainer] == max(counts.values()) > 0]


def _default(name: str) -> str:
    """The default of an option as the note shows it."""
    return f"{DEFAULT_L2:g}" if name == "l2" else str(getattr(TrainConfig, name))
