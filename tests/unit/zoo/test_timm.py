"""timm:NAME: names, recipes against timm's own transform, labels, weights in timm's formats, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from bulkinfer import zoo
from bulkinfer.errors import RunError, UsageError
from bulkinfer.images.preprocess import normalise, prepare
from bulkinfer.zoo import state_dict
from bulkinfer.zoo.timm import is_embedding, recipe
from timm.data import create_transform, resolve_data_config

from tests.pictures import photo

SMALL = "mobilenetv3_small_050.lamb_in1k"


@pytest.mark.parametrize("written", ["timm:mobilenetv3_small_050", "TIMM:MobileNetV3_small_050", "timm_mobilenetv3_small_050"])
def test_a_name_without_tag_is_timms_default(written: str) -> None:
    name, spec = zoo.find(written)
    assert name == "timm_mobilenetv3_small_050"
    assert spec.architecture == SMALL
    assert (spec.hub, spec.licence, spec.urls) == (f"timm/{SMALL}", "apache-2.0", ())
    assert spec.weights_file == f"timm_{SMALL}.safetensors"
    assert SMALL in spec.origin


def test_a_name_with_tag_keeps_it() -> None:
    name, spec = zoo.find("timm:resnet50.a1_in1k")
    assert (name, spec.architecture) == ("timm_resnet50.a1_in1k", "resnet50.a1_in1k")
    assert zoo.plain("timm:resnet50.a1_in1k") == zoo.plain(name)
    assert len(zoo.labels(name)) == 1000


def test_other_classes_have_no_labels() -> None:
    assert zoo.labels("timm:vit_tiny_patch16_224.augreg_in21k") == ()


def test_weights_that_only_a_url_has() -> None:
    spec = zoo.find("timm:gcvit_xxtiny.in1k")[1]
    assert spec.hub == ""
    assert spec.urls[0].endswith("/" + spec.weights_file)


@pytest.mark.parametrize("name", ["resnet5", "resnet50.nonsense", "", "日本"])
def test_an_unknown_name_gets_the_nearest(name: str) -> None:
    with pytest.raises(UsageError, match="has no network") as error:
        zoo.find(f"timm:{name}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["vit_base_patch16_sapiens2", "vit_base_patch14_nothing"])
def test_what_timm_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"has no network|cannot be used"):
        zoo.find(f"timm:{name}")


def test_c47_what_has_no_classifier_and_heads_of_clip_are_embeddings() -> None:
    """Of all weights that timm publishes: 269 without a classifier, and heads whose width is no number of classes."""
    widths = {384, 512, 640, 768, 1024, 1152, 1280}
    facts = {name: timm.get_pretrained_cfg(name) for name in timm.list_pretrained()}
    without = {name for name, found in facts.items() if not found.num_classes}
    heads = {name for name, found in facts.items() if found.num_classes in widths}
    assert len(without) > 200
    assert len(heads) > 100
    assert {name for name, found in facts.items() if is_embedding(name, found)} == without | heads


@pytest.mark.parametrize("name", ["vit_small_patch14_dinov2.lvd142m", "vit_base_patch16_clip_224.openai"])
def test_c47_an_embedding_has_no_labels(name: str) -> None:
    spec = zoo.find(f"timm:{name}")[1]
    assert (spec.has_classes, spec.labels) == (False, "")
    assert zoo.find("timm:vit_base_patch16_clip_224.openai_ft_in1k")[1].has_classes


def test_c47_the_test_size_is_timms_own() -> None:
    spec = zoo.find("timm:resnet50.a1_in1k")[1]
    assert (spec.recipe.height, spec.recipe.resize_size) == (224, 235)
    assert spec.test_recipe is not None
    assert (spec.test_recipe.height, spec.test_recipe.resize_size) == (288, 288)
    assert zoo.find("timm:vit_tiny_patch16_224.augreg_in21k")[1].test_recipe is None
    facts = timm.get_pretrained_cfg("resnet50.a1_in1k")
    config = resolve_data_config(pretrained_cfg=facts.to_dict(), use_test_size=True)
    assert (config["input_size"], config["crop_pct"]) == ((3, 288, 288), 1.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"crop_mode": "border"}, "crop mode border, which no recipe expresses"),
        ({"input_size": (1, 224, 224)}, "takes 1 channels"),
        ({"input_size": (3, 224, 192)}, "takes 192 x 224 pixels, which are not square"),
    ],
)
def test_rules_that_no_recipe_has_are_refused_in_one_sentence(changes: dict[str, object], words: str) -> None:
    facts = replace(timm.get_pretrained_cfg("resnet50"), **changes)
    with pytest.raises(UsageError, match=words) as error:
        recipe("resnet50", facts)
    assert str(error.value).startswith("--model_name timm:resnet50 ")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"crop_mode": "squash", "crop_pct": 1.0},
        {"crop_mode": "squash", "crop_pct": 0.9},
        {"interpolation": "bilinear", "crop_pct": 0.875, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)},
        {"crop_pct": 1.15, "input_size": (3, 160, 160)},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [(500, 375), (333, 500), (224, 224)], ids=str)
def test_the_prepared_tensor_equals_timms_own(changes: dict[str, object], size: tuple[int, int]) -> None:
    facts = replace(timm.get_pretrained_cfg("resnet50.a1_in1k"), **changes)
    rules = recipe("resnet50", facts)
    image = photo(*size).convert("RGB")
    image_HWC = np.zeros((rules.height, rules.width, 3), np.uint8)
    prepare(image, rules, image_HWC)
    transform = create_transform(**resolve_data_config(pretrained_cfg=facts.to_dict()))
    expected_CHW = transform(image).numpy()
    one_level = 1.01 / 255 / min(rules.std)
    assert np.abs(normalise(image_HWC[None], rules)[0] - expected_CHW).max() <= one_level


@pytest.fixture(scope="module")
def trained() -> torch.nn.Module:
    """A network as timm makes it, with numbers of its own."""
    torch.manual_seed(5)
    return timm.create_model(SMALL, pretrained=False).eval()


@pytest.mark.parametrize("kind", ["safetensors", "pth"])
def test_local_files_load(kind: str, trained: torch.nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "weights.any"  # the content tells, not the name
    if kind == "safetensors":
        safetensors.torch.save_file(trained.state_dict(), path)
    else:
        torch.save(trained.state_dict(), path)
    network = zoo.build("timm:" + SMALL)
    state_dict.load(network, path, zoo.adapter("timm:" + SMALL))
    assert state_dict.state_sha256(network) == state_dict.state_sha256(trained)


def test_weights_of_another_network_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file({"conv_stem.weight": torch.zeros(1)}, path)
    with pytest.raises(RunError, match="the weights do not fit timm's mobilenetv3_small_050") as error:
        state_dict.load(zoo.build("timm:" + SMALL), path, zoo.adapter("timm:" + SMALL))
    assert "\n" not in str(error.value)


def test_damaged_safetensors_are_one_sentence(trained: torch.nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(trained.state_dict(), path)
    path.write_bytes(path.read_bytes()[:100_000])
    with pytest.raises(RunError, match="nor a safetensors file"):
        state_dict.read(path)


def test_without_timm_the_install_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(RunError, match=r"timm.*pip install '\.\[zoo\]'"):
        zoo.find("timm:resnet50")
