"""get_model --onnx in this process: what is refused with which sentence, and what is left in the folder."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from bulkinfer.config import GetModelConfig
from bulkinfer.errors import RunError, UsageError
from bulkinfer.export import from_folder, from_onnx, model_folder
from bulkinfer.export.get_model import make_network
from bulkinfer.export.onnx_import import graph as graph_module
from bulkinfer.model import integrity as model_damage
from bulkinfer.model.card import read_card
from bulkinfer.model.graph_checks import read_golden
from onnx import TensorProto, helper

from tests.adoption import Home
from tests.foreign_graphs import SCALED, foreign_graph, save


def reshaped(batch: int | str, *shape: int) -> onnx.ModelProto:
    """A graph whose output z goes through a reshape to literal sizes."""
    nodes = [helper.make_node("Reshape", ["y", "shape"], ["z"])]
    return foreign_graph(batch, nodes=nodes, outputs={"z": None}, constants={"shape": np.array(shape)})


def test_the_folder_is_like_any_other(home: Home) -> None:
    provided = home.adopt(foreign_graph(num_classes=1000), scores="logits", licence="MIT")
    names = {path.name for path in provided.folder.iterdir()} - {".lock"}
    card = read_card(provided.folder / "card.json")
    assert names == {"card.json", "golden.npz", "model.onnx", "model.json", "model_6.onnx", "model_6.json", card.external_data}
    assert (card.source, card.precision, card.fixed_batch, card.licence) == ("onnx", "fp32", 0, "MIT")
    assert card.origin == f"m.onnx, sha256 {card.weights.sha256}"
    assert card.outputs == {"y": "logits"}
    assert (card.classified, card.num_parameters) == ("y", 3000)
    assert (provided.folder / card.external_data).stat().st_size == card.external_data_bytes == 12_000
    for name in names - {"golden.npz"}:
        content = (provided.folder / name).read_bytes()
        assert b"/home/somebody" not in content
        assert str(home.folder).encode() not in content
    golden = read_golden(provided.folder / "golden.npz")
    assert golden.outputs["y"].shape == (4, 1000)
    assert golden.outputs["y"].dtype == np.float32


def test_what_is_not_said_is_not_stated(home: Home) -> None:
    assert home.adopt(foreign_graph(), scores="logits").card.licence == "not stated"


def test_the_same_again_verifies_and_other_facts_replace(home: Home) -> None:
    first = home.adopt(foreign_graph(), scores="logits")
    assert first.done == "exported"
    assert home.adopt(scores="logits").done == "verified"
    assert home.adopt(scores="logits", batch_size=2).done == "added"
    assert home.adopt(scores="logits", licence="MIT").done == "exported"
    assert home.said[-1] == "removed the graphs of the export before: model_2.onnx"


def test_an_output_that_numpys_archives_cannot_name_leaves_the_network_there_whole(home: Home) -> None:
    first = home.adopt(foreign_graph(), scores="logits")
    nodes = [helper.make_node("Neg", ["y"], ["file"]), helper.make_node("Abs", ["y"], ["Allow_Pickle"])]
    graph = foreign_graph(nodes=nodes, outputs={"file": None, "Allow_Pickle": None})
    renamed = home.adopt(graph, scores="logits", output_name="file")
    assert list(renamed.card.outputs) == ["output_file", "output_Allow_Pickle"]
    assert renamed.folder == first.folder
    assert not model_damage.damage(renamed.folder, renamed.card)


def test_an_output_that_is_not_finite_is_left_out(home: Home) -> None:
    """The logarithm of what a relu makes zero says nothing against the recipe."""
    nodes = [helper.make_node("Sub", ["y", "y"], ["none"]), helper.make_node("Log", ["none"], ["z"])]
    graph = foreign_graph(nodes=nodes, outputs={"y": None, "z": None})
    assert list(home.adopt(graph, scores="logits", output_name="y").card.outputs) == ["y"]
    assert "output z is left out: it is not finite on ordinary pictures" in home.said
    with pytest.raises(RunError, match="z is not finite on ordinary pictures: is --recipe the right one"):
        home.adopt(graph, scores="logits", output_name="z")


def test_a_damaged_card_of_the_zoo_is_no_matter_of_adopted_networks(home: Home) -> None:
    for name in ("efficientnet_lite0", "mine"):
        folder = home.folder / "models" / name
        folder.mkdir(parents=True)
        (folder / "card.json").write_text("{")
    assert from_folder.find(GetModelConfig(model_path=str(home.folder / "models"), model_name="efficientnet_lite0")) is None
    with pytest.raises(UsageError, match="mine"):
        from_folder.find(GetModelConfig(model_path=str(home.folder / "models"), model_name="mine"))


@pytest.mark.parametrize(("flags", "told"), [
    ({"input": "float32"}, "--input float32: net was adopted with --input uint8"),
    ({"weights_sha256": "ab" * 32}, r"--weights: net was adopted from m\.onnx, which has its own weights"),
    ({"weights": "random"}, r"--weights: net was adopted from m\.onnx, which has its own weights"),
])  # fmt: skip
def test_flags_that_an_adopted_network_cannot_follow(home: Home, flags: dict[str, Any], told: str) -> None:
    home.adopt(foreign_graph(), scores="logits")
    with pytest.raises(UsageError, match=told):
        make_network(GetModelConfig(model_path=str(home.folder / "models"), model_name="Net", **flags))


def test_a_batch_size_is_added_without_the_file(home: Home) -> None:
    home.adopt(foreign_graph(4), scores="logits")
    (home.folder / "m.onnx").unlink()
    config = GetModelConfig(model_path=str(home.folder / "models"), model_name="net", batch_size=3)
    first, again = make_network(config), make_network(config)
    assert (first.done, again.done) == ("added", "verified")
    (first.folder / "model.onnx").unlink()
    with pytest.raises(RunError, match=r"model\.onnx is missing .*: run get_model --onnx m\.onnx --name net --recipe"):
        make_network(config)
    with pytest.raises(UsageError, match="no network is called 'another'"):
        make_network(GetModelConfig(model_path=str(home.folder / "models"), model_name="another"))


@pytest.mark.parametrize("batch", [1, 6])
def test_b25_a_fixed_batch_is_made_free(home: Home, batch: int) -> None:
    provided = home.adopt(foreign_graph(batch), scores="logits", batch_size=4)
    assert f"batch: free (the graph said {batch}; it runs at any)" in home.said
    assert provided.sidecar.outputs == {"y": [4, 5]}
    assert (provided.folder / "model.onnx").exists()


def test_b26_a_reshape_to_a_literal_batch_is_refused(home: Home) -> None:
    told = home.refusal(reshaped("N", 1, -1))
    assert told.startswith("--onnx: m.onnx fixes or mixes its batch inside (output z: it has 1 rows for a batch of 3); ")
    assert told.endswith("; it can only be adopted with --batch_size 1")


@pytest.mark.parametrize("batch", [1, 4])
def test_b26_or_taken_with_that_batch_alone(home: Home, batch: int) -> None:
    told = home.refusal(reshaped(batch, batch, -1), batch_size=batch + 1, scores="logits")
    assert told.endswith(f"; it can only be adopted with --batch_size {batch}")
    provided = home.adopt(batch_size=batch, scores="logits")
    assert provided.card.fixed_batch == batch
    assert not (provided.folder / "model.onnx").exists()
    words = GetModelConfig(model_path=str(home.folder / "models"), model_name="net", batch_size=batch + 1)
    with pytest.raises(UsageError, match=f"net runs at batch {batch} only"):
        make_network(words)
    assert make_network(GetModelConfig(model_path=words.model_path, model_name="net", batch_size=batch)) is not None


@pytest.mark.parametrize("batch", ["N", 6])
def test_b26_rows_that_change_their_neighbours_are_refused(home: Home, batch: int | str) -> None:
    nodes = [helper.make_node("ReduceMax", ["y"], ["top"], axes=[0]), helper.make_node("Add", ["y", "top"], ["z"])]
    told = home.refusal(foreign_graph(batch, nodes=nodes, outputs={"z": None}), scores="logits")
    assert told.endswith("(other rows of the batch change the z of a picture); it can only be adopted with --batch_size 1")
    assert home.adopt(scores="logits", batch_size=1).card.fixed_batch == 1


def test_b26_samples_that_merge_are_refused(home: Home) -> None:
    """N x 5 -> 5 x N -> N x 5 keeps the number of rows and mixes them."""
    nodes = [
        helper.make_node("Transpose", ["y"], ["turned"], perm=[1, 0]),
        helper.make_node("Reshape", ["turned", "shape"], ["z"]),
    ]
    model = foreign_graph(nodes=nodes, outputs={"z": None}, constants={"shape": np.array([-1, 5])})
    assert "change the z of a picture" in home.refusal(model, scores="logits")


def test_b26_a_range_taken_over_the_whole_batch_is_refused(home: Home) -> None:
    """Dynamic quantisation: other pictures decide how a picture's values are rounded."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["quantised", "scale", "zero"]),
        helper.make_node("DequantizeLinear", ["quantised", "scale", "zero"], ["rounded"]),
        helper.make_node("ReduceMean", ["rounded"], ["pooled"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["pooled", "w"], ["z"]),
    ]
    told = home.refusal(foreign_graph(nodes=nodes, outputs={"z": None}), scores="logits")
    assert "other rows of the batch change the z of a picture); it can only be adopted with --batch_size 1" in told
    assert home.adopt(batch_size=1, scores="logits").card.fixed_batch == 1


