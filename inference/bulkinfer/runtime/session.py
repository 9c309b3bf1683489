"""One network on one device: fixed-batch input in, named outputs out."""

from __future__ import annotations

import threading
import time
from typing import Any, Protocol

import numpy as np

from bulkinfer.errors import RunError, UsageError, first_line
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec, open_session, runtime

_DTYPES = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32}


class Network(Protocol):
    """What the main path asks of a session; the attributes are Session's."""

    proof: dict[str, Any]
    batch_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    load_s: float
    not_pinned: str

    def new_batch(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]: ...

    def run(self, images: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]: ...


class Session:
    """An open session. `run` may be called from as many threads at once as the spec has streams.

    Attributes: `proof` (what ran where, see providers.prove), `batch_shape` and `dtype` of the one input, `output_shapes`
    by name (without the batch), `load_s` seconds it took to open.
    """

    def __init__(self, spec: SessionSpec, output_names: list[str]) -> None:
        start = time.perf_counter()
        self._session, self.proof = open_session(spec)
        self._memory, self._device = PROVIDERS[spec.provider].memory, spec.device
        self._pin, self.not_pinned = PROVIDERS[spec.provider].pin, ""
        self._bound = threading.local()  # a binding holds the input of one run: each stream has its own
        (graph_input,) = self._session.get_inputs()
        if graph_input.type not in _DTYPES:
            raise UsageError(f"{spec.graph}: input type {graph_input.type} is not one of {', '.join(_DTYPES)}")
        self._input_name: str = graph_input.name
        self._output_names = output_names
        self.batch_shape: tuple[int, ...] = tuple(graph_input.shape)
        self.dtype = np.dtype(_DTYPES[graph_input.type])
        shapes = {output.name: tuple(output.shape[1:]) for output in self._session.get_outputs()}
        self.output_shapes: dict[str, tuple[int, ...]] = {name: shapes[name] for name in output_names}
        self.load_s = time.perf_counter() - start

    def new_batch(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Zeros, uint8, for pictures that `run` will get: in pages that the device can fetch from, where the provider can that.

        Where that fails, copies make a detour, and `not_pinned` says why.
        """
        images = np.zeros(shape, np.uint8)
        if self._pin is not None:
            self.not_pinned = self.not_pinned or self._pin(images, self._device)
        return images

    def run(self, images: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Outputs by name for a full batch of `batch_shape`; row i belongs to picture i. Raises what the runtime raises."""
        assert images.shape == self.batch_shape, f"{images.shape} is not the fixed shape {self.batch_shape}"
        if self._memory:
            values = self._run_bound(images)
        else:
            values = self._session.run(self._output_names, {self._input_name: images})
        return dict(zip(self._output_names, values, strict=True))

    def _run_bound(self, images: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """By way of an input that stays on the device: it is allocated once a stream, not once a run."""
        bound = self._bound
        if not hasattr(bound, "binding"):
            make = runtime().OrtValue.ortvalue_from_shape_and_type
            bound.input = make(self.batch_shape, self.dtype, self._memory, self._device)
            bound.binding = self._session.io_binding()
            bound.binding.bind_ortvalue_input(self._input_name, bound.input)
            for name in self._output_names:
                bound.binding.bind_output(name, "cpu")
        bound.input.update_inplace(images)
        self._session.run_with_iobinding(bound.binding)
        outputs: list[np.ndarray[Any, Any]] = bound.binding.copy_outputs_to_cpu()
        return outputs


def warm_up(session: Network, streams: int, seconds: float) -> float:
    """Run zeros through all streams at once: once to warm up, then until `seconds` have passed; returns pictures per second.

    With `seconds` 0 only the first runs are made, and the rate is theirs (an underestimate). Raises RunError if the network
    cannot run on zeros, which is what failed pictures and the padding of the last batch are.
    """
    images = np.zeros(session.batch_shape, session.dtype)

    def in_all_streams(until: float) -> int:
        counts = [0] * streams
        errors: list[Exception] = []

        def one_stream(index: int) -> None:
            try:
                while not counts[index] or time.perf_counter() < until:
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
            raise errors[0]  # of ours, not of the network
        if errors:
            raise RunError(f"the network fails on its first batch, of zeros: {first_line(errors[0])}") from errors[0]
        return sum(counts)

    start = time.perf_counter()
    runs = in_all_streams(start)
    if seconds:
        start = time.perf_counter()
        runs = in_all_streams(start + seconds)
    return runs * session.batch_shape[0] / (time.perf_counter() - start)
