"""The options of get_model that decide what a network is: the card records them, and advice to make it again repeats them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from bulkinfer.config import GetModelConfig
from bulkinfer.errors import DamagedError
from bulkinfer.files.addresses import public
from bulkinfer.files.guarded import JSON_BYTES, read_bytes
from bulkinfer.files.json_validation import mismatch
from bulkinfer.model.card import NO_LICENCE, ModelCard, Weights
from bulkinfer.types import explained, shell_word

# Not --golden and --weights_sha256, which only check, and not what the message adds: the name, the batch size and the folder.
_NAMED = ("onnx", "recipe")  # they stand before the batch size
_DECIDING = (*_NAMED, "labels", "output_name", "scores", "weights", "weights_of", "use_test_size", "input", "licence")
_PATHS = (*_NAMED, "labels", "weights")
_REST = ", and the other options it was made with"


class Again(NamedTuple):
    """How to make a network again: the words that name it, its other options, and what to add to the command in words."""

    named: list[str]
    options: list[str]
    rest: str = ""

    def command(self, batch_size: int, model_path: str, variant: Sequence[str] = ()) -> str:
        """The command to type, and what to add to it. `variant` are the options of a variant."""
        words = ["get_model", *self.named, "--batch_size", str(batch_size), *self.options]
        words += ["--model_path", model_path] if model_path != GetModelConfig.model_path else []
        words += variant
        return explained(" ".join(map(shell_word, words))) + self.rest


class _Weights(TypedDict):
    source: str
    sha256: str
    origin: str


class _Said(TypedDict):
    """What a card must say so that its network can be made again."""

    source: str
    weights: _Weights


class _Further(TypedDict, total=False):
    """What else it says; a damaged card may lack it."""

    options: dict[str, str] | None
    input: str
    licence: str
    test_size: bool


def recorded_options(config: GetModelConfig) -> dict[str, str]:
    """The deciding options of `config` that are not at their defaults, as text: "" for a switch.

    Of an absolute path only the last name is recorded, and of an address what is public: a card is given to others.
    """
    given = {name: getattr(config, name) for name in _DECIDING if getattr(config, name) != getattr(GetModelConfig, name)}
    return {name: "" if value is True else _shareable(name, value) for name, value in given.items()}


def _shareable(option: str, value: str) -> str:
    if option not in _PATHS:
        return value
    return os.path.basename(value) if os.path.isabs(value) else public(value)


def made_again(card: ModelCard, name: str) -> Again:
    """How to make the network of `card` again in a folder called `name`."""
    again = _again(asdict(card), name)
    assert again is not None, card.source
    return again


def again_from_folder(card: ModelCard, model_name: str) -> Again:
    """How a network is made by the name that its folder has: one of the zoo, or one of which only the folder is needed."""
    if card.source == "zoo":
        return made_again(card, model_name)
    return Again(["--model_name", model_name], ["--input", card.input] if card.input != GetModelConfig.input else [])


def made_again_from(path: Path, name: str) -> Again | None:
    """The same by a card that may be damaged; None if it does not say what its network was made of."""
    try:
        value = json.loads(read_bytes(path, JSON_BYTES))
    except (OSError, ValueError, RecursionError, DamagedError):
        return None
    return _again(value, name)


def unknown_source(name: str) -> str:
    """What to do about a network of which nothing says what it was made of."""
    word = shell_word(name)
    made = explained(
        " ".join(["get_model --checkpoint RUN --name", f"{word},", "or get_model --onnx FILE --name", word, "--recipe RECIPE"])
    )
    return f"make {name} again from what it was made of: {made}{_REST}"


def _again(value: Any, name: str) -> Again | None:
    if mismatch(value, _Said) or value["source"] not in ("zoo", "checkpoint", "onnx"):
        return None
    source, weights = value["source"], Weights(**{field: value["weights"][field] for field in _Weights.__annotations__})
    further = {field: value.get(field) for field in _Further.__annotations__}
    said = {field: given for field, given in further.items() if not mismatch({field: given}, _Further)}
    recorded = said.get("options")
    options = _derived(source, weights, said) if recorded is None else recorded
    words = list[str]()
    for option in (option for option in _DECIDING if option in options and option not in _NAMED):
        words += [f"--{option}", options[option]] if options[option] else [f"--{option}"]
    if source == "zoo":
        return Again(["--model_name", name], words)
    if source == "checkpoint":
        return Again(["--checkpoint", weights.origin, "--name", name], words)
    named = [
        "--onnx",
        options.get("onnx") or weights.source,
        "--name",
        name,
        "--recipe",
        options.get("recipe") or "RECIPE",
    ]
    return Again(named, words, _REST if recorded is None else "")


def _derived(source: str, weights: Weights, said: dict[str, Any]) -> dict[str, str]:
    """The options that follow from the other facts of a card of an earlier version: not the labels, output and scores."""
    options = {"input": said.get("input", GetModelConfig.input)}
    if source == "zoo":
        options["weights"] = weights.option
    elif said.get("licence", NO_LICENCE) != NO_LICENCE:
        options["licence"] = said["licence"]
    options = {name: value for name, value in options.items() if value != getattr(GetModelConfig, name)}
    return options | ({"use_test_size": ""} if said.get("test_size") else {})
