"""Scores out of logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def softmax(logits_NC: Array) -> Array:
    """Probabilities in float64, row by row: a row's bits do not depend on its neighbours or its place in the batch."""
    logits = logits_NC.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))
