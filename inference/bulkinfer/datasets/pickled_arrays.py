"""Reads a pickle of plain values and numeric arrays, and nothing else: no name in it is ever imported or called.

For the names in numpy's pickles (an array, its type, the functions that rebuild it) there are stand-ins here, which check
their arguments. Any other name is refused.
"""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from bulkinfer.datasets.types import open_regular
from bulkinfer.errors import UsageError, first_line

_CODES = {"b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"}


class _Type:
    """Stands for numpy.dtype: a numeric type and, set later, its byte order."""

    def __init__(self, code: Any, *_flags: Any) -> None:
        text = code.decode("ascii") if isinstance(code, bytes) else code
        bare = text.lstrip("<>|=") if isinstance(text, str) else None
        if bare not in _CODES:
            raise pickle.UnpicklingError(f"an array of type {code!r}")
        self.dtype = np.dtype(bare)

    def __setstate__(self, state: Any) -> None:
        order: Any = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """Stands for numpy.ndarray; `value` is the array once its state is set."""

    value: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: Any) -> None:
        _version, shape, kind, is_fortran, data = state
        self.fill(data, kind, shape, "F" if is_fortran else "C")

    def fill(self, data: Any, kind: Any, shape: Any, order: str) -> None:
        if isinstance(data, str):
            data = data.encode("latin1")
        if not isinstance(data, bytes | bytearray) or not isinstance(kind, _Type):
            raise pickle.UnpicklingError("an array that does not hold plain numbers")
        if math.prod(shape) * kind.dtype.itemsize != len(data):
            raise pickle.UnpicklingError(f"an array of shape {tuple(shape)} with {len(data):,} bytes")
        self.value = np.frombuffer(data, kind.dtype).reshape(shape, order="F" if order == "F" else "C")


def _reconstruct(*_words: Any) -> _Array:
    return _Array()


def _from_buffer(data: Any, kind: Any, shape: Any, order: Any) -> _Array:
    made = _Array()
    made.fill(data, kind, shape, order)
    return made


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"text in {encoding!r}")
    return text.encode("latin1")


def _bytes(data: Any) -> bytes:
    if not isinstance(data, bytes | bytearray):  # a number would be taken for a size
        raise pickle.UnpicklingError(f"bytes made of {type(data).__name__}")
    return bytes(data)


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
    ("builtins", "bytearray"): _bytes,
    ("__builtin__", "bytearray"): _bytes,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which has no place in a data set")
        return _STAND_INS[module, name]


def read_pickled_dict(path: Path) -> dict[str, Any]:
    """The dict in a pickle file, with text keys and numpy arrays. Raises UsageError that names the file and the fault."""
    with open_regular(path) as file:
        try:
            value = _Unpickler(file, encoding="bytes").load()
            rest = file.read(1)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # a broken pickle raises nearly anything
            raise UsageError(f"{path} is damaged: it cannot be read as a pickle of numbers ({first_line(error)})") from None
    if rest:
        raise UsageError(f"{path} is damaged: bytes follow the end of the pickle")
    if not isinstance(value, dict):
        raise UsageError(f"{path} is damaged: it does not hold a dict")
    return {_text(key): item.value if isinstance(item, _Array) else item for key, item in value.items()}


def _text(key: Any) -> str:
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)
