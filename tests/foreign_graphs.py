"""Graphs as other people make them: small, with every habit that an ONNX file can have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from bulkinfer.model.recipe import Recipe
from onnx import TensorProto, helper, numpy_helper

SIDE = 8
NUMPY_TO_ONNX = {"uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16,
                 "float64": TensorProto.DOUBLE}  # fmt: skip
PLAIN: dict[str, Any] = {  # what graphs that take uint8 are fed by
    "height": SIDE, "width": SIDE, "resize": "exact", "resize_size": SIDE, "crop_fraction": 1.0, "interpolation": "bilinear",
    "mean": [0, 0, 0], "std": [1, 1, 1], "value_range": [0, 255],
}  # fmt: skip
SCALED: dict[str, Any] = {**PLAIN, "mean": [0.5, 0.4, 0.3], "std": [0.25, 0.5, 0.2], "value_range": [0, 1]}


def recipe_file(folder: Path, recipe: dict[str, Any] = SCALED) -> Path:
    """The recipe as a file; returns its path."""
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe))
    return path


def recipe_of(recipe: dict[str, Any] = SCALED) -> Recipe:
    """The same as an object."""
    return Recipe(**recipe)


def head(num_classes: int = 5) -> np.ndarray:
    """Weights from the three mean channels to classes; no two classes are alike."""
    return np.random.default_rng(7).normal(0, 1, (3, num_classes)).astype(np.float32)


def foreign_graph(
    batch: int | str = "N", layout: str = "NCHW", dtype: str = "float32", *, num_classes: int = 5, nodes: Any = None,
    outputs: dict[str, Any] | None = None, constants: dict[str, Any] | None = None, input: str = "x", opset: int = 17,
    ir_version: int = 8, softmax: bool = False, domains: tuple[str, ...] = (),
) -> onnx.ModelProto:  # fmt: skip
    """Mean colour -> `mean` (N x 3) -> MatMul -> `y` (N x num_classes). `nodes` are added at the end, `outputs` replace y.

    `outputs` maps names to None (float32 of unknown shape) or an element type.
    """
    half = dtype == "float16"
    work = np.float16 if half else np.float32
    shape = [batch, 3, SIDE, SIDE] if layout == "NCHW" else [batch, SIDE, SIDE, 3]
    axes = [2, 3] if layout == "NCHW" else [1, 2]
    body = []
    picture = input
    if dtype in ("uint8", "float64"):
        body.append(helper.make_node("Cast", [input], ["as_float"], to=TensorProto.FLOAT))
        body.append(helper.make_node("Div", ["as_float", "two_five_five"], ["unit"]))
        picture = "unit"
    body.append(helper.make_node("ReduceMean", [picture], ["mean"], axes=axes, keepdims=0))
    result = "product" if softmax else "y"
    body.append(helper.make_node("MatMul", ["mean", "w"], [result]))
    if softmax:
        body.append(helper.make_node("Softmax", [result], ["y"], axis=-1))
    values = {"w": head(num_classes).astype(work), **(constants or {})}
    if dtype in ("uint8", "float64"):
        values["two_five_five"] = np.float32(255)
    kept = outputs or {"y": TensorProto.FLOAT16 if half else None}
    graph = helper.make_graph(
        [*body, *(nodes or [])], "foreign",
        [helper.make_tensor_value_info(input, NUMPY_TO_ONNX[dtype], shape)],
        [helper.make_tensor_value_info(name, kind or TensorProto.FLOAT, None) for name, kind in kept.items()],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in values.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    model.metadata_props.append(onnx.StringStringEntryProto(key="path", value="/home/somebody/secret"))
    return model


def deep_graph(
    batch: int | str = "N", *, giant: float = 1.0, gain: float = 6.0, opset: int = 17, softmax: bool = False
) -> onnx.ModelProto:
    """Four convolutions and a Gemm to five classes: a network that int8 can hold.

    Not with a large `giant`: one channel between the third and the fourth convolution is that much larger than the others.
    `gain` is that of the classes; a small one makes all pictures near-ties.
    """
    random = np.random.default_rng(5)
    nodes, values = [], dict[str, np.ndarray]()
    taken, width = "x", 3
    for number in range(4):
        weight = random.normal(0, 1.4 / np.sqrt(9 * width), (8, width, 3, 3)).astype(np.float32)
        if number == 2:
            weight[0] *= giant
        if number == 3:
            weight[:, 0] /= giant
        values |= {f"w{number}": weight, f"b{number}": random.normal(0, 0.1, 8).astype(np.float32)}
        nodes.append(helper.make_node("Conv", [taken, f"w{number}", f"b{number}"], [f"c{number}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        taken, width = f"r{number}", 8
    values |= {"head": gain * random.normal(0, 1, (8, 5)).astype(np.float32), "bias": np.zeros(5, np.float32)}
    nodes += [
        helper.make_node("GlobalAveragePool", [taken], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["embedding"]),
        helper.make_node("Gemm", ["embedding", "head", "bias"], ["y"]),
        *([helper.make_node("Softmax", ["y"], ["p"], axis=-1)] if softmax else []),
    ]
    graph = helper.make_graph(
        nodes, "deep", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("p" if softmax else "y", TensorProto.FLOAT, [batch, 5])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def save(model: onnx.ModelProto, folder: Path, name: str = "m.onnx", **options: Any) -> Path:
    """Write a graph; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / name, **options)
    return folder / name