@pytest.mark.parametrize("batch", [1, "N"])
def test_pictures_that_a_graph_of_one_takes_for_one(home: Home, batch: int | str) -> None:
    """A softmax over all values at once: right for one picture, and of the right shape for several."""
    nodes = [
        helper.make_node("Reshape", ["y", "flat"], ["all"]),
        helper.make_node("Softmax", ["all"], ["soft"], axis=1),
        helper.make_node("Reshape", ["soft", "rows"], ["z"]),
    ]
    constants = {"flat": np.array([1, -1]), "rows": np.array([-1, 5])}
    told = home.refusal(foreign_graph(batch, nodes=nodes, outputs={"z": None}, constants=constants))
    assert told.endswith("(other rows of the batch change the z of a picture); it can only be adopted with --batch_size 1")
    assert home.adopt(batch_size=1).card.outputs == {"z": "probabilities"}


def test_batch_norms_in_training_are_refused(home: Home) -> None:
    nodes = [helper.make_node("BatchNormalization", ["y", "one", "nil", "nil", "one"], ["z", "m", "v"], training_mode=1)]
    constants = {"one": np.ones(5, np.float32), "nil": np.zeros(5, np.float32)}
    told = home.refusal(foreign_graph(nodes=nodes, outputs={"z": None}, constants=constants), batch_size=1)
    assert "m.onnx was exported for training" in told


