"""The networks of pretrainedmodels: recipes as its settings say, and published files that fit after renaming."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from bulkinfer import zoo
from bulkinfer.export.torch_export import outputs_of
from bulkinfer.images.preprocess import normalise, prepare
from bulkinfer.model.recipe import Recipe
from bulkinfer.zoo import cadene, state_dict
from PIL import Image

from tests.forms import only_first
from tests.networks import Mean, published, run

# The picture (200, 100, 50) in the order and range of each recipe, worked out by hand.
FIRST_PIXELS = {
    "bninception": (50 - 104, 100 - 117, 200 - 128),  # B, G, R
    "cafferesnet101": (50 - 102.9801, 100 - 115.9465, 200 - 122.7717),
    "inceptionv3": (200 / 127.5 - 1, 100 / 127.5 - 1, 50 / 127.5 - 1),
    "pnasnet5large": (145 / 255, -55 / 255, -155 / 255),
    "dpn92": ((200 - 124) * 0.0167, (100 - 117) * 0.0167, (50 - 104) * 0.0167),
    "resnet18": ((200 / 255 - 0.485) / 0.229, (100 / 255 - 0.456) / 0.224, (50 / 255 - 0.406) / 0.225),
    "efficientnet_lite0": (73 / 128, -27 / 128, -77 / 128),
}


@pytest.mark.parametrize("name", FIRST_PIXELS)
def test_b62_first_pixels_equal_hand_computed_values_outside_the_graph(name: str) -> None:
    recipe = zoo.NETWORKS[name].recipe
    image_HWC = np.zeros((recipe.height, recipe.width, 3), np.uint8)
    prepare(Image.new("RGB", (500, 400), (200, 100, 50)), recipe, image_HWC)
    inputs_NCHW = normalise(image_HWC[None], recipe)
    assert inputs_NCHW.shape == (1, 3, recipe.height, recipe.width)
    assert inputs_NCHW[0, :, 0, 0] == pytest.approx(FIRST_PIXELS[name], abs=1e-5)
    assert (inputs_NCHW == inputs_NCHW[:, :, :1, :1]).all()


@pytest.mark.parametrize("name", only_first(FIRST_PIXELS, 2))
def test_b62_first_pixels_equal_hand_computed_values_inside_the_graph(name: str, tmp_path: Path) -> None:
    recipe = zoo.NETWORKS[name].recipe
    folder = published(Mean(), tmp_path / "net", recipe, batch_size=1)
    solid = np.broadcast_to(np.array([200, 100, 50], np.uint8), (1, recipe.height, recipe.width, 3)).copy()
    assert run(folder / "model_1.onnx", solid)["embedding"][0] == pytest.approx(FIRST_PIXELS[name], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", sorted(cadene.NETWORKS))
def test_b62_recipes_and_files_are_those_of_the_package_settings(name: str) -> None:
    with zoo.quiet():
        from pretrainedmodels import pretrained_settings

    settings = pretrained_settings[name]
    (wanted,) = [settings[key] for key in settings if "background" not in key]
    spec = zoo.NETWORKS[name]
    recipe: Recipe = spec.recipe
    assert wanted["input_size"] == [3, recipe.height, recipe.width]
    assert (wanted["input_space"], wanted["input_range"]) == (recipe.channels, list(recipe.value_range))
    assert (list(recipe.mean), list(recipe.std)) == (pytest.approx(wanted["mean"]), pytest.approx(wanted["std"]))
    assert recipe.resize_size == int(recipe.height / wanted.get("scale", 0.875))
    assert (recipe.resize, recipe.interpolation) == ("short_side", "bilinear")
    assert spec.urls == (wanted["url"],)
    assert wanted["num_classes"] == 1000


def test_all_names_of_the_package_are_there() -> None:
    with zoo.quiet():
        import pretrainedmodels
        from pretrainedmodels import pretrained_settings

    assert set(cadene.NETWORKS) == {name for name in pretrained_settings if hasattr(pretrainedmodels, name)}
    assert len(cadene.NETWORKS) == 45


@pytest.mark.parametrize(
    "name", only_first(["resnet18", "squeezenet1_1", "alexnet", "vgg11_bn", "densenet121", "inceptionv3"], 2)
)
def test_files_of_torchvision_load_and_give_what_torchvision_gives(name: str, tmp_path: Path) -> None:
    import torchvision

    with zoo.quiet():
        torchvision_name = {"inceptionv3": "inception_v3"}.get(name, name)
        source = getattr(torchvision.models, torchvision_name)(weights=None).eval()
    path = tmp_path / "weights.pth"
    torch.save(old_names(source.state_dict()), path)
    network = zoo.build(name)
    state_dict.load(network, path, zoo.adapter(name))
    side = zoo.NETWORKS[name].recipe.width
    images = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected, (found, embedding) = source(images), outputs_of(network, images)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    assert embedding.dim() == 2
    path.unlink()


def old_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """With dots in the names of DenseNet's layers, as files of old torch versions have them."""
    dotted = {"norm1": "norm.1", "norm2": "norm.2", "conv1": "conv.1", "conv2": "conv.2"}
    renamed = {}
    for name, tensor in state.items():
        for new, old in dotted.items():
            if "denselayer" in name:
                name = name.replace(f".{new}.", f".{old}.")
        renamed[name] = tensor
    return renamed


@pytest.mark.parametrize("name", ["inceptionv4", "inceptionresnetv2", "nasnetalarge", "pnasnet5large"])
def test_a_background_class_is_dropped(name: str) -> None:
    state = {"last_linear.weight": torch.arange(2002.0).reshape(1001, 2), "last_linear.bias": torch.arange(1001.0)}
    adapted = cadene.adapt(name, state | {"x.weight": torch.zeros(1001)})
    assert torch.equal(adapted["last_linear.bias"], torch.arange(1.0, 1001.0))
    assert adapted["last_linear.weight"].shape == (1000, 2)
    assert len(adapted["x.weight"]) == 1001
    again = cadene.adapt(name, adapted)
    assert torch.equal(again["last_linear.bias"], adapted["last_linear.bias"])


def test_xception_has_another_name_for_its_last_layer_in_the_file() -> None:
    assert set(cadene.adapt("xception", {"fc.weight": torch.zeros(1), "conv1.weight": torch.zeros(1)})) == {
        "last_linear.weight",
        "conv1.weight",
    }


def test_without_a_linear_layer_the_embedding_is_the_mean_of_what_the_last_convolution_sees() -> None:
    network = zoo.build("squeezenet1_1")
    images = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        logits, embedding = outputs_of(network, images)
        features = network.features(images)  # type: ignore[operator]
    assert logits.shape == (2, 1000)
    assert torch.allclose(embedding, features.mean((2, 3)))
    assert embedding.shape == (2, 512)
