"""Tensors of the protocol: names of types, and their forms as bytes.

Shape letters: N pictures.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bulkinfer.serve.refusals import InvalidError
from bulkinfer.types import Array

BYTES = "BYTES"
DTYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    **{f"UINT{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}
_NAMES = {np.dtype(kind): name for name, kind in DTYPES.items()}
_LENGTH = struct.Struct("<I")  # before each element of BYTES


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor with its values: an array of `shape`, or for BYTES a list of byte strings in row-major order."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Array | list[bytes]


def datatype_of(dtype: np.dtype[Any]) -> str:
    """The name of a numpy type in the protocol."""
    return _NAMES[dtype]


def tensor_of(name: str, values: Array | list[bytes], shape: tuple[int, ...] | None = None) -> Tensor:
    """The tensor of an array, or of byte strings; of those `shape` is by default one axis."""
    if isinstance(values, list):
        return Tensor(name, BYTES, shape or (len(values),), values)
    return Tensor(name, datatype_of(values.dtype), values.shape, values)


def checked_shape(name: str, shape: Sequence[Any]) -> tuple[int, ...]:
    """The shape as integers. Raises RefusedError for anything else."""
    if not all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in shape):
        raise InvalidError(f"input {name}: the shape {list(shape)} is no list of whole numbers from 0 on")
    return tuple(shape)


def from_bytes(name: str, datatype: str, shape: tuple[int, ...], data: bytes | memoryview) -> Tensor:
    """The tensor whose values are `data`: numbers in little-endian order, elements of BYTES with their lengths before them.

    Raises RefusedError if the type is unknown, or the bytes are not those of this type and shape.
    """
    if datatype == BYTES:
        return Tensor(name, BYTES, shape, _elements(name, math.prod(shape), data))
    dtype = known_dtype(name, datatype)
    wanted = math.prod(shape) * dtype.itemsize
    if len(data) != wanted:
        raise InvalidError(f"input {name}: {datatype} of shape {list(shape)} has {wanted} bytes, {len(data)} came")
    return Tensor(name, datatype, shape, np.frombuffer(data, dtype).reshape(shape))


def known_dtype(name: str, datatype: str) -> np.dtype[Any]:
    """The numpy type. Raises RefusedError with the known ones for another word."""
    if datatype not in DTYPES:
        raise InvalidError(f"input {name}: the datatype {datatype!r} is unknown; known are {', '.join([*DTYPES, BYTES])}")
    dtype: np.dtype[Any] = np.dtype(DTYPES[datatype])
    return dtype


def _elements(name: str, count: int, data: bytes | memoryview) -> list[bytes]:
    found: list[bytes] = []
    view, at = memoryview(data), 0
    while at < len(view) and len(found) < count:
        begin = at + _LENGTH.size
        end = begin + _LENGTH.unpack_from(view, at)[0] if begin <= len(view) else begin
        if end > len(view):
            raise InvalidError(f"input {name}: element {len(found)} of BYTES ends behind the {len(view)} bytes that came")
        found.append(bytes(view[begin:end]))
        at = end
    if len(found) != count or at != len(view):
        raise InvalidError(
            f"input {name}: {count} elements of BYTES are declared, other bytes came: each has its length before it"
        )
    return found


def to_bytes(tensor: Tensor) -> bytes:
    """The values as bytes, as from_bytes takes them."""
    if isinstance(tensor.values, list):
        return joined(tensor.values)
    return tensor.values.tobytes()


def joined(elements: Iterable[bytes]) -> bytes:
    """Elements of BYTES, each with its length before it."""
    return b"".join(part for element in elements for part in (_LENGTH.pack(len(element)), element))
