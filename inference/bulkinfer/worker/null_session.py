"""Stands in for a session where pictures are only to be prepared: what the loader threads do without a network behind them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bulkinfer.types import Array
from bulkinfer.worker.loader import empty_batch


class NoNetwork:
    """Takes batches as a session.Session does, at once and for nothing; its attributes mean the same."""

    load_s = 0.0
    not_pinned = ""

    def __init__(self, batch_shape: tuple[int, ...]) -> None:
        self.batch_shape, self.dtype = batch_shape, np.dtype(np.uint8)
        self.proof: dict[str, Any] = {"nodes": {}, "device": "no network", "precision": "none", "onnxruntime": "not loaded"}
        self._outputs: dict[str, Array] = {"nothing": np.zeros((batch_shape[0], 0), np.float32)}

    def new_batch(self, shape: tuple[int, ...]) -> Array:
        """Zeros, uint8."""
        return empty_batch(shape)

    def run(self, images: Array) -> dict[str, Array]:
        """No numbers for each picture."""
        assert images.shape == self.batch_shape, f"{images.shape} is not the fixed shape {self.batch_shape}"
        return self._outputs
