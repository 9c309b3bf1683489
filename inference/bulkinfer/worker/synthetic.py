"""Stand-ins for ends of the main path, to measure the rest of it: pictures without files, input without loading, no network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from bulkinfer.model.recipe import Recipe
from bulkinfer.types import Array, Batch, Facts, Record, Step
from bulkinfer.worker.metrics import Meter

_POOL_BYTES = 1 << 27  # of different pictures: more than the caches of most processors hold, as decoded pictures would be


class Generator:
    """In place of files and the decoder: random pictures of the network's own size are copied into their slots."""

    def __init__(self, recipe: Recipe, meter: Meter) -> None:
        size_bytes = recipe.height * recipe.width * 3
        shape = (max(2, _POOL_BYTES // size_bytes), recipe.height, recipe.width, 3)
        self._images_NHWC = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        self._facts = Facts("generated", 1, recipe.width, recipe.height)
        self._meter = meter

    def load(self, record: Record, out_HWC: Array) -> Facts:
        """Fill a slot, as loader.load_record does. The record's number decides which picture it gets."""
        self._meter.enter("preprocess")
        out_HWC[:] = self._images_NHWC[record.number % len(self._images_NHWC)]
        return self._facts


def generated_records(step: Step) -> Iterator[Record]:
    """The records of a step, without files."""
    for number in range(step.start, step.end):
        yield Record(number, b"generated-%d" % number, b"")


class SyntheticLoader:
    """In place of the Loader: the same batch without records over and over, so that only the device works."""

    def __init__(self, steps: Iterable[Step], *, new_rows: Callable[[Step], Any], batch: Array) -> None:
        self._batches = self._assign(steps, new_rows, batch)
        self._lock = threading.Lock()
        self._stopping = False

    def _assign(self, steps: Iterable[Step], new_rows: Callable[[Step], Any], images: Array) -> Iterator[Batch]:
        size = len(images)
        for step in steps:
            rows = new_rows(step)
            for offset in range(0, len(step), size):
                if self._stopping:
                    return
                yield Batch(images, [], [], rows=rows, offset=offset, count=min(size, len(step) - offset))

    def next_ready(self) -> Batch | None:
        """The next batch; None when there are no more."""
        with self._lock:
            return next(self._batches, None)

    def recycle(self, batch: Batch) -> None:
        """Do nothing: the input is never written again."""

    def stop(self) -> None:
        """Begin no further batch."""
        self._stopping = True


def random_input(batch_shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A random batch in the graph's own type, uint8 or float in -1..1, so that nothing has to be converted."""
    pixels = np.random.default_rng(0).integers(0, 256, batch_shape, np.uint8)
    return pixels if dtype == np.uint8 else (pixels / np.float32(127.5) - 1).astype(dtype)


class NoNetwork:
    """In place of a session.Session: takes batches and computes nothing. Its attributes mean the same."""

    load_s = 0.0
    not_pinned = ""

    def __init__(self, batch_shape: tuple[int, ...]) -> None:
        self.batch_shape, self.dtype = batch_shape, np.dtype(np.uint8)
        self.proof: dict[str, Any] = {"nodes": {}, "device": "no network", "precision": "none", "onnxruntime": "not loaded"}
        self._outputs: dict[str, Array] = {"nothing": np.zeros((batch_shape[0], 0), np.float32)}

    def pin(self, images: Array) -> Array:
        """The same batch: nothing copies from it."""
        return images

    def run(self, images: Array) -> dict[str, Array]:
        """One output, of no numbers per picture: float32 N x 0."""
        assert images.shape == self.batch_shape, f"{images.shape} is not the fixed shape {self.batch_shape}"
        return self._outputs
