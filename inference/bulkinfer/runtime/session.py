"""An open network: input array in, named outputs out, in fixed batches; and the proof of what runs it."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Any, Protocol

import numpy as np

from bulkinfer.errors import RunError, ShapeError
from bulkinfer.runtime.onnxruntime_graph import OnnxRuntimeGraph, runtime_reason
from bulkinfer.runtime.providers import SessionSpec, entry_of


class Network(Protocol):
    """The part of Session that the main path uses; see there for the attributes."""

    proof: dict[str, Any]
    batch_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    load_s: float
    not_pinned: str

    def pin(self, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]: ...

    def run(self, images: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]: ...


class Session:
    """An open session. Any number of threads may call `run` at once; more than the spec has streams wait for each other.

    Attributes: `proof` (what runs which nodes, and how), `batch_shape` and `dtype` of the only input, `output_shapes` by name
    (without the batch axis), `load_s` (seconds it took to open), `not_pinned` (see pin).
    """

    def __init__(self, spec: SessionSpec, output_names: list[str]) -> None:
        start = time.perf_counter()
        entry = entry_of(spec.provider, spec.backend)
        self._graph = (entry.open_graph or OnnxRuntimeGraph)(spec)
        self.proof, self.batch_shape, self.dtype = self._graph.proof, self._graph.input_shape, self._graph.dtype
        self._device, self._pin, self.not_pinned = spec.device, entry.pin, ""
        self._output_names = output_names
        shapes = self._graph.output_shapes
        self.output_shapes: dict[str, tuple[int, ...]] = {name: shapes[name][1:] for name in output_names}
        self._shapes = [(self.batch_shape[0], *self.output_shapes[name]) for name in output_names]
        self.load_s = time.perf_counter() - start

    def pin(self, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The same batch, to be filled and passed to `run`, with its pages locked if the provider can copy from them.

        If they cannot be locked, the runtime copies through a buffer of its own, and `not_pinned` says why.
        """
        if self._pin is not None:
            self.not_pinned = self.not_pinned or self._pin(images, self._device)
        return images

    def run(self, images: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs by name for a full batch of `batch_shape`; row i belongs to picture i.

        Raises what the runtime raises, and ShapeError for an output of another shape than the graph declares: the runtime lets
        operators such as NonMaxSuppression decide sizes by what is in the pictures.
        """
        assert images.shape == self.batch_shape, f"{images.shape} is not the fixed shape {self.batch_shape}"
        values = self._graph.run(images, self._output_names)
        if [found.shape for found in values] != self._shapes:
            self._check_shapes(values)
        return dict(zip(self._output_names, values, strict=True))

    def _check_shapes(self, values: list[np.ndarray[Any, Any]]) -> None:
        """Raises ShapeError if an output has other sizes than those that the graph declares; it may leave some open."""
        for name, found, declared in zip(self._output_names, values, self._shapes, strict=True):
            if found.ndim != len(declared) or any(
                isinstance(there, int) and there != size for there, size in zip(declared, found.shape, strict=True)
            ):
                raise ShapeError(f"{name} has the shape {list(found.shape)}, its graph declares {list(declared)}: "
                                 "its size depends on the pictures")  # fmt: skip


def warm_up(session: Network, streams: int, seconds: float, *, most_runs: int = sys.maxsize) -> float:
    """Run batches of zeros in all streams: once to warm up, then for `seconds`; returns pictures per second.

    Each stream ends earlier after `most_runs`, which are enough for a rate that need not be exact.

    With `seconds` 0 only the warm-up runs, and the rate is its rate (an underestimate). Raises RunError if the network cannot
    run on zeros: failed pictures and the padding of the last batch are zeros.
    """
    images = np.zeros(session.batch_shape, session.dtype)

    def in_all_streams(until: float) -> int:
        counts = [0] * streams
        errors: list[Exception] = []

        def one_stream(index: int) -> None:
            try:
                while not counts[index] or (counts[index] < most_runs and time.perf_counter() < until):
                    with contextlib.suppress(ShapeError):  # the network runs; pictures that are not black may fit
                        session.run(images)
                    counts[index] += 1
            except Exception as error:  # onnxruntime documents no classes
                errors.append(error)

        threads = [threading.Thread(target=one_stream, args=(index,), daemon=True) for index in range(streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors and isinstance(errors[0], AssertionError):
            raise errors[0]  # a fault of this program, not of the network
        if errors:
            raise RunError(f"the network fails on its first batch, of zeros: {runtime_reason(errors[0])}") from errors[0]
        return sum(counts)

    start = time.perf_counter()
    runs = in_all_streams(start)
    if seconds:
        start = time.perf_counter()
        runs = in_all_streams(start + seconds)
    return runs * session.batch_shape[0] / (time.perf_counter() - start)


def describe_proof(proof: dict[str, Any]) -> str:
    """The proof as one sentence: which provider runs how many nodes of the graph, in which precision."""
    nodes = ", ".join(f"{count} nodes on {name}" for name, count in sorted(proof["nodes"].items()))
    types = ", ".join(f"{count} in {name}" for name, count in proof.get("nodes_by_type", {}).items())
    runtime = next(f"{name} {proof[name]}" for name in ("onnxruntime", "openvino") if name in proof)
    cached = f", optimised before (graph cache, entry {entry})" if (entry := proof.get("cached_graph")) else ""
    cached += f"; the cached graph is not used: {reason}" if (reason := proof.get("cache_not_used")) else ""
    return f"{nodes} ({proof['device']}), {proof['precision']}{f' ({types})' if types else ''}, {runtime}{cached}"
