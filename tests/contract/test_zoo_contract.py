"""Every network of the zoo: its facts hold together, it builds, exports with random weights and agrees with torch."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnxruntime
import pytest
import torch

from inference import provision, state_dict, zoo
from inference.card import Recipe, read_card, read_sidecar
from inference.config import GetModelConfig
from inference.weights import RANDOM_ORIGIN


@dataclass(frozen=True)
class Case:
    """A network as exported, and the torch network it was exported from."""

    provided: provision.Provided
    network: torch.nn.Module


@pytest.fixture(scope="module", params=sorted(zoo.NETWORKS))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """The network exported with random weights, uint8 input, batch 2."""
    models = tmp_path_factory.mktemp("models")
    config = GetModelConfig(batch_size=2, model_name=request.param, model_path=str(models), weights="random")
    network = zoo.build(request.param)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(zoo, "build", lambda _: network)
        provided = provision.provide(config, lambda _: None)
    yield Case(provided, network)
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


def test_the_card_says_what_the_network_is(case: Case) -> None:
    provided = case.provided
    card = read_card(provided.folder / "card.json")
    spec = zoo.NETWORKS[card.name]
    assert card == provided.card
    assert (card.recipe, card.num_parameters) == (spec.recipe, spec.num_parameters)
    assert (card.weights.source, card.weights.origin) == ("random", RANDOM_ORIGIN)
    assert len(set(card.labels)) > 990
    assert set(card.outputs) == {"logits", "embedding"}
    assert card.weights.sha256 == state_dict.state_sha256(case.network)
    sidecar = read_sidecar(provided.folder / "model_2.onnx")
    assert sidecar.inputs == {"images": [2, card.recipe.height, card.recipe.width, 3]}
    assert sidecar.outputs["logits"] == [2, len(card.labels)]


def test_the_graph_agrees_with_torch_on_new_pictures_and_tells_them_apart(case: Case) -> None:
    card, folder, network = case.provided.card, case.provided.folder, case.network
    images = np.random.default_rng(11).integers(0, 256, (2, card.recipe.height, card.recipe.width, 3), np.uint8)
    images[1] //= 3
    session = onnxruntime.InferenceSession(str(folder / "model_2.onnx"), providers=["CPUExecutionProvider"])
    logits, embedding = session.run(["logits", "embedding"], {"images": images})

    with torch.inference_mode():
        expected = network(torch.from_numpy(normalised(images, card.recipe))).numpy()
        last = [module for module in network.modules() if isinstance(module, torch.nn.Linear)][-1]
        from_embedding = last(torch.from_numpy(embedding)).numpy()
    assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()
    assert np.abs(from_embedding - logits).max() <= 1e-4 * np.abs(logits).max()
    assert np.abs(logits[0] - logits[1]).max() > 1e-2 * np.abs(logits).max()


def normalised(images_NHWC: np.ndarray, recipe: Recipe) -> np.ndarray:
    """The recipe's arithmetic, spelled out once more."""
    scaled = images_NHWC.astype(np.float64) / 255 * recipe.value_range[1]
    return np.ascontiguousarray(((scaled - recipe.mean) / recipe.std).transpose(0, 3, 1, 2).astype(np.float32))
