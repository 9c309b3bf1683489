"""evaluate.py: what is compared with what, and that nothing that is not finite is missed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bulkinfer.export.variants.evaluate import Judge
from bulkinfer.export.variants.simplify import simplified
from bulkinfer.model.card import graph_path, read_card
from onnx import TensorProto, helper

from tests import pictures
from tests.foreign_graphs import SIDE, deep_graph
from tests.logged import logged
from tests.variants import Home

IMAGES = np.stack([np.asarray(pictures.photo(SIDE, SIDE, seed=n)) for n in range(40)])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path, tmp_path, "fp16")
    model = deep_graph()
    model.graph.output.append(helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["N", 8]))
    home.adopt(model, batch_size=3, output_name="y")
    return home


def judged(home: Home, model: onnx.ModelProto) -> tuple[str, str]:
    """The figures as text, and the objection to them."""
    network, said = home.variant.parent, list[str]()
    judge = Judge(
        "fp16", read_card(network / "card.json"), graph_path(network, 3), IMAGES, 3, home.folder
    )  # fmt: skip
    figures, why = logged(said, judge.figures, model, "cpu", "this one")
    assert said == [f"fp16, this one, on cpu: {figures}: {why or 'passes'}"]
    assert figures.pictures == len(IMAGES)
    return str(figures), why


def model_of(home: Home) -> onnx.ModelProto:
    return simplified(graph_path(home.variant.parent, 0), home.folder)


def test_the_same_graph_passes_with_nothing_changed(home: Home) -> None:
    figures, why = judged(home, model_of(home))
    assert why == ""
    assert figures.startswith("top-1 agrees on 100.0% of ")
    assert figures.endswith("output error 0.000")


def test_an_output_that_is_not_classified_must_be_finite_too(home: Home) -> None:
    model = model_of(home)
    (flatten,) = (node for node in model.graph.node if "embedding" in node.output)
    flatten.output[0] = "flat"
    for node in model.graph.node:
        node.input[:] = ["flat" if name == "embedding" else name for name in node.input]
    model.graph.node.append(helper.make_node("Sub", ["flat", "flat"], ["zero"]))
    model.graph.node.append(helper.make_node("Log", ["zero"], ["embedding"]))
    figures, why = judged(home, model)
    assert why == "all values must be finite"
    assert f"and {len(IMAGES)} of {len(IMAGES)} pictures have values that are not finite" in figures
