"""The columns of rows that hold classes, as arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bulkinfer.errors import UsageError
from bulkinfer.insight.saving import again_with
from bulkinfer.results.reader import Results
from bulkinfer.types import Array, printable_path


def keeps_classes(results: Results) -> bool:
    """True if the job saves the best classes of each row."""
    return "top_k" in results.job["identity"]


def require_classes(results: Results) -> None:
    """Raises UsageError if the rows of a job keep no classes."""
    if not keeps_classes(results):
        raise UsageError(f"{printable_path(results.output)} keeps no best classes: {again_with(results, 'topk')}")


def saved_outputs(results: Results) -> list[str]:
    """What the job saves of each row, as --save names it, but for the classes."""
    return [name for name in results.job["identity"].get("save", ()) if name not in ("topk", "none")]


def matrix(column: pa.ChunkedArray) -> Array:
    """A column of lists of one length as rows x classes; there must be a row, and no list may be null."""
    flat = pc.list_flatten(column).to_numpy()
    assert len(flat) % len(column) == 0, "rows keep one number of classes"
    return np.asarray(flat).reshape(len(column), -1)
