"""make.py, fp16: what makes a variant in fp16, with and without pictures, and what refuses one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export.get_model import make_network
from bulkinfer.export.variants import variant
from bulkinfer.model.card import graph_path, read_card, read_sidecar

from tests import pictures
from tests.foreign_graphs import SIDE, deep_graph, foreign_graph
from tests.networks import run
from tests.variants import Home, listing, write_photos

LIMITS = {"low": 0, "high": 1e9}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos"), 60)


@pytest.fixture
def home(tmp_path: Path, photos: Path) -> Home:
    return Home(tmp_path, photos, "fp16")


def test_the_variant_is_a_folder_like_any_other_and_close_to_fp32(home: Home) -> None:
    home.adopt(deep_graph())
    provided = home.make()
    card = read_card(home.variant / "card.json")
    assert (provided.done, provided.folder) == ("exported", home.variant)
    assert set(listing(home.variant)) == {
        "card.json", "golden.npz", "model.onnx", "model.json", "model_6.onnx", "model_6.json", card.external_data
    }  # fmt: skip
    assert (card.name, card.precision, card.source) == ("net", "fp16", "onnx")
    images = np.stack([np.asarray(pictures.photo(SIDE, SIDE, seed=900 + n)) for n in range(6)])
    precise, coarse = (run(folder / "model_6.onnx", images)["y"] for folder in (home.variant.parent, home.variant))
    assert coarse.dtype == np.float32
    assert 0 < np.abs(precise - coarse).max() < 0.01 * np.abs(precise).max()
    graph = onnx.load(home.variant / "model_6.onnx", load_external_data=False).graph
    assert graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8
    assert onnx.TensorProto.FLOAT not in [tensor.data_type for tensor in graph.initializer]


def test_all_pictures_judge_it_as_it_is_and_with_every_value_rounded(home: Home) -> None:
    home.adopt(deep_graph())
    facts = home.make().card.calibration
    assert facts is not None
    assert (facts["calibrated"], facts["held_out"], facts["chosen"]) == (0, 60, "every node in fp16")
    assert list(facts["candidates"]) == ["every node in fp16", "every node in fp16, values rounded"]
    stored, rounded = facts["candidates"].values()
    assert facts["judged"] == {"cpu": {name: rounded[name] for name in rounded if name != "objection"}}
    assert stored["output_error"] != rounded["output_error"]
    assert any(line.endswith("60 of 60 pictures in " + str(home.photos) + ": all to judge") for line in home.said)
    assert sum(line.endswith(": passes") for line in home.said) == 2


def test_without_pictures_the_golden_ones_judge_by_the_output_error(home: Home) -> None:
    home.adopt(deep_graph())
    facts = home.make(calibration_dir="").card.calibration
    assert facts is not None
    assert (facts["pictures_sha256"], facts["held_out"]) == ("", 4)
    assert home.said[0] == "fp16: no --calibration_dir: judged on the golden pictures only, by the error of the output"
    assert "agreement not measurable (" in home.said[1]


def test_pictures_without_a_clear_answer_are_warned_of(home: Home) -> None:
    home.adopt(deep_graph(gain=0.01))
    home.make()
    assert [line for line in home.said if line.startswith("warning")] == [
        "warning: it was not measured whether fp16 keeps this network's answers: of 60 pictures that judge, 0 have "
        "a clear answer, 30 are needed: give more, and pictures of its classes"
    ]


def test_it_is_made_again_for_other_pictures_and_other_versions_only(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.adopt(deep_graph())
    assert home.make(calibration_dir="").done == "exported"
    before = listing(home.variant)
    assert home.make(calibration_dir="").done == "verified"
    assert listing(home.variant) == before
    assert home.make().done == "exported"
    assert home.make().done == "verified"
    assert home.make(calibration_dir="").done == "verified", "it was judged by more than is asked for"
    versions = variant._versions()
    monkeypatch.setattr(variant, "_versions", lambda: {**versions, "onnxruntime": "99"})
    assert home.make(calibration_dir="").done == "exported"


def test_another_batch_size(home: Home) -> None:
    home.adopt(deep_graph())
    home.make(calibration_dir="")
    config = home.config(calibration_dir="", batch_size=3)
    network = make_network(config)
    home.network = network
    provided = home.make(calibration_dir="", batch_size=3)
    assert (provided.done, provided.sidecar.batch_size) == ("added", 3)
    assert read_sidecar(graph_path(home.variant, 3)).outputs == {"y": [3, 5]}


def test_the_versions_are_those_of_what_runs_whatever_its_package_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime-gpu brings the same module."""
    import importlib.metadata

    import onnxruntime

    known = importlib.metadata.version
    asked: list[str] = []
    monkeypatch.setattr(importlib.metadata, "version", lambda name: asked.append(name) or known(name))
    assert variant._versions()["onnxruntime"] == onnxruntime.__version__
    assert "onnxruntime" not in asked


