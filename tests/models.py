"""A tiny model folder made by hand: real card, sidecar, external weights and graphs, small enough to run in microseconds.

The picture is averaged over its pixels (`embedding`, 3 numbers); `logits` are the similarity to eight colours. So the best
class of a solid picture is its colour, and a row that slid to a neighbour shows.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
from bulkinfer.files.atomic import file_sha256
from bulkinfer.model.card import GraphSidecar, ModelCard, Weights, graph_path, write_card, write_sidecar
from bulkinfer.model.recipe import Recipe
from onnx import TensorProto, helper, numpy_helper

SIZE = 32
COLOURS = {
    "black": (0, 0, 0), "red": (255, 0, 0), "lime": (0, 255, 0), "blue": (0, 0, 255),
    "yellow": (255, 255, 0), "cyan": (0, 255, 255), "magenta": (255, 0, 255), "white": (255, 255, 255),
}  # fmt: skip
LABELS = tuple(COLOURS)
RECIPE = Recipe(
    height=SIZE, width=SIZE, resize="short_side", resize_size=36, crop_fraction=SIZE / 36, interpolation="bilinear",
    mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0),
)  # fmt: skip


def colour_logits(embedding_N3: np.ndarray) -> np.ndarray:
    """What the graph computes from mean colours in 0..1: 2 e.c - c.c, largest for the nearest colour."""
    colours = np.array(list(COLOURS.values()), np.float32) / 255
    return embedding_N3 @ (2 * colours.T) - (colours * colours).sum(axis=1)


def tiny_graph(batch_size: int, extra: list[onnx.NodeProto] | None = None, *, input: str = "uint8") -> onnx.ModelProto:
    """The graph, its weights inline. `extra` nodes may turn `mean` into something else called `embedding`."""
    colours = np.array(list(COLOURS.values()), np.float32) / 255
    if input == "uint8":
        shape, kind = [batch_size, SIZE, SIZE, 3], TensorProto.UINT8
        nodes = [
            helper.make_node("Cast", ["images"], ["float"], to=TensorProto.FLOAT),
            helper.make_node("Div", ["float", "scale"], ["unit"]),
            helper.make_node("ReduceMean", ["unit", "hw"], ["mean"], keepdims=0),
        ]
        axes, scale = [1, 2], 255.0
    else:
        shape, kind = [batch_size, 3, SIZE, SIZE], TensorProto.FLOAT
        nodes = [helper.make_node("Div", ["images", "scale"], ["unit"]),
                 helper.make_node("ReduceMean", ["unit", "hw"], ["mean"], keepdims=0)]  # fmt: skip
        axes, scale = [2, 3], 1.0
    nodes += extra or [helper.make_node("Identity", ["mean"], ["embedding"])]
    nodes += [helper.make_node("MatMul", ["embedding", "weight"], ["product"]),
              helper.make_node("Add", ["product", "bias"], ["logits"])]  # fmt: skip
    constants = {
        "scale": np.float32(scale),
        "hw": np.array(axes, np.int64),
        "weight": 2 * colours.T,
        "bias": -(colours**2).sum(1),
    }
    graph = helper.make_graph(
        nodes, "tiny",
        [helper.make_tensor_value_info("images", kind, shape)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch_size, len(COLOURS)]),
         helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [batch_size, 3])],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def write_tiny_model(
    models: Path, name: str = "tiny", *, batch_sizes: tuple[int, ...] = (6,), graph: onnx.ModelProto | None = None,
    weights: str = "tiny-weights", input: str = "uint8",
) -> Path:  # fmt: skip
    """models/<name>/ with card, sidecars and graphs of the given batch sizes; returns the folder."""
    folder = models / name
    folder.mkdir(parents=True, exist_ok=True)
    external = folder / "weights.bin"
    external.write_bytes(b"the tiny graphs carry their weights inside")
    for batch_size in batch_sizes:
        model = graph or tiny_graph(batch_size, input=input)
        path = graph_path(folder, batch_size)
        onnx.save(model, path)
        shapes = [{v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
                  for values in (model.graph.input, model.graph.output)]  # fmt: skip
        write_sidecar(path, GraphSidecar(file_sha256(path), batch_size, shapes[0], shapes[1], {}))
    card = ModelCard(
        name=name, recipe=RECIPE, weights=Weights(weights, hashlib.sha256(weights.encode()).hexdigest()), licence="none",
        origin="made by the tests", input=input, outputs={"logits": "logits", "embedding": "embedding"}, labels=LABELS,
        num_parameters=24, versions={}, external_data=external.name, external_data_sha256=file_sha256(external),
    )  # fmt: skip
    write_card(folder / "card.json", card)
    return folder
