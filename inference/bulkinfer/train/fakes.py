"""Pictures made up: `generated`, new ones for each batch, and `synthetic`, the same ones always."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from bulkinfer.train.data import Samples, Work
from bulkinfer.train.draws import Draw, Integers, uniform

_COUNT, _CLASSES = 50_000, 1000


class _Made:
    """Random pixels with random labels of 1,000 classes: a stretch of one block of noise, drawn by sample and epoch.

    `once` makes one batch of each size, and gives it again and again.
    """

    def __init__(self, size: int, seed: int, *, once: bool) -> None:
        random = np.random.default_rng(seed)
        self.labels = random.integers(0, _CLASSES, _COUNT)
        self.class_names = tuple(f"class {number}" for number in range(_CLASSES))
        self._size, self._seed, self._once = size, seed, once
        self._noise = random.integers(0, 256, 2 * size * size * 3, np.uint8)
        self._kept: dict[int, Tensor] = {}
        self._device = torch.device("cpu")

    def move_to(self, device: torch.device) -> None:
        """Keep batches that are made once on this device."""
        self._device = device if self._once else self._device

    def batches(self, work: Iterable[Work]) -> Iterator[tuple[Work, Tensor]]:
        """Each micro batch as uint8 N x H x W x C, in order."""
        for item in work:
            if not self._once:
                yield item, self._make(item.samples, item.epoch or 0)
                continue
            count = len(item.samples)
            if count not in self._kept:
                self._kept[count] = self._make(np.arange(count), 0).to(self._device)
            yield item, self._kept[count]

    def _make(self, samples: Integers, epoch: int) -> Tensor:
        length = self._size * self._size * 3
        starts = (uniform(self._seed, epoch, samples, Draw.MADE_UP) * length).astype(np.int64)
        pixels = np.array([self._noise[start : start + length] for start in starts], np.uint8)
        return torch.from_numpy(pixels.reshape(len(samples), self._size, self._size, 3))


def generated_samples(size: int, seed: int) -> Samples:
    """50,000 pictures made anew for each batch: all of the loop but reading and decoding."""
    return _Made(size, seed, once=False)


def synthetic_samples(size: int, seed: int) -> Samples:
    """50,000 times the same batch: what the network alone can do."""
    return _Made(size, seed, once=True)
