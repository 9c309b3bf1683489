"""card.py: the card and the sidecar as files, the legal values in them, and graphs that are not those recorded."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import DamagedError, UsageError
from bulkinfer.model.card import (
    Calibration,
    GraphSidecar,
    ModelCard,
    Weights,
    check_graph_files,
    graph_path,
    is_made_of,
    read_card,
    read_sidecar,
    write_card,
    write_sidecar,
)
from bulkinfer.model.recipe import Recipe

from tests.models import write_tiny_model
from tests.sealed import write_sealed

RECIPE = Recipe(
    height=224, width=192, resize="short_side", resize_size=256, crop_fraction=0.875, interpolation="bicubic",
    mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), long_side_rounding="round", crop_offset="floor",
    fill=(1, 2, 3), channels="BGR", value_range=(-1.0, 255.0), orientation="stored",
)  # fmt: skip
CARD = ModelCard(
    name="net", recipe=RECIPE, weights=Weights("https://example.org/net.pth", "ab" * 32, "its paper"), licence="MIT",
    origin="a zoo", input="float32", outputs={"logits": "logits", "embedding": "embedding"}, labels=("tench", "café"),
    num_parameters=44_177_704, versions={"onnx": "1.23.2"}, external_data="weights.bin", external_data_sha256="cd" * 32,
)  # fmt: skip


def damaged(tmp_path: Path, **changes: Any) -> Path:
    """card.json with fields changed; None removes one, recipe__x is a field of the recipe."""
    value = json.loads(json.dumps({"format": 1, **asdict(CARD)}))
    for name, change in changes.items():
        *outer, inner = name.split("__")
        target = value[outer[0]] if outer else value
        target[inner] = change
        if change is None:
            del target[inner]
    (tmp_path / "card.json").write_text(json.dumps(value))
    return tmp_path / "card.json"


def test_card_round_trip(tmp_path: Path) -> None:
    write_card(tmp_path / "card.json", CARD)
    assert read_card(tmp_path / "card.json") == CARD
    assert json.loads((tmp_path / "card.json").read_text())["format"] == 2


def test_the_size_of_the_weights_is_that_of_the_card(tmp_path: Path) -> None:
    """Whole numbers and buffers are weights as well, but no parameters. An earlier version did not record the size."""
    card = replace(CARD, num_parameters=1, external_data_bytes=3 << 30)
    write_card(tmp_path / "card.json", card)
    assert read_card(tmp_path / "card.json").most_weights_bytes == 3 << 30
    assert replace(CARD, external_data_bytes=7).most_weights_bytes == 7
    assert read_card(damaged(tmp_path, external_data_bytes=None)).most_weights_bytes == 64 * 44_177_704
    assert read_card(damaged(tmp_path, external_data_bytes=None, num_parameters=1)).most_weights_bytes == 1 << 30


def test_sidecar_round_trip(tmp_path: Path) -> None:
    sidecar = GraphSidecar("ef" * 32, 6, {"images": [6, 224, 224, 3]}, {"logits": [6, 1000]}, {"logits": {"max_abs": 1e-6}})
    graph = graph_path(tmp_path, 6)
    write_sidecar(graph, sidecar)
    assert read_sidecar(graph) == sidecar
    assert (tmp_path / "model_6.json").exists()


def test_names() -> None:
    assert graph_path(Path("m"), 0) == Path("m/model.onnx")
    assert graph_path(Path("m"), 16) == Path("m/model_16.onnx")


def test_unknown_fields_are_those_of_a_later_release_of_the_same_format(tmp_path: Path) -> None:
    assert read_card(damaged(tmp_path, added_later=1, recipe__added_later=2, weights__added_later=3)) == CARD


def test_random_weights_say_so() -> None:
    assert Weights("random", "").is_random
    assert not CARD.weights.is_random


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": None}, "(name is missing)"),
        ({"recipe": None}, "(recipe is missing)"),
        ({"weights": None}, "(weights is missing)"),
        ({"recipe": "bilinear"}, "its recipe is no object"),
        ({"weights": [1]}, "its weights is no object"),
        ({"weights__sha256": None}, "(weights.sha256 is missing)"),
        ({"weights__sha256": 7}, "sha256 is 7, not str"),
        ({"recipe__mean": None}, "(recipe.mean is missing)"),
        ({"recipe__mean": 0.5}, "mean is 0.5, not tuple"),
        ({"recipe__std": [1, "2", 3]}, "std.1 is '2', not float"),
        ({"recipe__height": "224"}, "height is '224', not int"),
        ({"recipe__crop_fraction": 10**400}, f"crop_fraction is 1{'0' * 39}…, not float"),
        ({"recipe__height": True}, "height is True, not int"),
        ({"recipe__interpolation": 3}, "interpolation is 3, not str"),
        ({"labels": 1000}, "labels is 1000, not tuple"),
        ({"labels": ["a", None]}, "labels.1 is None, not str"),
        ({"outputs": ["logits"]}, "outputs is ['logits'], not dict"),
        ({"versions": {"onnx": 1}}, "versions.onnx is 1, not str"),
        ({"external_data_sha256": None}, "(external_data_sha256 is missing)"),
    ],
)
def test_damaged_cards(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(DamagedError, match=r"card\.json is damaged \(.*\)$") as caught:
        read_card(damaged(tmp_path, **changes))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"recipe__resize": "long_side"}, "recipe: resize is 'long_side'; known are short_side, exact, none"),
        ({"recipe__interpolation": "cubic"}, "recipe: interpolation is 'cubic'; known are nearest, bilinear, "),
        ({"recipe__channels": "RGBA"}, "recipe: channels is 'RGBA'; known are RGB, BGR"),
        ({"recipe__orientation": "up"}, "recipe: orientation is 'up'; known are exif, stored"),
        ({"recipe__long_side_rounding": "ceil"}, "recipe: long_side_rounding is 'ceil'; known are floor, round"),
        ({"recipe__crop_offset": "ceil"}, "recipe: crop_offset is 'ceil'; known are floor, round"),
        ({"recipe__antialias": False}, "recipe: antialias false is not supported"),
        ({"recipe__height": 0}, "recipe: height, width and resize_size must be 1 to 65535 pixels"),
        ({"recipe__resize_size": -1}, "recipe: height, width and resize_size must be 1 to 65535 pixels"),
        ({"recipe__std": [1, 0, 1]}, "no std may be 0"),
        ({"recipe__mean": [1, 2]}, "recipe: mean, std and fill need three values each"),
        ({"recipe__fill": [0]}, "recipe: mean, std and fill need three values each"),
        ({"recipe__value_range": [0, 1, 2]}, "recipe: value_range needs two values"),
        ({"input": "float16"}, "card: input is 'float16'; known are uint8, float32"),
    ],
)
def test_values_that_are_none_of_the_legal_ones_are_named_with_their_file(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_card(damaged(tmp_path, **changes))
    assert str(caught.value).startswith(f"{tmp_path / 'card.json'}: ")
    assert told in str(caught.value)


def test_graph_files(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path, batch_sizes=(4, 6))
    card, sidecar, graph = check_graph_files(folder, 4)
    assert (card.name, sidecar.batch_size, graph) == ("tiny", 4, (folder / "model_4.onnx").resolve())
    assert sidecar.outputs == {"logits": [4, 8], "embedding": [4, 3]}


def test_the_graph_of_a_link_is_its_target(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "real")
    (tmp_path / "models").symlink_to(folder.parent)
    assert check_graph_files(tmp_path / "models" / "tiny", 6)[2] == (folder / "model_6.onnx").resolve()


def test_a_graph_that_is_not_the_one_recorded(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path)
    with (folder / "model_6.onnx").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(DamagedError, match=r"model_6\.onnx is not the graph of model_6\.json \(sha256 .*\)$"):
        check_graph_files(folder, 6)
    (folder / "model_6.json").unlink()
    with pytest.raises(UsageError, match=r"model_6\.json does not exist"):
        check_graph_files(folder, 6)


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        ({"logits": [6, 8]}, "no shape of embedding"),
        ({"logits": [6], "embedding": [6, 3]}, "no shape of logits"),
        ({"logits": [], "embedding": [6, 3]}, "no shape of logits"),
        ({"logits": [6, "classes"], "embedding": [6, 3]}, "no shape of logits"),
        ({"logits": 8, "embedding": [6, 3]}, "outputs.logits is 8, not list"),
        ({"logits": [6, None], "embedding": [6, 3]}, "outputs.logits.1 is None, not int | str"),
        ([], "outputs is [], not dict"),
    ],
)
def test_a_sidecar_that_does_not_describe_the_outputs(tmp_path: Path, outputs: Any, told: str) -> None:
    folder = write_tiny_model(tmp_path)
    value = json.loads((folder / "model_6.json").read_text())
    write_sealed(folder / "model_6.json", {**value, "outputs": outputs})
    with pytest.raises(DamagedError, match=r"model_6\.json is damaged \(.*\)$") as caught:
        check_graph_files(folder, 6)
    assert told in str(caught.value)


def test_a_card_without_logits(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path)
    write_card(folder / "card.json", replace(read_card(folder / "card.json"), outputs={"embedding": "embedding"}))
    with pytest.raises(DamagedError, match=r"card\.json is damaged \(its outputs lack logits\)$"):
        check_graph_files(folder, 6)


def test_how_a_variant_came_about_is_kept_and_checked(tmp_path: Path) -> None:
    facts = Calibration(pictures_sha256="ab", calibrated=20, held_out=10, chosen="minmax", candidates={}, judged={})
    write_card(tmp_path / "card.json", replace(CARD, precision="int8", calibration=facts))
    assert read_card(tmp_path / "card.json").calibration == facts
    with pytest.raises(DamagedError, match=r"is damaged \(calibration is .*\)$"):
        read_card(damaged(tmp_path, calibration={"chosen": "minmax"}))


def test_a_variant_belongs_to_one_export() -> None:
    assert is_made_of(replace(CARD, precision="int8", external_data="other.bin"), CARD)
    for change in ({"weights": Weights("net.pth", "00" * 32)}, {"input": "uint8"}, {"labels": ("a", "b")}):
        assert not is_made_of(CARD, replace(CARD, **change))