@pytest.mark.parametrize("given", [{}, {"calibration_dir": ""}], ids=["pictures", "golden pictures"])
def test_values_that_fp16_cannot_hold_are_refused_and_nothing_is_left(home: Home, given: dict[str, str]) -> None:
    """They lie between two nodes: the cpu provider, which would keep them, gives the answers of fp32."""
    home.adopt(deep_graph(giant=1e5))
    before = listing(home.variant.parent)
    with pytest.raises(
        RunError,
        match=r"^fp16 changes the network's answers.* values rounded: .* and \d+ of \d+ pictures have values that are "
        r"not finite \(all values must be finite\): stay with --precision fp32$",
    ):
        home.make(**given)
    assert any(line.startswith("fp16, every node in fp16, on cpu: ") and line.endswith("passes") for line in home.said)
    assert not home.variant.exists()
    assert listing(home.variant.parent) == before


def test_constants_that_fp16_cannot_hold_are_told_and_stay_in_fp32(home: Home) -> None:
    model = deep_graph()
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.float32(value), name) for name, value in LIMITS.items())
    model.graph.node.insert(2, onnx.helper.make_node("Clip", ["r0", *LIMITS], ["clipped"]))
    model.graph.node[3].input[0] = "clipped"
    home.adopt(model)
    facts = home.make(calibration_dir="").card.calibration
    assert facts is not None
    assert facts["chosen"].startswith("1 of ")
    assert "fp16: nodes that stay in fp32, because fp16 cannot hold their constants of up to 1e+09: 1" in home.said
    limits = onnx.load(home.variant / "model.onnx", load_external_data=False).graph.initializer
    assert 1e9 in [onnx.numpy_helper.to_array(tensor) for tensor in limits if not tensor.dims]


@pytest.mark.parametrize(
    ("model", "flags", "told"),
    [
        (foreign_graph(), {"scores": "none"}, "net has no class values, so the effect of fp16 cannot be judged"),
        (foreign_graph(dtype="float16"), {}, "the graph of net already computes in fp16: it runs as it is"),
    ],
)
def test_networks_that_cannot_have_one(home: Home, model: onnx.ModelProto, flags: dict[str, str], told: str) -> None:
    home.adopt(model, **flags)
    with pytest.raises(UsageError, match=f"^--precision fp16: .*{told}"):
        home.make()


@pytest.mark.parametrize("batch", [4, "N"])
def test_networks_of_one_batch_size_and_of_float32_input(home: Home, batch: int | str) -> None:
    model = deep_graph(batch)
    if batch == 4:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([4, 8]), "literal"))
        (flatten,) = (node for node in model.graph.node if node.op_type == "Flatten")
        flatten.op_type, flatten.input[:] = "Reshape", ["pooled", "literal"]
    home.adopt(model, batch_size=4, input="uint8" if batch == 4 else "float32")
    provided = home.make(batch_size=4)
    assert provided.card.fixed_batch == (4 if batch == 4 else 0)
    assert list(provided.sidecar.inputs.values()) == [[4, SIDE, SIDE, 3] if batch == 4 else [4, 3, SIDE, SIDE]]
