"""lookup.py: the network of a launch by any spelling of its name, and the command that helps where it is not whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import UsageError
from bulkinfer.model.card import USERS_FILE, Calibration, Weights, read_card, write_card
from bulkinfer.model.graph_checks import Golden, write_golden
from bulkinfer.model.lookup import Model, check_columns, find_model
from bulkinfer.types import explained

from tests.models import write_tiny_model


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "models")
    return tmp_path / "models"


def found(models: Path, name: str = "tiny", providers: tuple[str, ...] = ("cpu",), **changes: Any) -> Model:
    return find_model(LaunchConfig(model_path=str(models), model_name=name, **changes), providers)


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
    code = "import sys, bulkinfer.model.lookup; sys.exit(sorted({'torch', 'onnx', 'onnxruntime'} & set(sys.modules)) or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("missing", ["card.json", "model_6.onnx", "model_6.json"])
def test_a_missing_file_comes_with_the_command_that_makes_it(models: Path, missing: str) -> None:
    path = models / "tiny" / missing
    path.unlink()
    with pytest.raises(UsageError) as caught:
        found(models)
    command = f"get_model --model_name tiny --batch_size 6 --model_path {models}"
    assert str(caught.value) == f"{path} does not exist: run {command}"


@pytest.mark.parametrize(("name", "told"), [("card.json", "not JSON: "), ("model_6.json", "not JSON: ")])
@pytest.mark.parametrize("of", ["tiny", "tiny/int8"])
def test_what_is_wrong_and_the_command_are_parted_by_one_colon(models: Path, name: str, told: str, of: str) -> None:
    if of != "tiny":
        shutil.copytree(models / "tiny", models / of)
    (models / of / name).write_text("{")
    changes: dict[str, Any] = {} if of == "tiny" else {"precision": "int8"}
    with pytest.raises(UsageError) as caught:
        found(models, **changes)
    before, colon, command = str(caught.value).partition(": run get_model ")
    assert before.startswith(f"{models / of / name} is damaged ({told}")
    assert before.endswith(")")
    assert (colon, "get_model" in command) == (": run get_model ", False)


def test_missing_weights(models: Path) -> None:
    (models / "tiny" / "weights.bin").unlink()
    with pytest.raises(UsageError, match=r"weights\.bin, the weights of .*model_6\.onnx, do not exist: run get_model "):
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
    with pytest.raises(UsageError, match=r"weights\.bin is not what card\.json records \(sha256 .*: run get_model "):
        found(models)


@pytest.mark.parametrize("name", ["model_6.onnx", "weights.bin"])
def test_c48_sparse_files_of_a_terabyte_are_refused_at_once(models: Path, name: str) -> None:
    path = models / "tiny" / name
    os.truncate(path, 1 << 40)
    before = time.monotonic()
    assert f"{path.resolve()} has 1,099,511,627,776 bytes or more; such a file has at most " in refusal(models, "tiny")
    assert time.monotonic() - before < 60, "a terabyte takes minutes"


def test_weights_of_another_size_than_the_card_says_are_not_read(models: Path) -> None:
    path, weights = models / "tiny" / "card.json", models / "tiny" / "weights.bin"
    write_card(path, replace(read_card(path), external_data_bytes=weights.stat().st_size))
    assert found(models)
    with weights.open("ab") as file:
        file.write(b"!")
    assert f"{weights.resolve()} has 43 bytes or more; such a file has at most 42" in refusal(models, "tiny")


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
    with pytest.raises(
        UsageError, match=r"--save_precision applies to saved outputs, and none is saved: name one with --save \("
    ):
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
    assert str(caught.value).endswith(f"int8/card.json does not exist: run {explained(f'{command} --calibration_dir PHOTOS')}")
    write_tiny_model(models / "tiny", "int8", batch_sizes=(0, 6))
    golden_in(models / "tiny" / "int8")
    assert found(models, precision="int8").graph == (models / "tiny" / "int8" / "model_6.onnx").resolve()
    assert found(models).graph == (models / "tiny" / "model_6.onnx").resolve()
    with pytest.raises(UsageError) as caught:
        found(models, precision="int8", batch_size=8)
    assert str(caught.value).endswith(f"run {command.replace('6 --', '8 --', 1)}")


def test_fp16_is_a_folder_of_its_own_for_providers_that_must_be_given_it(models: Path) -> None:
    with pytest.raises(UsageError) as caught:
        found(models, providers=("cuda",), precision="fp16")
    command = f"get_model --model_name tiny --batch_size 6 --model_path {models} --precision fp16"
    assert str(caught.value).endswith(f"fp16/card.json does not exist: run {command}")
    for provider in ("tensorrt", "openvino:gpu", "openvino:npu"):
        assert found(models, providers=(provider,), precision="fp16").graph.parent == (models / "tiny").resolve()
    write_tiny_model(models / "tiny", "fp16")
    assert found(models, providers=("cuda",), precision="fp16").graph == (models / "tiny" / "fp16" / "model_6.onnx").resolve()
    assert found(models, providers=("cuda",)).graph.parent == (models / "tiny").resolve()
    write_tiny_model(models / "tiny", "fp16", weights="older")
    with pytest.raises(UsageError, match=rf"fp16 was made of another export .*: run {command}$"):
        found(models, providers=("cuda",), precision="fp16")


def test_a_network_that_was_made_in_the_precision_runs_as_it_is(models: Path) -> None:
    card = models / "tiny" / "card.json"
    write_card(card, replace(read_card(card), precision="fp16"))
    assert found(models, providers=("cuda",), precision="fp16").graph == (models / "tiny" / "model_6.onnx").resolve()
    with pytest.raises(UsageError, match=r"int8/card\.json does not exist"):
        found(models, precision="int8")


def test_a_variant_of_another_export_is_refused(models: Path) -> None:
    write_tiny_model(models / "tiny", "int8", weights="older")
    with pytest.raises(
        UsageError,
        match=r"int8 was made of another export of the network than the one in .*: run get_model .* --calibration_dir",
    ):
        found(models, precision="int8")
    (models / "tiny" / "card.json").unlink()
    assert found(models, precision="int8").card.name == "int8"


# -- the command that helps ----------------------------------------------------------------------------------------------


def remember(models: Path, **facts: Any) -> None:
    """The network's card says so."""
    card = models / "tiny" / "card.json"
    write_card(card, replace(read_card(card), **facts))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def golden_in(folder: Path) -> None:
    write_golden(folder / "golden.npz", Golden(np.zeros((1, 2, 2, 3), np.uint8), {"logits": np.zeros((1, 8), np.float32)}))


