"""variant.py in this process: what makes a variant, what refuses one, and what is left in the folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from inference import int8_variant, variant
from inference.adopt import adopt
from inference.card import graph_path, read_card, read_sidecar
from inference.config import GetModelConfig, LaunchConfig
from inference.errors import RunError, UsageError
from inference.judge import Judge
from inference.model_lookup import find_model
from inference.provision import Provided
from inference.variant import check_request, provide_variant
from tests import pictures
from tests.foreign_graphs import SIDE, deep_graph, foreign_graph, recipe_file, save
from tests.networks import run


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    pictures.write_files(folder, {f"{n:03d}.png": pictures.encode(pictures.photo(24, 20, seed=n)) for n in range(150)})
    return folder


class Home:
    """models/net, adopted from a graph, and what was said."""

    def __init__(self, folder: Path, photos: Path) -> None:
        self.folder, self.photos, self.said = folder, photos, list[str]()
        self.network: Provided | None = None

    @property
    def int8(self) -> Path:
        return self.folder / "models" / "net" / "int8"

    def config(self, **flags: Any) -> GetModelConfig:
        given = {"model_path": str(self.folder / "models"), "model_name": "net", "precision": "int8"}
        return GetModelConfig(**{**given, "calibration_dir": str(self.photos), **flags})

    def adopt(self, model: onnx.ModelProto, **flags: Any) -> None:
        path, recipe = save(model, self.folder), recipe_file(self.folder)
        places = {"model_path": str(self.folder / "models"), "onnx": str(path), "name": "net", "recipe": str(recipe)}
        self.network = adopt(GetModelConfig(**{**places, "scores": "logits", **flags}), lambda _: None)

    def make(self, **flags: Any) -> Provided:
        assert self.network is not None
        self.said = []
        config = self.config(**flags)
        check_request(config)
        return provide_variant(config, self.network, self.said.append)


@pytest.fixture
def home(tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(int8_variant, "_JUDGES", ("cpu",))  # the other provider judges in the test through the commands
    return Home(tmp_path, photos)


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_the_variant_is_a_folder_like_any_other_and_close_to_fp32(home: Home) -> None:
    home.adopt(deep_graph())
    provided = home.make()
    card = read_card(home.int8 / "card.json")
    assert provided.done == "exported"
    assert set(listing(home.int8)) == {
        "card.json", "golden.npz", "model.onnx", "model.json", "model_6.onnx", "model_6.json", card.external_data
    }  # fmt: skip
    assert (card.name, card.precision, card.source) == ("net", "int8", "onnx")
    facts = card.calibration
    assert facts is not None
    assert (facts["calibrated"], facts["held_out"]) == (100, 50)
    assert facts["candidates"][facts["chosen"]]["objection"] == ""
    assert facts["judged"]["cpu"]["agreement"] >= 0.99
    images = np.stack([np.asarray(pictures.photo(SIDE, SIDE, seed=900 + n)) for n in range(6)])
    precise, coarse = (run(folder / "model_6.onnx", images)["y"] for folder in (home.int8.parent, home.int8))
    assert 0 < np.abs(precise - coarse).max() < 0.1 * np.abs(precise).max()
    operators = {node.op_type for node in onnx.load(home.int8 / "model.onnx", load_external_data=False).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= operators


def test_the_same_again_changes_nothing_and_other_pictures_make_it_anew(home: Home, tmp_path: Path) -> None:
    home.adopt(deep_graph())
    home.make()
    before = listing(home.int8)
    assert home.make().done == "verified"
    assert listing(home.int8) == before
    pictures.write_files(
        tmp_path / "others", {f"{n}.png": pictures.encode(pictures.photo(20, 20, seed=500 + n)) for n in range(110)}
    )
    home.adopt(deep_graph(), batch_size=3)
    assert home.make(calibration_dir=str(tmp_path / "others"), batch_size=3).done == "exported"
    assert home.said[-1] == "removed the graphs of the variant before: model_6.onnx"
    assert listing(home.int8)["card.json"] != before["card.json"]


def test_another_batch_size_needs_no_pictures(home: Home) -> None:
    home.adopt(deep_graph())
    home.make()
    before = listing(home.int8)
    home.adopt(deep_graph(), batch_size=3)
    provided = home.make(calibration_dir="", batch_size=3)
    assert (provided.done, provided.sidecar.batch_size) == ("added", 3)
    assert set(listing(home.int8)) - set(before) == {"model_3.onnx", "model_3.json"}
    assert read_sidecar(graph_path(home.int8, 3)).outputs == {"y": [3, 5]}


def test_without_pictures_there_must_be_a_variant(home: Home) -> None:
    home.adopt(deep_graph())
    with pytest.raises(UsageError, match="int8 does not exist: give --calibration_dir PICTURES"):
        home.make(calibration_dir="")
    assert not home.int8.exists()


def test_a_variant_of_a_replaced_export_is_not_used(home: Home) -> None:
    home.adopt(deep_graph())
    home.make()
    home.adopt(deep_graph(gain=41.0))
    with pytest.raises(UsageError, match="was made of another export of the network: give --calibration_dir"):
        home.make(calibration_dir="")
    launch = LaunchConfig(model_name="net", model_path=str(home.folder / "models"), precision="int8")
    with pytest.raises(RunError, match=r"int8 was made of another export .* --calibration_dir PICTURES"):
        find_model(launch, ["cpu"])
    assert home.make().done == "exported"
    assert find_model(launch, ["cpu"]).graph == graph_path(home.int8, 6).resolve()


def test_what_int8_cannot_hold_is_refused_with_its_figures_and_nothing_is_left(home: Home) -> None:
    home.adopt(deep_graph(giant=3e4))
    before = listing(home.int8.parent)
    with pytest.raises(
        RunError, match=r"no variant was made: of 9 candidates the best, .* top-1 agrees on .* \(99% must agree\)"
    ):
        home.make()
    assert sum(line.endswith("99% must agree") for line in home.said) == 9
    assert not home.int8.exists()
    assert listing(home.int8.parent) == before


def test_a_failed_check_leaves_the_variant_that_was_there(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.adopt(deep_graph())
    home.make()
    before = listing(home.int8)
    monkeypatch.setattr(variant, "_golden", broken_golden(variant._golden))
    with pytest.raises(RunError, match="differs"):
        home.make(calibration_dir=str(fewer(home.photos, home.folder / "fewer")))
    assert listing(home.int8) == before


def broken_golden(golden: Callable[..., Any]) -> Callable[..., Any]:
    def broken(*words: Any) -> Any:
        found = golden(*words)
        found.outputs["y"][:] += 1000
        return found

    return broken


def fewer(photos: Path, folder: Path) -> Path:
    pictures.write_files(folder, {path.name: path.read_bytes() for path in sorted(photos.iterdir())[:100]})
    return folder


def test_near_ties_everywhere_leave_it_to_the_output_error(home: Home) -> None:
    home.adopt(deep_graph(gain=0.01))
    home.make()
    assert any("agreement not measurable (0 of 50 pictures have a clear answer" in line for line in home.said)


def test_a_network_of_one_batch_size(home: Home) -> None:
    reshape = deep_graph(4)
    reshape.graph.initializer.append(onnx.numpy_helper.from_array(np.array([4, 8]), "literal"))
    (flatten,) = (node for node in reshape.graph.node if node.op_type == "Flatten")
    flatten.op_type, flatten.input[:] = "Reshape", ["pooled", "literal"]
    home.adopt(reshape, batch_size=4)
    assert home.network is not None
    assert home.network.card.fixed_batch == 4
    provided = home.make(batch_size=4)
    assert provided.card.calibration is not None
    assert provided.card.calibration["held_out"] == 50
    assert {path.name for path in home.int8.glob("*.onnx")} == {"model_4.onnx"}


@pytest.mark.parametrize(
    ("graph", "flags"),
    [({"opset": 11}, {}), ({"softmax": True}, {"scores": "auto"}), ({}, {"input": "float32"})],
    ids=["old opset", "probabilities", "float32 input"],
)
def test_other_graphs(home: Home, graph: dict[str, Any], flags: dict[str, Any]) -> None:
    home.adopt(deep_graph(**graph), **flags)
    facts = home.make().card.calibration
    assert facts is not None
    assert facts["judged"]["cpu"]["clear"] >= 30


@pytest.mark.parametrize(
    ("model", "flags", "told"),
    [
        (foreign_graph(), {"scores": "none"}, "net classifies nothing"),
        (foreign_graph(dtype="float16"), {}, "the graph of net computes in fp16 already"),
    ],
)
def test_networks_that_cannot_have_one(home: Home, model: onnx.ModelProto, flags: dict[str, Any], told: str) -> None:
    home.adopt(model, **flags)
    with pytest.raises(UsageError, match=f"^--precision int8: .*{told}"):
        home.make()


def test_the_folder_of_pictures_is_looked_at_before_the_network_is_made(home: Home) -> None:
    with pytest.raises(UsageError, match=r"^--calibration_dir: .*nowhere is no folder"):
        check_request(home.config(calibration_dir="nowhere"))


def test_every_provider_that_is_here_must_agree(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Judge.figures

    def objecting(judge: Any, model: onnx.ModelProto, provider: str, what: str) -> Any:
        found, why = figures(judge, model, "cpu", what)
        return found, "too far" if provider == "openvino" else why

    monkeypatch.setattr(int8_variant, "_other_judges", lambda _say: iter(["openvino"]))
    monkeypatch.setattr(Judge, "figures", objecting)
    home.adopt(deep_graph())
    with pytest.raises(RunError, match=r"the best, .* on openvino has top-1 agrees on 100\.0% .* \(too far\)"):
        home.make()
    assert not home.int8.exists()


def test_a_provider_that_is_not_here_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8_variant, "_JUDGES", ("cpu", "openvino"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    home.adopt(deep_graph())
    assert list(home.make().card.calibration or {}) != []
    assert "int8: not judged on openvino, which is not installed here" in home.said
