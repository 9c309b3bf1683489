"""Samples that are made up, to measure the loop without reading and decoding, or the network alone.

Shape letters: N batch, H height, W width, C channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from bulkinfer.train.data.draws import Draw, Integers, uniform
from bulkinfer.train.data.samples import Samples, Work

_COUNT, _CLASSES = 50_000, 1000  # of pictures


class _MadeUpSamples:
    """Random pixels with random labels of 1,000 classes: each picture is a stretch of one block of noise.

    Sample and epoch decide the stretch. With `once`, one batch of each size is made and used again.
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
        """Make reused batches on this device."""
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

    def faults(self, _samples: Integers, /) -> Iterator[str]:
        return iter(())

    def digest(self) -> str:
        return "made up"  # from the options alone

    def _make(self, samples: Integers, epoch: int) -> Tensor:
        length = self._size * self._size * 3
        starts = (uniform(self._seed, epoch, samples, Draw.MADE_UP) * length).astype(np.int64)
        pixels = np.array([self._noise[start : start + length] for start in starts], np.uint8)
        return torch.from_numpy(pixels.reshape(len(samples), self._size, self._size, 3))


def generated_samples(size: int, seed: int) -> Samples:
    """50,000 pictures, made again for each batch: measures the loop without reading and decoding."""
    return _MadeUpSamples(size, seed, once=False)


def synthetic_samples(size: int, seed: int) -> Samples:
    """The same batch for all of 50,000 pictures: measures the network alone."""
    return _MadeUpSamples(size, seed, once=True)
