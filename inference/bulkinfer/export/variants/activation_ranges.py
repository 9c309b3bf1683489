"""The range of values that every tensor of a graph takes on real pictures, which quantising needs to know.

The collectors of onnxruntime keep every activation of every picture, or sort all of them into bins; here each tensor has a
histogram of fixed size over a part of its values. Shape letters: N pictures, H height, W width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from bulkinfer.errors import UsageError
from bulkinfer.model.graph_checks import cpu_session

_BINS = 8192  # a quarter to a half of them are in use, because the range is a power of two
_VALUES_PER_PICTURE = 1 << 16  # so many values of a tensor go into its histogram; its extremes are of all values
_FEED_BYTES = 1 << 18  # of pictures in one run: their activations are a thousand times as large


class TensorRange:
    """Extremes and histogram of one tensor, collected batch by batch."""

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self._reach = 0.0  # the histogram goes from -reach to reach
        self._counts = np.zeros(_BINS, np.int64)

    def add(self, values: NDArray[Any], pictures: int) -> None:
        """Add the tensor's values for a batch of `pictures`. Raises UsageError for values that are not finite."""
        flat = values.reshape(-1).astype(np.float32, copy=False)
        if not flat.size:
            return
        low, high = float(flat.min()), float(flat.max())
        if not np.isfinite([low, high]).all():
            raise UsageError("values inside the network are not finite on the calibration pictures: int8 cannot hold them")
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._widen(max(abs(low), abs(high), 1e-30))
        some = flat[:: max(1, flat.size // (pictures * _VALUES_PER_PICTURE))]
        places = ((some + self._reach) * (_BINS / 2 / self._reach)).astype(np.int64)
        self._counts += np.bincount(np.clip(places, 0, _BINS - 1), minlength=_BINS)

    def _widen(self, largest: float) -> None:
        """Double the histogram's reach until it holds `largest`: two bins become one, so no value is counted again."""
        if not self._reach:
            self._reach = float(2.0 ** np.ceil(np.log2(largest)))
        while largest > self._reach:
            counts = np.zeros(_BINS, np.int64)
            counts[_BINS // 4 : _BINS // 4 * 3] = self._counts.reshape(-1, 2).sum(axis=1)
            self._counts, self._reach = counts, self._reach * 2

    def percentile(self, percent: float) -> tuple[float, float]:
        """The range that holds `percent` of the values, with the rest cut off evenly on both sides; 100: the extremes."""
        if percent >= 100:
            return self.low, self.high
        share, cut = np.cumsum(self._counts) / self._counts.sum(), (100 - percent) / 200
        edges = np.linspace(-self._reach, self._reach, _BINS + 1)
        low = edges[int(np.searchsorted(share, cut))]
        high = edges[min(int(np.searchsorted(share, 1 - cut)) + 1, _BINS)]
        return max(float(low), self.low), min(float(high), self.high)


def collect(
    graph: onnx.ModelProto, names: Sequence[str], feeds: Iterator[NDArray[Any]], folder: Path
) -> dict[str, TensorRange]:
    """The ranges of the tensors `names` over all `feeds` of the one input; `folder` is for temporary files."""
    shown = onnx.ModelProto()
    shown.CopyFrom(graph)
    outputs = {output.name for output in shown.graph.output}
    inputs = {value.name for value in shown.graph.input}
    known = {value.name: value for value in shown.graph.value_info}
    shown.graph.output.extend(known[name] for name in names if name not in outputs | inputs)
    path = folder / "shown.onnx"
    onnx.save(shown, path)
    session = cpu_session(str(path))
    wanted = [name for name in names if name not in inputs]
    ranges = {name: TensorRange() for name in names}
    for feed in feeds:
        for name in set(names) & inputs:
            ranges[name].add(feed, len(feed))
        for name, values in zip(wanted, session.run(wanted, {session.get_inputs()[0].name: feed}), strict=True):
            ranges[name].add(values, len(feed))
    return ranges


def batches(images: NDArray[Any], batch_size: int) -> Iterator[NDArray[Any]]:
    """The pictures in batches of `batch_size`, 0: of a size that needs little memory.

    A fixed batch is filled up with copies of its last picture. That changes neither extreme, and a percentile hardly at all.
    """
    size = batch_size or max(1, _FEED_BYTES // images[0].nbytes)
    for start in range(0, len(images), size):
        part = images[start : start + size]
        if batch_size and len(part) < size:
            part = np.concatenate([part, np.repeat(part[-1:], size - len(part), axis=0)])
        yield part
