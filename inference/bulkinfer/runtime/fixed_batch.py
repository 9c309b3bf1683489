"""Any number of pictures through a network of fixed batch: pads, splits, and masks what is not finite.

Shape letters: N pictures, D values per picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bulkinfer.errors import ShapeError

Array = NDArray[Any]
RunBatch = Callable[[Array], Mapping[str, Array]]


class FixedBatch:
    """A network that runs `size` pictures at a time, made to take any number of them.

    `run_batch` takes an array of exactly `size` pictures and returns the outputs by name, each with `size` rows; row i belongs
    to picture i. At most `per_run` pictures (0: `size`) share a run. The free slots hold `padding`: one picture (1 x ...) of
    the type that is fed, or None for copies of the last picture of the run; by default zeros. Pictures take the first slots
    of a batch; with `spread` they lie evenly over it. It keeps no state between calls: as many threads may call it as may
    call `run_batch`.
    """

    def __init__(
        self, run_batch: RunBatch, size: int, *, padding: Array | float | None = 0, per_run: int = 0, spread: bool = False
    ) -> None:
        self._run_batch, self._size, self._padding, self._spread = run_batch, size, padding, spread
        self._per_run = per_run or size
        assert 0 < self._per_run <= size, (per_run, size)

    def run(self, images: Array) -> dict[str, Array]:
        """The outputs by name, N rows each, for N pictures; without pictures, one batch of padding gives the shapes.

        Raises what `run_batch` raises, and ShapeError if the shape of a row changes from run to run.
        """
        collected: dict[str, list[Array]] = {}
        for outputs in self._runs(images):
            for name, values in outputs.items():
                parts = collected.setdefault(name, [])
                if parts and values.shape[1:] != parts[0].shape[1:]:
                    raise ShapeError(f"the size of {name} depends on the picture: {_rows(parts[0])}, then {_rows(values)}")
                parts.append(values)
        return {name: np.concatenate(parts) for name, parts in collected.items()}

    def finite_values(self, images: Array, names: Sequence[str]) -> Array:
        """The outputs `names` side by side, N x D; NaN for a picture for which any output of the network is not finite.

        Raises what `run_batch` raises.
        """
        parts = []
        for outputs in self._runs(images):
            rows = {name: values.reshape(len(values), -1) for name, values in outputs.items()}
            is_finite = np.all([np.isfinite(values).all(axis=1) for values in rows.values()], axis=0)
            parts.append(np.where(is_finite[:, None], np.concatenate([rows[name] for name in names], axis=1), np.nan))
        return np.concatenate(parts)

    def _runs(self, images: Array) -> Iterator[dict[str, Array]]:
        """The outputs of each run, without the rows of its padding."""
        for start in range(0, max(len(images), 1), self._per_run):
            part = images[start : start + self._per_run]
            slots = self._slots(len(part))
            outputs = self._run_batch(self._fill(part, slots))
            for name, values in outputs.items():
                if not values.ndim or len(values) != self._size:
                    raise ShapeError(f"{name} has the shape {list(values.shape)} for a batch of {self._size}")
            yield {name: values[slots] for name, values in outputs.items()}

    def _slots(self, count: int) -> NDArray[np.intp] | slice:
        """Where so many pictures lie in a batch."""
        return np.linspace(0, self._size - 1, count).round().astype(np.intp) if self._spread else slice(count)

    def _fill(self, part: Array, slots: NDArray[np.intp] | slice) -> Array:
        """A full batch: the pictures in their slots, padding in the others."""
        if len(part) == self._size:
            return part
        batch = np.zeros((self._size, *part.shape[1:]), part.dtype)
        if self._padding is not None:
            batch[:] = self._padding
        elif len(part):
            batch[:] = part[-1:]
        batch[slots] = part
        return batch


def _rows(values: Array) -> str:
    """The shape of a row, for messages."""
    return f"rows of {list(values.shape[1:])}"
