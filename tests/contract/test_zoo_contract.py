"""Every network of the zoo has facts that hold together; one of every family exports with random weights and agrees with torch.

The exported ones are thinned: of layers that follow each other and are alike, the first stays. tools/check_zoo takes all whole.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from bulkinfer import zoo
from bulkinfer.config import GetModelConfig
from bulkinfer.export.get_model import make_network
from bulkinfer.export.model_folder import ModelFolder
from bulkinfer.export.torch_export import outputs_of
from bulkinfer.model.card import read_card, read_sidecar
from bulkinfer.model.recipe import Recipe
from bulkinfer.zoo import state_dict
from bulkinfer.zoo.weights import RANDOM_ORIGIN

from tests.forms import only_first

# VGG, FBResNet, PNASNet, PolyNet and the large NASNet cost too much here: tools/check_zoo has them.
FAMILIES = (
    "squeezenet1_1", "timm:resnet10t",  # the first is quick: the short form takes it
    "alexnet", "bninception", "cafferesnet101", "densenet121", "dpn68", "efficientnet_lite0",
    "inceptionresnetv2", "inceptionv3", "inceptionv4", "nasnetamobile", "resnet18", "resnext101_32x4d", "se_resnet50",
    "xception", "timm:mobilenetv3_small_050", "timm:vit_tiny_patch16_224", "timm:convnext_atto",
    "timm:levit_128s",
)  # fmt: skip


class First(torch.nn.Module):
    """In the place of a layer that is like the one before it."""

    def forward(self, first: torch.Tensor, *_others: torch.Tensor) -> torch.Tensor:
        return first


def thinned(network: torch.nn.Module) -> torch.nn.Module:
    """The network without layers that repeat: in every sequence, and among NASNet's cells."""
    for module in network.modules():
        before = ""
        for name, child in list(module.named_children()):
            is_cell = name.startswith("cell_")
            if str(child) == before and any(True for _ in child.parameters()):
                if isinstance(module, torch.nn.Sequential):
                    del module._modules[name]
                elif is_cell:
                    setattr(module, name, First())
            before = str(child)
    return network


@dataclass(frozen=True)
class Case:
    """A thinned network as exported at batch 1 and 3, and the torch network it was exported from."""

    provided: tuple[ModelFolder, ModelFolder]
    network: torch.nn.Module
    spec: zoo.NetworkSpec

    @property
    def folder(self) -> Path:
        return self.provided[0].folder


@pytest.fixture(scope="module", params=only_first(FAMILIES))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """The network exported with random weights and uint8 input."""
    models = tmp_path_factory.mktemp("models")
    network = thinned(zoo.build(request.param))

    def provided(batch_size: int) -> ModelFolder:
        words = {"model_name": request.param, "model_path": str(models), "weights": "random"}
        return make_network(GetModelConfig(batch_size=batch_size, **words))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(zoo, "build", lambda _: network)
        both = provided(1), provided(3)
    assert [one.done for one in both] == ["exported", "added"]
    yield Case(both, network, zoo.find(request.param)[1])
    for path in sorted(models.rglob("weights-*")):
        path.unlink()  # hundreds of megabytes


@pytest.mark.parametrize("name", sorted(zoo.NETWORKS))
def test_facts_hold_together(name: str) -> None:
    spec = zoo.NETWORKS[name]
    assert zoo.find(name.upper().replace("_", "-")) == (name, spec)
    assert spec.licence
    assert spec.origin
    assert spec.urls or spec.package, "its weights come from somewhere"
    assert spec.recipe.resize_size * spec.recipe.crop_fraction <= spec.recipe.height < spec.recipe.resize_size
    if spec.package:
        assert importlib.metadata.version(spec.package.replace("_", "-"))
    for url in spec.urls:
        assert url.endswith("/" + spec.weights_file)


@pytest.mark.parametrize("name", only_first(sorted(zoo.NETWORKS), 4))
def test_the_network_has_as_many_parameters_as_its_facts_say(name: str) -> None:
    with zoo.quiet():
        import pretrainedmodels  # noqa: F401  its module-level layers are made when it is imported: not on meta

    with torch.device("meta"):
        network = zoo.build(name)
    assert sum(parameter.numel() for parameter in network.parameters()) == zoo.NETWORKS[name].num_parameters


def test_the_card_says_what_the_network_is(case: Case) -> None:
    card = read_card(case.folder / "card.json")
    assert card == case.provided[1].card
    assert card.recipe == case.spec.recipe
    assert (card.weights.source, card.weights.origin) == ("random", RANDOM_ORIGIN)
    assert len(set(card.labels)) > 990
    assert set(card.outputs) == {"logits", "embedding"}
    assert card.weights.sha256 == state_dict.state_sha256(case.network)
    for batch in (1, 3):
        sidecar = read_sidecar(case.folder / f"model_{batch}.onnx")
        assert sidecar.inputs == {"images": [batch, card.recipe.height, card.recipe.width, 3]}
        assert sidecar.outputs["logits"] == [batch, len(card.labels)]
        assert set(sidecar.parity) == {"logits", "embedding"}
    assert read_sidecar(case.folder / "model.onnx").outputs["logits"] == ["batch", len(card.labels)]


def test_the_graph_agrees_with_torch_on_new_pictures_and_tells_them_apart(case: Case) -> None:
    recipe = case.spec.recipe
    images = np.random.default_rng(11).integers(0, 256, (3, recipe.height, recipe.width, 3), np.uint8)
    images[1] //= 3
    found = run(case.folder / "model_3.onnx", images)
    with torch.inference_mode():
        expected = outputs_of(case.network, torch.from_numpy(normalised(images, recipe)))
    for name, values in zip(("logits", "embedding"), expected, strict=True):
        assert found[name].shape == tuple(values.shape)
        assert np.abs(found[name] - values.numpy()).max() <= 1e-4 * np.abs(values.numpy()).max()
    logits = found["logits"]
    assert np.abs(logits[0] - logits[1]).max() > 1e-2 * np.abs(logits).max()
    alone = [run(case.folder / "model_1.onnx", image[None])["logits"][0] for image in images]
    assert np.abs(np.stack(alone) - logits).max() <= 1e-5 * np.abs(logits).max()


def test_the_classes_follow_from_the_embedding(case: Case) -> None:
    """Where the last layer is linear, it makes the logits of the embedding alone."""
    linears = [module for module in case.network.modules() if isinstance(module, torch.nn.Linear)]
    recipe = case.spec.recipe
    images = np.random.default_rng(12).integers(0, 256, (1, recipe.height, recipe.width, 3), np.uint8)
    found = run(case.folder / "model_1.onnx", images)
    if linears and case.spec.architecture != "levit_128s.fb_dist_in1k":  # that one averages two classifiers
        with torch.inference_mode():
            again = linears[-1](torch.from_numpy(found["embedding"])).numpy()
        assert np.abs(again - found["logits"]).max() <= 1e-4 * np.abs(found["logits"]).max()


def run(graph: Path, images: np.ndarray) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"images": images}), strict=True))


def normalised(images_NHWC: np.ndarray, recipe: Recipe) -> np.ndarray:
    """The recipe's arithmetic, spelled out once more."""
    scaled = images_NHWC.astype(np.float64) / 255 * recipe.value_range[1]
    if recipe.channels == "BGR":
        scaled = scaled[..., ::-1]
    return np.ascontiguousarray(((scaled - recipe.mean) / recipe.std).transpose(0, 3, 1, 2).astype(np.float32))
