"""A network with convolutions and weights large enough for the graph cache, and what the cache then holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from bulkinfer.files.atomic import file_sha256
from bulkinfer.model.card import read_card, write_card
from bulkinfer.runtime.graph_cache import FOLDER, RECORD
from onnx import TensorProto, helper, numpy_helper

from tests.models import COLOURS, SIZE, write_tiny_model

MIB = 1 << 20


def conv_graph(batch_size: int, seed: int = 0) -> onnx.ModelProto:
    """Two convolutions and a layer of 65,536 weights; random weights that `seed` decides."""
    random = np.random.default_rng(seed)
    shapes = {
        "first": (32, 3, 3, 3),
        "second": (64, 32, 3, 3),
        "wide": (64, 1024),
        "head": (1024, len(COLOURS)),
        "three": (64, 3),
    }
    constants = {name: random.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}
    constants["scale"] = np.array(255, np.float32)
    nodes = [
        helper.make_node("Cast", ["images"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["float", "scale"], ["unit"]),
        helper.make_node("Transpose", ["unit"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["planes", "first"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "second"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "three"], ["embedding"]),
        helper.make_node("MatMul", ["flat", "wide"], ["e"]),
        helper.make_node("MatMul", ["e", "head"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes, "conv",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, [batch_size, SIZE, SIZE, 3])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch_size, len(COLOURS)]),
         helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [batch_size, 3])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def write_conv_model(models: Path, name: str = "tiny", *, batch_size: int = 4, seed: int = 0) -> Path:
    """models/<name>/ with that graph. Its weights lie inside it; the file beside it is as large as the cache asks for."""
    folder = write_tiny_model(models, name, batch_sizes=(batch_size,), graph=conv_graph(batch_size, seed))
    weights = folder / "weights.bin"
    weights.write_bytes(bytes([seed]) * MIB)
    card = read_card(folder / "card.json")
    write_card(folder / "card.json", replace(card, external_data_sha256=file_sha256(weights), external_data_bytes=MIB))
    return folder


def entries(folder: Path) -> list[Path]:
    """The entries in the cache of a folder of a network, and whatever else lies there."""
    cache = folder / FOLDER
    return sorted(cache.iterdir()) if cache.is_dir() else []


def entry(folder: Path) -> Path:
    """The only one, which is whole."""
    (found,) = entries(folder)
    assert (found / RECORD).is_file()
    return found
