"""input_range.py: what black and white become is printed, and warned of where no network can be made for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bulkinfer import zoo
from bulkinfer.config import GetModelConfig
from bulkinfer.export.get_model import make_network
from bulkinfer.export.input_range import log_input_range
from bulkinfer.zoo.efficientnet_lite import NETWORKS

from tests.adoption import Home
from tests.foreign_graphs import PLAIN, SCALED, foreign_graph, recipe_file, recipe_of
from tests.forms import long
from tests.logged import logged

LITE = {"mean": [127, 127, 127], "std": [128, 128, 128]}  # the recipe of its authors: for pixels of 0 to 255
WARNING = "warning: after normalisation white minus black is 0.00781, where networks take 1 to 10, or 255 for plain pixels: "


def lines_of(**changes: Any) -> list[str]:
    lines: list[str] = []
    logged(lines, log_input_range, replace(recipe_of(SCALED), **changes))
    return lines


@pytest.mark.parametrize("changes", [
    {}, {"value_range": (0, 255), "mean": (0, 0, 0), "std": (1, 1, 1)}, {"value_range": (-1, 1), "std": (-1, -1, -1)},
    {"value_range": (0, 255), **LITE}, {"std": (5, 5, 5)},
])  # fmt: skip
def test_c03_what_networks_take_is_printed_without_a_warning(changes: dict[str, Any]) -> None:
    assert len(lines_of(**changes)) == 1


def test_c03_black_and_white_by_channel() -> None:
    assert lines_of() == ["after normalisation black is -2, -0.8, -1.5 and white 2, 1.2, 3.5 (R, G, B)"]
    assert lines_of(channels="BGR")[0].endswith("(B, G, R)")


@pytest.mark.parametrize(("changes", "odd"), [
    (LITE, "0.00781"), ({"std": (1, 1, 10)}, "0.1"), ({"value_range": (0, 255)}, "1.28e+03"),
    ({"value_range": (0, 65535), "std": (1, 1, 1)}, "6.55e+04"),
])  # fmt: skip
def test_c03_what_no_network_takes_is_warned_of(changes: dict[str, Any], odd: str) -> None:
    _, warned = lines_of(**changes)
    assert warned.startswith(f"warning: after normalisation white minus black is {odd}, where networks take ")
    assert "value_range" in warned


def test_c03_a_recipe_of_its_authors_without_value_range_warns_at_every_adoption(home: Home) -> None:
    recipe = recipe_file(home.folder, {name: value for name, value in {**PLAIN, **LITE}.items() if name != "value_range"})
    for model, done in ((foreign_graph(), "exported"), (None, "verified")):
        assert home.adopt(model, recipe=str(recipe), scores="logits").done == done
        assert "after normalisation black is -0.992, -0.992, -0.992 and white -0.984, -0.984, -0.984 (R, G, B)" in home.said
        assert any(line.startswith(WARNING) for line in home.said)


@long
def test_c03_the_graph_of_efficientnet_lite0_with_half_of_its_recipe_warns(home: Home) -> None:
    spec = NETWORKS["efficientnet_lite0"]
    with zoo.quiet():
        torch.onnx.export(
            zoo.build("efficientnet_lite0"), (torch.zeros(1, 3, spec.recipe.height, spec.recipe.width),),
            str(home.folder / "lite.onnx"), dynamo=False,
        )  # fmt: skip
    sizes = {"height": spec.recipe.height, "width": spec.recipe.width, "resize_size": spec.recipe.height}
    recipe = recipe_file(home.folder, {**{k: v for k, v in PLAIN.items() if k != "value_range"}, **sizes, **LITE})
    home.adopt(None, onnx=str(home.folder / "lite.onnx"), recipe=str(recipe), scores="none", batch_size=1)
    assert any(line.startswith(WARNING) for line in home.said)


@long
def test_c03_networks_of_the_zoo_are_exported_without_a_warning(tmp_path: Path) -> None:
    said: list[str] = []
    config = GetModelConfig(model_path=str(tmp_path), model_name="efficientnet_lite0", weights="random", batch_size=1)
    logged(said, make_network, config)
    assert any(line.startswith("after normalisation black is ") for line in said)
    assert not any(line.startswith("warning: after") for line in said)
