"""made_with.py: what a card records of the options, and the command that makes the same network again."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.commands.parse import parse
from bulkinfer.config import GetModelConfig
from bulkinfer.model.card import USERS_FILE, ModelCard, Weights, read_card, write_card
from bulkinfer.model.made_with import made_again, made_again_from, recorded_options
from bulkinfer.types import explained

from tests.models import write_tiny_model

ADOPTED = ["--onnx", "a/m.onnx", "--name", "net", "--recipe", "r.json", "--labels", "l.txt", "--output_name", "y"]
ADOPTED += ["--scores", "logits", "--input", "float32", "--licence", "MIT"]


@pytest.fixture
def card(tmp_path: Path) -> ModelCard:
    write_tiny_model(tmp_path / "models")
    return read_card(tmp_path / "models" / "tiny" / "card.json")


def config(words: list[str]) -> GetModelConfig:
    return parse("get_model", GetModelConfig, words)


@pytest.mark.parametrize(("source", "words", "weights"), [
    ("onnx", ADOPTED, Weights("m.onnx", "0" * 64, "file")),
    ("checkpoint", ["--checkpoint", "/runs/a b", "--name", "net", "--input", "float32", "--licence", "a 'b'"],
     Weights("weights.safetensors", "0" * 64, "/runs/a b")),
    ("zoo", ["--model_name", "net", "--weights", "random", "--use_test_size", "--input", "float32"],
     Weights("random", "0" * 64)),
    ("zoo", ["--model_name", "net", "--weights", "dir/x.pth"], Weights("x.pth", "0" * 64, USERS_FILE)),
    ("zoo", ["--model_name", "net"], Weights("net-01234567.pth", "0" * 64, "package net")),
])  # fmt: skip
@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_advice_gives_every_option_that_decides_the_network(
    source: str, words: list[str], weights: Weights, is_damaged: bool, card: ModelCard, tmp_path: Path
) -> None:
    asked = config([*words, "--batch_size", "4"])
    made = replace(card, source=source, weights=weights, options=recorded_options(asked))
    write_card(tmp_path / "card.json", made)
    (tmp_path / "card.json").write_text(
        (tmp_path / "card.json").read_text().replace('"num_parameters": ', '"num_parameters": 1', 1)
    )
    again = made_again_from(tmp_path / "card.json", "net") if is_damaged else made_again(made, "net")
    assert again is not None
    assert again.rest == ""
    name, *typed = shlex.split(again.command(4, "models"))
    assert (name, config(typed)) == ("get_model", asked)


def test_the_options_of_an_earlier_card_follow_from_its_facts(card: ModelCard, tmp_path: Path) -> None:
    facts: dict[str, Any] = {"weights": Weights("random", "0" * 64), "input": "float32", "test_size": True}
    path = tmp_path / "card.json"
    write_card(path, replace(card, **facts))
    value = {name: item for name, item in json.loads(path.read_text()).items() if name not in ("options", "checksum")}
    path.write_text(json.dumps({**value, "format": 1, "num_parameters": "x"}))
    again = made_again_from(path, "net")
    assert again is not None
    assert again.command(6, "m") == (
        "get_model --model_name net --batch_size 6 --weights random --use_test_size --input float32 --model_path m"
    )


@pytest.mark.parametrize("options", [7, {"labels": 7}, ["--labels"]])
def test_a_damaged_record_counts_as_none(card: ModelCard, tmp_path: Path, options: Any) -> None:
    path = tmp_path / "card.json"
    value = asdict(replace(card, source="onnx", weights=Weights("m.onnx", "0" * 64, "file"), licence="not stated"))
    path.write_text(json.dumps({**value, "options": options}))
    again = made_again_from(path, "net")
    assert again is not None
    told = explained("get_model --onnx m.onnx --name net --recipe RECIPE --batch_size 6")
    assert again.command(6, "models") == f"{told}, and the other options it was made with"


def test_the_record_names_no_folder_of_the_host_and_no_password() -> None:
    words = ["--onnx", "/home/me/m.onnx", "--name", "net", "--recipe", "/home/me/r.json", "--labels", "../l.txt"]
    assert recorded_options(config(words)) == {"onnx": "m.onnx", "recipe": "r.json", "labels": "../l.txt"}
    assert recorded_options(config(["--weights", "https://me:secret@host/w.pth?key=1"])) == {
        "weights": "https://host/w.pth?..."
    }


def test_the_record_is_no_part_of_what_a_network_is(card: ModelCard) -> None:
    assert replace(card, options={"labels": "l.txt"}) == replace(card, options=None)
