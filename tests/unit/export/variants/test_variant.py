"""variant.py in this process: what makes a variant, what refuses one, and what is left in the folder."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export.variants import variant
from bulkinfer.files.atomic import temporary_path, write_owner_file
from bulkinfer.model.card import Weights, graph_path, read_card, read_sidecar, write_card
from bulkinfer.model.lookup import find_model

from tests import pictures
from tests.foreign_graphs import SIDE, deep_graph, foreign_graph
from tests.networks import run
from tests.temporaries import temporary_name
from tests.variants import Home, listing


@pytest.fixture
def home(tmp_path: Path, int8_photos: Path, cpu_judges: None) -> Home:
    return Home(tmp_path, int8_photos, "int8")


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
    with pytest.raises(UsageError, match="int8 does not exist: give --calibration_dir PHOTOS"):
        home.make(calibration_dir="")
    assert not home.variant.exists()


def test_a_variant_of_a_replaced_export_is_not_used(home: Home) -> None:
    home.adopt(deep_graph())
    home.make()
    home.adopt(deep_graph(gain=41.0))
    with pytest.raises(UsageError, match="was made of another export of the network: give --calibration_dir"):
        home.make(calibration_dir="")
    launch = LaunchConfig(model_name="net", model_path=str(home.folder / "models"), precision="int8")
    with pytest.raises(UsageError, match=r"int8 was made of another export .* --calibration_dir PHOTOS"):
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


def test_a_network_whose_answers_nobody_can_see_is_refused_at_once(home: Home) -> None:
    home.adopt(deep_graph(gain=0.01))
    with pytest.raises(RunError, match=UNSEEN.format(0) + r"give pictures of its classes, because even 512 like these, .*$"):
        home.make()
    assert not home.variant.exists()
    assert not [line for line in home.said if line.startswith("int8, ")], "nothing was calibrated for that"


UNSEEN = (
    "^the effect of int8 on net cannot be judged, so no variant was made: of 50 pictures that judge, {} have a clear answer "
    "in fp32, 30 are needed: "
)


def test_how_many_more_pictures_it_takes(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.adopt(deep_graph())
    for clear, told in (
        (20, r"give pictures that it knows better, or some 75 more like these 150$"),  # 30 of 75, of 225
        (9, r"give pictures that it knows better, or some 351 more like these 150$"),  # 30 of 167, of 501
        (8, r"give pictures of its classes, "),  # 30 of 188, of 564
    ):
        monkeypatch.setattr("bulkinfer.export.variants.evaluate.count_clear", lambda *_, clear=clear, **__: clear)
        with pytest.raises(RunError, match=UNSEEN.format(clear) + told):
            home.make()
    monkeypatch.setattr("bulkinfer.export.variants.evaluate.count_clear", lambda *_, **__: 30)
    home.make()


def test_random_weights_have_no_answers_to_lose(home: Home) -> None:
    home.adopt(deep_graph(gain=0.01))
    card = home.variant.parent / "card.json"
    assert home.network is not None
    home.network = replace(home.network, card=replace(home.network.card, weights=Weights("random", "0" * 64)))
    write_card(card, home.network.card)
    home.make()
    assert any("agreement not measurable (0 of 50 pictures have a clear answer" in line for line in home.said)
    assert not [line for line in home.said if line.startswith("warning")]


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
        (foreign_graph(), {"scores": "none"}, "net has no class values"),
        (foreign_graph(dtype="float16"), {}, "the graph of net already computes in fp16"),
    ],
)
def test_networks_that_cannot_have_one(home: Home, model: onnx.ModelProto, flags: dict[str, Any], told: str) -> None:
    home.adopt(model, **flags)
    with pytest.raises(UsageError, match=f"^--precision int8: .*{told}"):
        home.make()


def test_files_to_work_with_are_marked_and_those_of_a_killed_get_model_go(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    left = work / "bulkinfer-left"
    left.mkdir(parents=True)
    write_owner_file(left).rename(left / temporary_name("00aa"))
    monkeypatch.setattr(tempfile, "tempdir", str(work))
    seen: list[list[str]] = []
    simplified = variant.simplified

    def looking(graph: Path, folder: Path) -> onnx.ModelProto:
        seen.append([path.name.rpartition("-")[0] for path in folder.iterdir()])
        return simplified(graph, folder)

    monkeypatch.setattr(variant, "simplified", looking)
    home.adopt(deep_graph())
    home.make()
    assert seen == [[temporary_path(work / "x").name.rpartition("-")[0]]]
    assert list(work.iterdir()) == []
