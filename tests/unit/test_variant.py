"""variant.py in this process: what makes a variant, what refuses one, and what is left in the folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from inference import int8_variant, variant
from inference.card import graph_path, read_card, read_sidecar
from inference.config import LaunchConfig
from inference.errors import RunError, UsageError
from inference.model_lookup import find_model
from inference.variant import check_request
from tests import pictures
from tests.foreign_graphs import SIDE, deep_graph, foreign_graph
from tests.networks import run
from tests.variants import Home, listing, write_photos


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture
def home(tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(int8_variant, "_JUDGES", ("cpu",))  # the other provider judges in the test through the commands
    return Home(tmp_path, photos, "int8")


def test_the_variant_is_a_folder_like_any_other_and_close_to_fp32(home: Home) -> None:
    home.adopt(deep_graph())
    provided = home.make()
    card = read_card(home.variant / "card.json")
    assert provided.done == "exported"
    assert set(listing(home.variant)) == {
        "card.json", "golden.npz", "model.onnx", "model.json", "model_6.onnx", "model_6.json", card.external_data
    }  # fmt: skip
    assert (card.name, card.precision, card.source) == ("net", "int8", "onnx")
    facts = card.calibration
    assert facts is not None
    assert (facts["calibrated"], facts["held_out"]) == (100, 50)
    assert facts["candidates"][facts["chosen"]]["objection"] == ""
    assert facts["judged"]["cpu"]["agreement"] >= 0.99
    images = np.stack([np.asarray(pictures.photo(SIDE, SIDE, seed=900 + n)) for n in range(6)])
    precise, coarse = (run(folder / "model_6.onnx", images)["y"] for folder in (home.variant.parent, home.variant))
    assert 0 < np.abs(precise - coarse).max() < 0.1 * np.abs(precise).max()
    operators = {node.op_type for node in onnx.load(home.variant / "model.onnx", load_external_data=False).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= operators


def test_the_same_again_changes_nothing_and_other_pictures_make_it_anew(home: Home, tmp_path: Path) -> None:
    home.adopt(deep_graph())
    home.make()
    before = listing(home.variant)
    assert home.make().done == "verified"
    assert listing(home.variant) == before
    pictures.write_files(
        tmp_path / "others", {f"{n}.png": pictures.encode(pictures.photo(20, 20, seed=500 + n)) for n in range(110)}
    )
    home.adopt(deep_graph(), batch_size=3)
    assert home.make(calibration_dir=str(tmp_path / "others"), batch_size=3).done == "exported"
    assert home.said[-1] == "removed the graphs of the variant before: model_6.onnx"
    assert listing(home.variant)["card.json"] != before["card.json"]


def test_another_batch_size_needs_no_pictures(home: Home) -> None:
    home.adopt(deep_graph())
    home.make()
    before = listing(home.variant)
    home.adopt(deep_graph(), batch_size=3)
    provided = home.make(calibration_dir="", batch_size=3)
    assert (provided.done, provided.sidecar.batch_size) == ("added", 3)
    assert set(listing(home.variant)) - set(before) == {"model_3.onnx", "model_3.json"}
    assert read_sidecar(graph_path(home.variant, 3)).outputs == {"y": [3, 5]}


def test_without_pictures_there_must_be_a_variant(home: Home) -> None:
    home.adopt(deep_graph())
    with pytest.raises(UsageError, match="int8 does not exist: give --calibration_dir PICTURES"):
        home.make(calibration_dir="")
    assert not home.variant.exists()


def test_a_variant_of_a_replaced_export_is_not_used(home: Home) -> None:
    home.adopt(deep_graph())
    home.make()
    home.adopt(deep_graph(gain=41.0))
    with pytest.raises(UsageError, match="was made of another export of the network: give --calibration_dir"):
        home.make(calibration_dir="")
    launch = LaunchConfig(model_name="net", model_path=str(home.folder / "models"), precision="int8")
    with pytest.raises(UsageError, match=r"int8 was made of another export .* --calibration_dir PICTURES"):
        find_model(launch, ["cpu"])
    assert home.make().done == "exported"
    assert find_model(launch, ["cpu"]).graph == graph_path(home.variant, 6).resolve()


def test_a_failed_check_leaves_the_variant_that_was_there(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.adopt(deep_graph())
    home.make()
    before = listing(home.variant)
    monkeypatch.setattr(variant, "_golden", broken_golden(variant._golden))
    with pytest.raises(RunError, match="differs"):
        home.make(calibration_dir=str(fewer(home.photos, home.folder / "fewer")))
    assert listing(home.variant) == before


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
    told = (
        "warning: whether int8 keeps this network's answers was not measured: of 50 pictures that judge 0 have a clear answer, "
    )
    assert [line for line in home.said if line.startswith("warning")] == [
        told + "30 are needed: give more pictures, and such as the network knows"
    ]


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
    assert {path.name for path in home.variant.glob("*.onnx")} == {"model_4.onnx"}


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
