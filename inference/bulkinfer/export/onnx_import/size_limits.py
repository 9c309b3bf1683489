"""Graphs that are larger than they look are refused before they take memory: by lengths in the file, and inferred shapes."""

from __future__ import annotations

import math
from typing import IO

import numpy as np
import onnx
from onnx import helper

from bulkinfer.errors import UsageError

LARGEST_TENSOR = 1 << 30  # bytes; no network for pictures has such a tensor for a single one
_LARGEST_DENSE = 1 << 28  # bytes of sparse weights once they are dense
_LENGTHS, _SKIPPED = 2, {1: 8, 5: 4}  # wire types of protobuf: a length and bytes; so many bytes
_GRAPH_FIELD = 7  # of a ModelProto
_LARGEST_FIELD_NUMBER = 100  # messages of onnx have smaller ones


def is_whole(file: IO[bytes], size: int) -> bool:
    """True if the lengths of a model and of its graph add up to the `size` bytes of the file; reads hardly any of them."""
    file.seek(0)
    return _fields_fit(file, size, inner=_GRAPH_FIELD)


def _fields_fit(file: IO[bytes], end: int, inner: int = 0) -> bool:
    """True if protobuf fields fill the file up to `end`, and field `inner` too."""
    while (start := file.tell()) < end:
        key = _varint(file)
        wire, number = key & 7, key >> 3
        if key < 0 or not 1 <= number <= _LARGEST_FIELD_NUMBER or wire not in (0, _LENGTHS, *_SKIPPED):
            return False
        length = _SKIPPED.get(wire, 0) or _varint(file)
        if length < 0:
            return False
        if wire == _LENGTHS and number == inner and not _fields_fit(file, min(end, file.tell() + length)):
            return False
        if (wire == _LENGTHS and number != inner) or wire in _SKIPPED:
            file.seek(length, 1)
        assert file.tell() > start, "at least the key was read"
    return file.tell() == end


def _varint(file: IO[bytes]) -> int:
    """The next number of variable length; -1 if there is none."""
    value = 0
    for place in range(10):
        byte = file.read(1)
        if not byte:
            return -1
        value |= (byte[0] & 127) << (7 * place)
        if byte[0] < 128:
            return value
    return -1


def check_sparse(model: onnx.ModelProto, name: str) -> None:
    """Raises UsageError for sparse weights that would take much memory once they are dense, as the runtime makes them."""
    for sparse in model.graph.sparse_initializer:
        if (size := _bytes(list(sparse.dims), sparse.values.data_type)) > _LARGEST_DENSE:
            raise UsageError(f"--onnx: {name}: the sparse weights {sparse.values.name} have {size:,} bytes once dense; "
                             f"{_LARGEST_DENSE:,} are supported")  # fmt: skip


def check_tensors(model: onnx.ModelProto, name: str) -> None:
    """Raises UsageError for a graph with a tensor of more than LARGEST_TENSOR bytes, as far as shapes can be inferred."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    for value in inferred.graph.value_info:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim if dim.dim_value > 0]
        if (size := _bytes(dims, value.type.tensor_type.elem_type)) > LARGEST_TENSOR:
            raise UsageError(f"--onnx: {name} makes {value.name}, a tensor of {size:,} bytes; {LARGEST_TENSOR:,} are supported")


def _bytes(dims: list[int], kind: int) -> int:
    try:
        item = np.dtype(helper.tensor_dtype_to_np_dtype(kind)).itemsize
    except KeyError:
        item = 1
    return math.prod(dims) * item