def test_random_numbers_are_called_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the operators do not say so."""
    monkeypatch.setattr(graph_module, "random_operator", lambda _: "")
    nodes = [helper.make_node("RandomNormalLike", ["y"], ["noise"], scale=1e-3), helper.make_node("Add", ["y", "noise"], ["z"])]
    told = home.refusal(foreign_graph(nodes=nodes, outputs={"z": None}), scores="logits")
    assert "m.onnx draws random numbers: z differs from run to run" in told


def test_outputs_that_cannot_be_kept_are_left_out_with_their_nodes(home: Home) -> None:
    nodes = [
        helper.make_node("Optional", ["y"], ["maybe"]),
        helper.make_node("Cast", ["y"], ["half"], to=TensorProto.BFLOAT16),
        helper.make_node("ArgMax", ["y"], ["best"], axis=1),
        helper.make_node("Add", ["best", "base"], ["number"]),
    ]
    kinds = {"y": None, "half": TensorProto.BFLOAT16, "number": TensorProto.INT64}
    model = foreign_graph(nodes=nodes, outputs=kinds, constants={"base": np.array(2**40 + 1)})
    maybe = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 5]))
    model.graph.output.append(helper.make_value_info("maybe", maybe))
    provided = home.adopt(model, scores="logits")
    assert "output half is left out: it holds bfloat16, a type that numpy lacks" in home.said
    assert "output maybe is left out: it holds optional(tensor(float)), a type that numpy lacks" in home.said
    assert "output number is left out: it holds whole numbers beyond 16,777,216, which float32 would round" in home.said
    kept = onnx.load(provided.folder / "model.onnx").graph
    assert not {"Cast", "ArgMax"} & {node.op_type for node in kept.node if node.output[0] in ("half", "best")}
    assert [tensor.name for tensor in kept.initializer if tensor.name == "base"] == []


def test_other_small_weights_beside_the_same_graph_replace(home: Home) -> None:
    """They are too small for our weights file, and the graph file that names them stays as it is."""
    path = save(foreign_graph(), home.folder, save_as_external_data=True, location="w.data", size_threshold=0)
    first = read_golden(home.adopt(scores="logits").folder / "golden.npz").outputs["y"]
    data = path.with_name("w.data")
    (np.fromfile(data, np.float32) * 2).astype(np.float32).tofile(data)
    provided = home.adopt(scores="logits")
    assert provided.done == "exported"
    np.testing.assert_allclose(read_golden(provided.folder / "golden.npz").outputs["y"], first * 2, rtol=1e-6)


def test_static_quantisation_is_taken(home: Home) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["quantised"]),
        helper.make_node("DequantizeLinear", ["quantised", "scale", "zero"], ["rounded"]),
        helper.make_node("ReduceMean", ["rounded"], ["pooled"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["pooled", "w"], ["z"]),
    ]
    constants = {"scale": np.float32(0.03), "zero": np.uint8(128)}
    model = foreign_graph(nodes=nodes, outputs={"z": None}, constants=constants)
    assert home.adopt(model, scores="logits").card.precision == "int8"


def test_labels_and_golden_files_are_checked(home: Home) -> None:
    labels = home.folder / "labels.txt"
    labels.write_text("a\nb\nc\n")
    assert (
        home.refusal(foreign_graph(), scores="logits", labels=str(labels)) == "--labels: the file has 3 names, y has 5 values"
    )
    labels.write_text("a\nb\nc\nd\ne\n")
    golden = home.folder / "golden"
    golden.mkdir()
    np.savez(golden / "one.npz", input=np.zeros((1, 8, 8, 3), np.uint8), y=np.zeros((1, 5), np.float32))
    told = home.refusal(foreign_graph(), RunError, scores="logits", labels=str(labels), golden=str(golden))
    assert "--golden one.npz: y differs by" in told
    provided = home.adopt(scores="logits", labels=str(labels))
    assert provided.card.labels == ("a", "b", "c", "d", "e")


def test_weights_that_give_no_numbers(home: Home) -> None:
    nodes = [helper.make_node("Log", ["minus"], ["nothing"]), helper.make_node("Add", ["y", "nothing"], ["z"])]
    model = foreign_graph(nodes=nodes, outputs={"z": None}, constants={"minus": np.float32([-1])})
    assert "z is not finite on ordinary pictures" in home.refusal(model, RunError)


@pytest.mark.parametrize(("flags", "told"), [
    ({"name": "a/b"}, "--name 'a/b': a name consists of letters, digits, dots, dashes and underscores"),
    ({"name": ".hidden"}, "--name '.hidden'"),
    ({"name": "x" * 300}, "--name: a name has at most 100 characters, this one has 300"),
    ({"name": "timm_resnet18"}, "a network of get_model --list or of timm has this name"),
    ({"name": "EfficientNet-Lite0"}, "a network of get_model --list or of timm has this name"),
    ({"output_name": "z"}, "--output_name: there is no output 'z'; there are y"),
])  # fmt: skip
def test_flags_that_do_not_fit(home: Home, flags: dict[str, Any], told: str) -> None:
    assert told in home.refusal(foreign_graph(), **flags)


@pytest.mark.parametrize(("flags", "told"), [
    ({"recipe": "r.json"}, "--recipe belongs to --onnx FILE"),
    ({"scores": "logits"}, "--scores belongs to --onnx FILE"),
    ({"onnx": "m.onnx", "recipe": "r.json"}, "--onnx FILE needs --name NAME and --recipe"),
    ({"onnx": "m.onnx", "name": "net"}, "--onnx FILE needs --name NAME and --recipe"),
    ({"onnx": "m.onnx", "name": "net", "recipe": "r", "weights": "random"}, "--weights belongs to networks of the list"),
    ({"onnx": "m.onnx", "name": "net", "recipe": "r", "scores": "none", "output_name": "y"}, "give one of them"),
])  # fmt: skip
def test_flags_that_belong_together(flags: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        GetModelConfig(**flags)


def test_a_folder_of_the_zoo_is_not_replaced(home: Home) -> None:
    from tests.models import write_tiny_model

    write_tiny_model(home.folder / "models", "net")
    before = sorted(path.name for path in (home.folder / "models" / "net").iterdir())
    save(foreign_graph(), home.folder)
    with pytest.raises(UsageError, match=r"holds a network from the zoo \(made by the tests\): give this one another --name"):
        home.adopt(scores="logits")
    assert set(before) <= {path.name for path in (home.folder / "models" / "net").iterdir()}


def test_b62_normalisation_inside_equals_normalisation_by_the_worker(home: Home) -> None:
    first = home.adopt(foreign_graph(), scores="logits", input="float32")
    assert first.sidecar.inputs == {"x": [6, 3, 8, 8]}
    second = home.adopt(scores="logits", name="other")
    assert second.sidecar.inputs == {"images": [6, 8, 8, 3]}
    values = [read_golden(provided.folder / "golden.npz").outputs["y"] for provided in (first, second)]
    assert np.array_equal(*values)
    assert first.card.recipe.mean == tuple(SCALED["mean"])


def test_c34_a_map_of_small_probabilities_is_taken(home: Home) -> None:
    """The sigmoid of the runtime has errors of 1e-7 whatever the size of its value."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "k", "low"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c"], ["z"]),
    ]
    constants = {"k": random.normal(0, 0.02, (1, 3, 3, 3)).astype(np.float32), "low": np.float32([-8])}
    made = home.adopt(foreign_graph(nodes=nodes, outputs={"z": None}, constants=constants), scores="none")
    assert 1e-8 < made.sidecar.parity["z"]["max_abs_difference"] < 1e-6
    assert made.sidecar.parity["z"]["max_abs_value"] < 1e-3


