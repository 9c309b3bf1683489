"""model_lookup.py: the network of a launch by any spelling of its name, and the command that helps where it is not whole."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from inference.card import read_card, write_card
from inference.config import LaunchConfig
from inference.errors import RunError, UsageError
from inference.model_lookup import Model, check_columns, find_model
from tests.models import write_tiny_model


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "models")
    return tmp_path / "models"


def found(models: Path, name: str = "tiny", **changes: Any) -> Model:
    return find_model(LaunchConfig(model_path=str(models), model_name=name, **changes), ["cpu"])


def refusal(models: Path, name: str) -> str:
    with pytest.raises(UsageError) as caught:
        found(models, name)
    return str(caught.value)


@pytest.mark.parametrize("name", ["tiny", "TINY", "Tiny", "t-i_n-y"])
def test_any_spelling_that_get_model_takes_finds_what_it_made(models: Path, name: str) -> None:
    (models / "TINY-backup").mkdir()
    (models / "_ti-ny").touch()
    assert found(models, name).graph == (models / "tiny" / "model_6.onnx").resolve()


def test_timm_names_are_found_with_their_colon(models: Path) -> None:
    write_tiny_model(models, "timm_resnet50.a1_in1k")
    assert found(models, "timm:resnet50.a1_in1k").card.name == "timm_resnet50.a1_in1k"
    assert (
        refusal(models, "timm:resnet50.a2_in1k")
        .split("; ")[0]
        .endswith(f"run get_model --model_name timm:resnet50.a2_in1k --batch_size 6 --model_path {models}")
    )


def test_the_exact_name_comes_first(models: Path) -> None:
    write_tiny_model(models, "TINY")
    assert found(models, "TINY").card.name == "TINY"
    assert found(models, "tiny").card.name == "tiny"
    assert refusal(models, "Tiny").endswith(f" --model_path {models}; nearest of what {models} holds: TINY, tiny")


def test_an_unknown_name_gets_the_nearest_that_are_there(models: Path) -> None:
    for name in ("resnext101_32x4d", "efficientnet_lite0", "mine"):
        write_tiny_model(models, name)
    told = refusal(models, "resnext-101")
    card = models / "resnext-101" / "card.json"
    assert told.startswith(
        f"{card} does not exist: run get_model --model_name resnext-101 --batch_size 6 --model_path {models}; "
    )
    named = told.partition(f"nearest of what {models} holds: ")[2].split(", ")
    assert named[0] == "resnext101_32x4d"
    assert len(named) == 3


def test_a_folder_without_a_card_is_no_network(models: Path) -> None:
    (models / "tinie").mkdir()
    assert refusal(models, "tynie").endswith(f"; nearest of what {models} holds: tiny")
    assert refusal(models, "tinie").endswith(f": run get_model --model_name tinie --batch_size 6 --model_path {models}")


def test_looking_for_a_network_loads_no_torch() -> None:
    code = "import sys, inference.model_lookup; sys.exit(sorted({'torch', 'onnx', 'onnxruntime'} & set(sys.modules)) or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("missing", ["card.json", "model_6.onnx", "model_6.json"])
def test_a_missing_file_comes_with_the_command_that_makes_it(models: Path, missing: str) -> None:
    path = models / "tiny" / missing
    path.unlink()
    with pytest.raises(UsageError) as caught:
        found(models)
    command = f"get_model --model_name tiny --batch_size 6 --model_path {models}"
    assert str(caught.value) == f"{path} does not exist: run {command}"


def test_missing_weights(models: Path) -> None:
    (models / "tiny" / "weights.bin").unlink()
    with pytest.raises(UsageError, match=r"weights\.bin, the weights of .*model_6\.onnx, does not exist: run get_model "):
        found(models)


def test_a_batch_size_that_was_not_made(models: Path) -> None:
    with pytest.raises(UsageError, match=r"model_8\.onnx does not exist: run get_model .* --batch_size 8 "):
        found(models, batch_size=8)


def test_the_command_is_as_short_as_can_be_and_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r": run get_model --model_name resnext101_32x4d --batch_size 6$"):
        find_model(LaunchConfig(), ["cpu"])
    with pytest.raises(UsageError, match=r": run get_model --model_name 'a b' --batch_size 6 --model_path 'my models'$"):
        find_model(LaunchConfig(model_name="a b", model_path="my models"), ["cpu"])


def test_weights_that_are_not_those_of_the_card(models: Path) -> None:
    with (models / "tiny" / "weights.bin").open("ab") as file:
        file.write(b"!")
    with pytest.raises(RunError, match=r"weights\.bin is not what card\.json records \(sha256 .*: run get_model "):
        found(models)


def test_columns_of_a_network_that_classifies_nothing() -> None:
    @dataclass
    class Card:
        name: str
        outputs: dict[str, str]
        classified: str

    network: Any = Card("net", {"pooled": "values"}, "")
    check_columns(LaunchConfig(save=("pooled",)), network)
    check_columns(LaunchConfig(save=("none",)), network)
    check_columns(LaunchConfig(save=("pooled",), save_precision="fp16"), network)
    with pytest.raises(UsageError, match=r"--save_precision is of saved outputs, and none is: name one with --save \("):
        check_columns(LaunchConfig(save=("none",), save_precision="fp16"), network)
    with pytest.raises(UsageError, match="--save topk: net has only pooled, none"):
        check_columns(LaunchConfig(save=("topk",)), network)


def test_a_column_that_the_network_cannot_give(models: Path) -> None:
    card = models / "tiny" / "card.json"
    write_card(card, replace(read_card(card), outputs={"logits": "logits"}))
    with pytest.raises(UsageError, match="--save embedding: tiny has only topk, logits, none"):
        found(models, save=("topk", "embedding"))


def test_int8_is_a_folder_of_its_own_and_its_absence_names_the_command(models: Path) -> None:
    with pytest.raises(UsageError) as caught:
        found(models, precision="int8")
    command = f"get_model --model_name tiny --batch_size 6 --model_path {models} --precision int8"
    assert str(caught.value).endswith(f"int8/card.json does not exist: run {command} --calibration_dir PICTURES")
    write_tiny_model(models / "tiny", "int8")
    assert found(models, precision="int8").graph == (models / "tiny" / "int8" / "model_6.onnx").resolve()
    assert found(models).graph == (models / "tiny" / "model_6.onnx").resolve()
    with pytest.raises(UsageError) as caught:
        found(models, precision="int8", batch_size=8)
    assert str(caught.value).endswith(f"run {command.replace('6 --', '8 --', 1)}")


def test_a_variant_of_another_export_is_refused(models: Path) -> None:
    write_tiny_model(models / "tiny", "int8", weights="older")
    with pytest.raises(
        RunError,
        match=r"int8 was made of another export of the network than the one in .*: run get_model .* --calibration_dir",
    ):
        found(models, precision="int8")
    (models / "tiny" / "card.json").unlink()
    assert found(models, precision="int8").card.name == "int8"
