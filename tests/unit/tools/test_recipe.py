"""tools/bench/peer_scripts/recipe.py: what peers are fed is what our own preparation gives."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from bulkinfer.images.preprocess import normalise, prepare
from bulkinfer.model.recipe import Recipe
from PIL import Image

from tools.bench.peer_scripts.recipe import Preparation

RECIPE = Recipe(
    height=32, width=32, resize="short_side", resize_size=36, crop_fraction=32 / 36, interpolation="bilinear",
    mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
)  # fmt: skip
RECIPES = {
    "short_side": RECIPE,
    "exact": replace(RECIPE, resize="exact"),
    "bicubic": replace(RECIPE, interpolation="bicubic"),
    "0..255": replace(RECIPE, value_range=(0.0, 255.0), mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0)),
    "-1..1": replace(RECIPE, value_range=(-1.0, 1.0), mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7)),
    "BGR": replace(RECIPE, channels="BGR"),
}


@pytest.mark.parametrize("name", RECIPES)
def test_peers_are_fed_what_ours_are(name: str) -> None:
    recipe = RECIPES[name]
    coarse = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
    image = Image.fromarray(coarse).resize((90, 60), Image.Resampling.BICUBIC)
    expected = np.zeros((1, 32, 32, 3), np.uint8)
    prepare(image, recipe, expected[0])
    found = Preparation({"recipe": asdict(recipe), "input": "uint8"})(image)
    assert np.abs(found.astype(int) - expected[0]).max() <= 2  # two grey levels is what prepare() itself may differ by
    found = Preparation({"recipe": asdict(recipe), "input": "float32"})(image)
    tolerance = 2.1 * max(recipe.scale)
    assert np.abs(found - normalise(expected, recipe)[0]).max() <= tolerance