@pytest.mark.parametrize("gain", [1.0003, 0.999])
def test_c34_a_wrong_export_of_small_probabilities_is_still_refused(
    home: Home, gain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [helper.make_node("Mul", ["y", "small"], ["z"])]
    model = foreign_graph(nodes=nodes, outputs={"z": None}, constants={"small": np.float32(1e-2)})
    rewrite = from_onnx.graph_rewrite.feed_pictures

    def wrong(graph: Any, picture: Any, recipe: Any, kind: str) -> None:
        rewrite(graph, picture, replace(recipe, std=tuple(std * gain for std in recipe.std)), kind)

    monkeypatch.setattr(from_onnx.graph_rewrite, "feed_pictures", wrong)
    assert "the export is wrong and was not kept" in home.refusal(model, RunError, scores="none")


@pytest.mark.parametrize("scores", ["auto", "logits", "probabilities"])
def test_c40_a_classifier_with_a_zipmap_says_how_to_export_it(home: Home, scores: str) -> None:
    """As skl2onnx exports a classifier by default."""
    nodes = [
        helper.make_node("ArgMax", ["y"], ["label"], axis=1, keepdims=0),
        helper.make_node("Softmax", ["y"], ["p"], axis=-1),
        helper.make_node("ZipMap", ["p"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3, 4]),
    ]
    model = foreign_graph(nodes=nodes, outputs={"label": TensorProto.INT64}, domains=("ai.onnx.ml",))
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    model.graph.output.append(helper.make_value_info("probabilities", helper.make_sequence_type_proto(kind)))
    told = home.refusal(model, scores=scores)
    assert told.endswith("; the scores are in probabilities, a ZipMap: export the classifier with "
                         "options={'zipmap': False}; --scores none adopts the graph without classes")  # fmt: skip
    assert home.adopt(scores="none").card.outputs == {"output_label": "values"}, "label is a column"
    for node in [node for node in model.graph.node if node.op_type == "ZipMap"]:
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
    model.graph.output[-1].CopyFrom(helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, None))
    if scores != "logits":
        assert home.adopt(model, scores=scores).card.classified == "probabilities"