def told(models: Path, **changes: Any) -> str:
    """The command in a refusal."""
    with pytest.raises(UsageError) as caught:
        found(models, **changes)
    return str(caught.value).partition(": run ")[2].replace(f" --model_path {models}", "")


DAMAGED = ["card.json", "model_6.onnx", "model_6.json", "weights.bin"]


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_damaged_is_to_be_mended_before_anything_starts(models: Path, name: str) -> None:
    """So it is wrong use, exit code 2, whichever file it is."""
    cut(models / "tiny" / name)
    assert told(models) == "get_model --model_name tiny --batch_size 6"


@pytest.mark.parametrize("name", [*DAMAGED[1:], "another batch size"])
@pytest.mark.parametrize(("weights", "words"), [
    (Weights("random", "0" * 64, "random numbers"), " --weights random"),
    (Weights("mine.pth", "0" * 64, USERS_FILE), " --weights mine.pth"),
    (Weights("https://a.example/b.pth", "0" * 64, "fetched from there"), " --weights https://a.example/b.pth"),
    (Weights("tiny-0123abcd.pth", "0" * 64, "package tiny 1.0"), ""),
])  # fmt: skip
def test_the_command_keeps_weights_and_input_of_the_network_that_is_there(
    models: Path, weights: Weights, words: str, name: str
) -> None:
    remember(models, weights=weights, input="float32")
    size = 8 if name == "another batch size" else 6
    if size == 6:
        cut(models / "tiny" / name)
    assert told(models, batch_size=size) == f"get_model --model_name tiny --batch_size {size}{words} --input float32"


def test_an_adopted_network_is_mended_from_its_file_and_widened_from_its_folder(models: Path) -> None:
    write_tiny_model(models, batch_sizes=(0, 6))
    golden_in(models / "tiny")
    remember(models, source="onnx", weights=Weights("m.onnx", "0" * 64, "file given to get_model --onnx"), input="float32")
    assert told(models, batch_size=8) == "get_model --model_name tiny --batch_size 8 --input float32"
    cut(models / "tiny" / "weights.bin")
    words = "get_model --onnx m.onnx --name tiny --recipe RECIPE --batch_size 6 --input float32 --licence none"
    assert told(models) == f"{explained(words)}, and the other options it was made with"


@pytest.mark.parametrize("name", ["card.json", "weights.bin", "model.onnx", "model.json", "golden.npz"])
@pytest.mark.parametrize("harm", [cut, Path.unlink])
def test_a_damaged_variant_that_was_calibrated_needs_pictures_again(models: Path, name: str, harm: Any) -> None:
    write_tiny_model(models / "tiny", "int8", batch_sizes=(0, 6))
    golden_in(models / "tiny" / "int8")
    remember(models, weights=Weights("random", "0" * 64), input="float32")
    variant = models / "tiny" / "int8" / "card.json"
    write_card(variant, replace(read_card(models / "tiny" / "card.json"), precision="int8"))
    words = "get_model --model_name tiny --batch_size 8 --weights random --input float32 --precision int8"
    assert told(models, precision="int8", batch_size=8) == words
    harm(models / "tiny" / "int8" / name)
    assert told(models, precision="int8", batch_size=8) == explained(f"{words} --calibration_dir PHOTOS")
    assert told(models, precision="int8", batch_size=8, data_dir="my photos") == f"{words} --calibration_dir 'my photos'"


