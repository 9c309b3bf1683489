"""Probabilities from logits."""

from __future__ import annotations

import numpy as np

from bulkinfer.types import Array


def softmax(logits_NC: Array) -> Array:
    """Probabilities in float64, N x C: the bits of a row do not depend on other rows or its place in the batch."""
    logits = logits_NC.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))
