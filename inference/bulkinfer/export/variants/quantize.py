"""A graph in fp32 -> the same graph in int8: static QDQ, weights per channel, by onnxruntime.quantization.

Only everything before a node, or everything after one, can stay in fp32. A single convolution in fp32 between quantised ones
would be quantised by onnxruntime when it loads the graph, with one scale for all channels of its weights.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from bulkinfer.errors import RunError, first_line
from bulkinfer.export.onnx_import.rewrite import sort_nodes
from bulkinfer.export.variants.activation_ranges import TensorRange
from bulkinfer.model.graph_file import IR_VERSION, make_reproducible, pack

_HEAVY = ("Conv", "ConvTranspose", "Gemm", "MatMul")  # the operators of layers with weights
_FIRST = (0, 1, 2, 4, 8, 12)  # numbers of first layers in fp32, in the order tried: early layers cost the most time
_PERCENTILES = (100.0, 99.999, 99.99)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to quantise: the percentage of values inside a tensor's range, and how many first and last layers stay fp32."""

    percentile: float
    first: int
    last: int

    def __str__(self) -> str:
        ranges = "minmax" if self.percentile >= 100 else f"percentile {self.percentile:g}"
        kept = [f"{end} {count}" for end, count in (("first", self.first), ("last", self.last)) if count]
        return f"{ranges}, {' and '.join(kept)} in fp32" if kept else ranges


def op_types() -> list[str]:
    """The operators that onnxruntime quantises by default: convolutions and products, and those between them."""
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    return sorted({*QDQRegistry, *QLinearOpsRegistry})


def tensors_to_watch(model: onnx.ModelProto) -> list[str]:
    """The float tensors that a quantised graph may have to hold in int8."""
    types = set(op_types())
    values = (*model.graph.value_info, *model.graph.output, *model.graph.input)
    floats = {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    touched = (name for node in model.graph.node if node.op_type in types for name in (*node.input, *node.output))
    return [name for name in dict.fromkeys(touched) if name in floats]


def candidates(model: onnx.ModelProto) -> list[list[Candidate]]:
    """The candidates, in steps: each step keeps more layers in fp32 than the one before it, at most half of them."""
    layers = len(_layers(model))
    ends = [(0, 0), *((first, 1) for first in _FIRST)]
    return [
        [Candidate(percentile, first, last) for percentile in _PERCENTILES]
        for first, last in ends
        if not first + last or 2 * (first + last) <= layers
    ]


def _layers(model: onnx.ModelProto) -> list[int]:
    """Positions of the layers with weights among the nodes."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [
        place
        for place, node in enumerate(model.graph.node)
        if node.op_type in _HEAVY and any(name in weights for name in node.input)
    ]


def _kept(model: onnx.ModelProto, candidate: Candidate) -> list[str]:
    """Names of the nodes that stay in fp32. Nodes are sorted, so all that feed one of the first layers are among them."""
    layers, nodes = _layers(model), model.graph.node
    first = nodes[: layers[candidate.first]] if candidate.first else []
    last = nodes[layers[-candidate.last - 1] + 1 :] if candidate.last else []
    return [node.name for node in (*first, *last)]


def quantized(model: onnx.ModelProto, ranges: Mapping[str, TensorRange], candidate: Candidate) -> onnx.ModelProto:
    """The graph of one candidate in int8. Raises RunError if onnxruntime cannot quantise it."""
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    limits = {name: values.percentile(candidate.percentile) for name, values in ranges.items()}
    data = TensorsData(
        CalibrationMethod.MinMax, {name: (np.float32(low), np.float32(high)) for name, (low, high) in limits.items()}
    )
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    try:
        with _quiet():
            quantizer = QDQQuantizer(
                copied, True, False, QuantType.QInt8, QuantType.QUInt8, data, [], _kept(model, candidate), op_types(), {}
            )
            quantizer.quantize_model()
    except Exception as error:  # the classes that it raises are not documented
        raise RunError(f"onnxruntime cannot quantise the graph: {first_line(error)}") from error
    found: onnx.ModelProto = quantizer.model.model
    if not any(node.op_type == "QuantizeLinear" for node in found.graph.node):
        raise RunError("onnxruntime quantises no node of this graph, so it would be the same as in fp32")
    sort_nodes(found)  # onnxruntime appends nodes that feed others
    pack(found)
    make_reproducible(found, max(IR_VERSION, found.ir_version))
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the advice that the quantizer logs, as its result is measured anyway."""
    before: Any = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
