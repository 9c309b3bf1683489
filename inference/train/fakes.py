"""Pictures made up: `generated` on the host, new ones for each batch, and `synthetic` on the device, the same one always."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from inference.train.data import Samples, Work

_COUNT, _CLASSES = 50_000, 1000


class _Made:
    """Random pixels with random labels of 1,000 classes; `once` makes one batch and gives it again and again."""

    def __init__(self, size: int, seed: int, *, once: bool) -> None:
        random = np.random.default_rng(seed)
        self.labels = random.integers(0, _CLASSES, _COUNT)
        self.class_names = tuple(f"class {number}" for number in range(_CLASSES))
        self._size, self._once, self._random = size, once, random
        self._kept: dict[int, Tensor] = {}

    def batches(self, work: Iterable[Work]) -> Iterator[tuple[Work, Tensor]]:
        for item in work:
            count = len(item.samples)
            if not self._once or count not in self._kept:
                pixels = self._random.integers(0, 256, (count, self._size, self._size, 3), np.uint8)
                self._kept[count] = torch.from_numpy(pixels)
            yield item, self._kept[count]


def generated_samples(size: int, seed: int) -> Samples:
    """50,000 pictures whose pixels are drawn anew for each batch: all of the loop but reading and decoding."""
    return _Made(size, seed, once=False)


def synthetic_samples(size: int, seed: int) -> Samples:
    """50,000 times the same batch: what the network alone can do."""
    return _Made(size, seed, once=True)
