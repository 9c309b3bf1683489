"""Random pictures in place of a data set: what the loader threads, the batches and the device do without files and decoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bulkinfer.model.recipe import Recipe
from bulkinfer.types import Facts, Record, Step
from bulkinfer.worker.metrics import Meter

_POOL_BYTES = 1 << 27  # of different pictures: beyond what the caches of most processors hold, as decoded ones would be


class Generator:
    """Stands in for files: each record is one of a few random pictures of the network's own size, copied into its slot."""

    def __init__(self, recipe: Recipe, meter: Meter) -> None:
        size_bytes = recipe.height * recipe.width * 3
        shape = (max(2, _POOL_BYTES // size_bytes), recipe.height, recipe.width, 3)
        self._images_NHWC = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        self._facts = Facts("generated", 1, recipe.width, recipe.height)
        self._meter = meter

    def load(self, record: Record, out_HWC: np.ndarray[Any, Any]) -> Facts:
        """Fill a slot, as loader.load_record does."""
        self._meter.enter("preprocess")
        out_HWC[:] = self._images_NHWC[record.number % len(self._images_NHWC)]
        return self._facts


def generated_records(step: Step) -> Iterator[Record]:
    """Records without files."""
    for number in range(step.start, step.end):
        yield Record(number, b"generated-%d" % number, b"")
