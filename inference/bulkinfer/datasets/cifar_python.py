"""Files of CIFAR in python form: pickled dicts of an array of rows and a list of labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bulkinfer.datasets.pickled_arrays import read_pickled_dict
from bulkinfer.errors import UsageError
from bulkinfer.types import Array

_PICTURE_BYTES = 3072


def read_rows(path: Path, label_key: str) -> tuple[Array, Array]:
    """Pictures (N x 3072, uint8, planar) and int64 labels. Raises UsageError saying what in the file is wrong."""
    value = read_pickled_dict(path)
    rows = value.get("data")
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != _PICTURE_BYTES:
        raise UsageError(f"{path} is damaged: its 'data' is no array of N x {_PICTURE_BYTES} bytes")
    if not len(rows):
        raise UsageError(f"{path} holds no pictures")
    labels = _labels(value.get(label_key))
    if labels is None:
        raise UsageError(f"{path} is damaged: its {label_key!r} is no list of whole numbers")
    if len(labels) != len(rows):
        raise UsageError(f"{path} is damaged: it holds {len(rows):,} pictures and {len(labels):,} labels")
    return rows, labels


def _labels(value: Any) -> Array | None:
    """Labels as int64; None if they are no whole numbers. What is too large for int64 becomes -1, which no label is."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu":
        return value.astype(np.int64)
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        return None
    return np.array([item if abs(item) < 1 << 62 else -1 for item in value], np.int64)


def read_names(path: Path, key: str) -> tuple[str, ...]:
    """The names of the classes."""
    names = read_pickled_dict(path).get(key)
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise UsageError(f"{path} is damaged: its {key!r} is no list of names")
    return tuple(name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name for name in names)