def test_a_damaged_card_beside_a_sound_variant(models: Path) -> None:
    """What the variant knows of the network stands in for it."""
    remember(models, weights=Weights("random", "0" * 64))
    write_tiny_model(models / "tiny", "fp16")
    write_card(models / "tiny" / "fp16" / "card.json", replace(read_card(models / "tiny" / "card.json"), precision="fp16"))
    cut(models / "tiny" / "card.json")
    words = "get_model --model_name tiny --batch_size 6 --weights random --precision fp16"
    assert told(models, providers=("cuda",), precision="fp16") == words


@pytest.mark.parametrize("name", ["tiny/int8", "tiny/int8/", "./tiny/int8"])
def test_a_variant_is_asked_for_by_its_precision(models: Path, name: str) -> None:
    """Also get_model looks the name up so: it would make a network of the variant, or one called int8."""
    for _ in ("not made yet", "there"):
        with pytest.raises(UsageError) as caught:
            found(models, name)
        told = f"--model_name {name}: that is the int8 variant of tiny: use --model_name tiny --precision int8"
        assert str(caught.value) == told
        write_tiny_model(models / "tiny", "int8")
    write_tiny_model(models, "int8")
    assert found(models, "int8").card.name == "int8"  # somebody's network may be called so


def test_a_variant_is_no_network_in_a_folder_of_networks(models: Path) -> None:
    write_tiny_model(models / "tiny", "int8")
    card = models / "tiny" / "int8" / "card.json"
    facts = Calibration(pictures_sha256="", calibrated=0, held_out=1, chosen="x", candidates={}, judged={})
    write_card(card, replace(read_card(card), calibration=facts, precision="int8"))
    with pytest.raises(UsageError, match=rf"use --model_path {models} --model_name tiny --precision int8$"):
        found(models / "tiny", "int8")


MADE = {
    "checkpoint": (Weights("weights.safetensors", "0" * 64, "/runs/digits 1/step-5"),
                   "run get_model --checkpoint '/runs/digits 1/step-5' --name tiny --batch_size 6 --licence none"),
    "onnx": (Weights("m.onnx", "0" * 64, "file given to get_model --onnx"),
             "run get_model --onnx m.onnx --name tiny --recipe RECIPE --batch_size 6 --licence none"),
    "zoo": (Weights("tiny.pth", "0" * 64), "run get_model --model_name tiny --batch_size 6"),
}  # fmt: skip


@pytest.mark.parametrize("source", [*MADE])
def test_the_hint_for_a_card_with_a_flipped_bit_is_how_the_network_was_made(models: Path, source: str) -> None:
    weights, told = MADE[source]
    card = models / "tiny" / "card.json"
    write_card(card, replace(read_card(card), source=source, weights=weights))
    card.write_text(card.read_text().replace('"red"', '"rad"'))
    with pytest.raises(UsageError, match=r"card\.json is damaged") as caught:
        find_model(LaunchConfig(model_path=str(models), model_name="tiny"), ["cpu"], lambda _: False)
    rest = ", and the other options it was made with" if source == "onnx" else ""
    assert str(caught.value).endswith(f": {explained(f'{told} --model_path {models}')}{rest}")


def test_the_hint_names_both_ways_where_nothing_says_how_the_network_was_made(models: Path) -> None:
    both = explained("get_model --checkpoint RUN --name tiny, or get_model --onnx FILE --name tiny --recipe RECIPE")
    rest = ", and the other options it was made with"
    for content in ("{", "[]", '{"source": "zoo"}', None):
        card = models / "tiny" / "card.json"
        card.unlink() if content is None else card.write_text(content)
        with pytest.raises(UsageError) as caught:
            find_model(LaunchConfig(model_path=str(models), model_name="tiny"), ["cpu"], lambda _: False)
        assert str(caught.value).endswith(f": make tiny again from what it was made of: {both}{rest}")


def test_a_name_that_nothing_has_is_not_advised(models: Path) -> None:
    with pytest.raises(UsageError, match=r"digits/card\.json does not exist: .* get_model --list prints, .*none is called so"):
        find_model(LaunchConfig(model_path=str(models), model_name="digits"), ["cpu"], lambda _: False)


def test_c47_the_hint_repeats_the_test_size(models: Path) -> None:
    card = models / "tiny" / "card.json"
    write_card(card, replace(read_card(card), test_size=True))
    with pytest.raises(UsageError, match=r": run get_model --model_name tiny --batch_size 8 --use_test_size --model_path "):
        found(models, batch_size=8)


@pytest.mark.parametrize("name", ["", "/", ".", "..", "a/.."])
def test_what_is_no_name_is_told_so(models: Path, name: str) -> None:
    assert refusal(models, name) == f"--model_name {name!r} is no name of a network: give one, such as resnet18"