def test_c60_the_hash_is_over_the_graph_and_the_weights_beside_it(home: Home) -> None:
    path = save(foreign_graph(), home.folder, save_as_external_data=True, location="w.data", size_threshold=0)
    made = home.adopt(scores="logits")
    both = path.read_bytes() + path.with_name("w.data").read_bytes()
    assert made.card.weights.sha256 == hashlib.sha256(both).hexdigest()
    assert made.card.weights.origin == "file given to get_model --onnx with w.data, one hash over all"
    assert made.card.origin.startswith(f"m.onnx, sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}, weights beside it ")
    alone = home.adopt(foreign_graph(), scores="logits", name="alone")
    assert alone.card.weights.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_c60_outputs_that_say_nothing_are_warned_of(home: Home) -> None:
    nodes = [
        helper.make_node("Mul", ["y", "nil"], ["zeros"]),
        helper.make_node("Add", ["zeros", "one"], ["same"]),
    ]
    outputs = {"y": None, "zeros": None, "same": None}
    constants = {"nil": np.float32(0), "one": np.float32(1)}
    home.adopt(foreign_graph(nodes=nodes, outputs=outputs, constants=constants), scores="logits", output_name="y")
    assert [line for line in home.said if line.startswith("warning")] == [
        "warning: zeros is 0 for every golden picture: are the weights, and the recipe, the right ones?",
        "warning: same is the same for every golden picture: does it depend on the picture?",
    ]


