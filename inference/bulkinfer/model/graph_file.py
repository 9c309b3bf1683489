"""A graph as reproducible bytes, free of traces of the host, with its large tensors in one block. Imports no torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data

from bulkinfer.model.graph_checks import Golden

IR_VERSION = 8  # every onnxruntime since 1.14 and the OpenVINO plugin read it
EXTERNAL_BYTES = 1024  # larger tensors go to the weights file; smaller ones (shapes, scales) stay where tools expect them
ALIGNMENT_BYTES = 4096  # page size: the runtime maps the file


@dataclass(frozen=True)
class Export:
    """A serialised graph that names `weights_file` for its large tensors, the bytes of that file, and golden outputs."""

    graph: bytes
    weights: bytes
    weights_file: str
    golden: Golden
    num_parameters: int


def move_weights_out(model: onnx.ModelProto) -> tuple[bytes, str]:
    """Cut large tensors out of `model`; returns their bytes and the name of the file for them.

    The name contains the hash of the bytes, so a folder can hold old and new weights at once: a new export never replaces the
    weights of a graph that is in use.
    """
    block = bytearray()
    moved: list[tuple[onnx.TensorProto, int]] = []
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) >= EXTERNAL_BYTES:
            block.extend(bytes(-len(block) % ALIGNMENT_BYTES))
            moved.append((tensor, len(block)))
            block.extend(tensor.raw_data)
    weights = bytes(block)
    file = f"weights-{hashlib.sha256(weights).hexdigest()[:16]}.bin"
    for tensor, offset in moved:
        set_external_data(tensor, file, offset=offset, length=len(tensor.raw_data))
        tensor.ClearField("raw_data")
    return weights, file


def pack(model: onnx.ModelProto) -> None:
    """Store every constant as raw bytes, which can go to the weights file."""
    for tensor in model.graph.initializer:
        if not tensor.HasField("raw_data"):
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))


def make_reproducible(model: onnx.ModelProto, ir_version: int = IR_VERSION) -> None:
    """Remove what differs between hosts (paths in metadata and doc strings) and set conservative versions."""
    _strip(model)
    model.ir_version = ir_version
    model.producer_name, model.producer_version = "bulkinfer", ""
    del model.graph.value_info[:]  # intermediate shapes of a free batch: any runtime infers them again


def _strip(message: Any) -> None:
    """Clear metadata_props and doc_string of a protobuf message and of everything in it."""
    for field in message.DESCRIPTOR.fields:
        if field.name in ("metadata_props", "doc_string"):
            message.ClearField(field.name)
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                _strip(part)
