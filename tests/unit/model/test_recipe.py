"""recipe.py: recipes as values, and the size that a reduced picture must keep; illegal values are in test_card.py."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from bulkinfer.errors import UsageError
from bulkinfer.model.recipe import Recipe
from bulkinfer.results.job_file import json_sha256

from tests.models import RECIPE as TINY

RECIPE = Recipe(
    height=224, width=192, resize="short_side", resize_size=256, crop_fraction=0.875, interpolation="bicubic",
    mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), long_side_rounding="round", crop_offset="floor",
    fill=(1, 2, 3), channels="BGR", value_range=(-1.0, 255.0), orientation="stored",
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, 282),
        ({"resize": "exact", "resize_size": 224}, 247),
        ({"resize": "none"}, 0),
        ({"interpolation": "bilinear"}, 282),
        ({"interpolation": "nearest"}, 0),
        ({"interpolation": "box"}, 0),
        ({"interpolation": "hamming"}, 0),
    ],
)
def test_b64_what_a_reduced_picture_must_keep(changes: dict[str, Any], needed: int) -> None:
    assert replace(RECIPE, **changes).short_side_needed == needed


def test_no_size_is_needed_where_nothing_is_resized() -> None:
    assert replace(RECIPE, resize="none", resize_size=0).resize_size == 0


def test_a_recipe_is_hashable_however_it_was_written() -> None:
    assert hash(replace(RECIPE, mean=list(RECIPE.mean), fill=[1, 2, 3])) == hash(RECIPE)  # type: ignore[arg-type]


def test_c59_what_came_later_is_no_fact_of_a_recipe_without_it() -> None:
    """Cards and jobs from before it keep their fingerprint: this is the hash that they had then."""
    facts = TINY.facts()
    assert json_sha256(facts) == "aee37ad7514a5fff5052c6ce4ff2b44bca1037fab175a87f9e582967c4626a1a"
    assert {"colour", "alpha_over"}.isdisjoint(facts)
    assert Recipe(**facts) == TINY
    changed = replace(TINY, colour="srgb", alpha_over=(255, 255, 255))
    assert changed.facts() == facts | {"colour": "srgb", "alpha_over": (255, 255, 255)}
    assert Recipe(**json.loads(json.dumps(changed.facts()))) == changed


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"colour": "adobe"}, "colour is 'adobe'; known are stored, srgb"),
        ({"alpha_over": (1, 2)}, "alpha_over needs three grey levels"),
        ({"alpha_over": (0, 0, 256)}, "alpha_over needs three grey levels"),
        ({"crop_fraction": -3}, "crop_fraction must be above 0"),
        ({"crop_fraction": 0}, "crop_fraction must be above 0"),
        ({"crop_fraction": math.nan}, "must be finite numbers"),
        ({"crop_fraction": 10**400}, "must be finite numbers"),
        ({"fill": (0, 0, -(10**400))}, "must be finite numbers"),
        ({"height": 10**400}, "height, width and resize_size must be 1 to 65535 pixels"),
        ({"width": 0}, "height, width and resize_size must be 1 to 65535 pixels"),
        ({"resize": "exact", "resize_size": 65_536}, "height, width and resize_size must be 1 to 65535 pixels"),
        ({"mean": (0.5, math.inf, 0.5)}, "finite numbers"),
        ({"value_range": (0.0, math.nan)}, "finite numbers"),
    ],
)
def test_c59_values_that_a_recipe_cannot_have(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        replace(TINY, **changes)