def test_c60_a_refused_adoption_leaves_no_folder(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for flags in ({"scores": "probabilities"}, {"name": "efficientnet_lite0"}, {"output_name": "none"}):
        home.refusal(foreign_graph(), **flags)
        assert not (home.folder / "models").exists()

    def wrong(*_: Any) -> None:
        raise RunError("the export is wrong and was not kept")

    monkeypatch.setattr(model_folder, "check_graph", wrong)
    home.refusal(foreign_graph(), RunError, scores="logits")
    assert not (home.folder / "models").exists()


def test_c60_a_name_that_differs_by_case_is_prefixed_once(home: Home) -> None:
    nodes = [helper.make_node("Neg", ["y"], ["Status"]), helper.make_node("Abs", ["y"], ["status"])]
    graph = foreign_graph(nodes=nodes, outputs={"Status": None, "status": None})
    assert list(home.adopt(graph, scores="none").card.outputs) == ["output_Status", "output_status_2"]


def test_c60_an_output_that_is_listed_twice_is_reported(home: Home) -> None:
    graph = foreign_graph()
    graph.graph.output.append(graph.graph.output[0])
    made = home.adopt(graph, scores="logits")
    assert list(made.card.outputs) == ["y"]
    assert "output y is listed more than once in the graph: it is taken once" in home.said


def test_the_hint_for_a_damaged_card_names_the_file_and_works(home: Home) -> None:
    """get_model --model_name net would look for a network of the zoo."""
    folder = home.adopt(foreign_graph(), scores="logits").folder
    card = folder / "card.json"
    card.write_text(card.read_text().replace('"y": "logits"', '"y": "values"'))
    with pytest.raises(UsageError, match=r"json is damaged .*: run get_model --onnx m\.onnx --name net --recipe recipe\.json"):
        make_network(GetModelConfig(model_path=str(home.folder / "models"), model_name="net"))
    assert home.adopt(scores="logits").done == "exported"
    card.write_text("{")
    with pytest.raises(UsageError, match="make net again from what it was made of: get_model --checkpoint RUN --name net, or "):
        make_network(GetModelConfig(model_path=str(home.folder / "models"), model_name="net"))
