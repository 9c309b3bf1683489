"""Opens a network on exactly the provider asked for, proves it, and runs fixed batches: input array in, named outputs out.

A list of providers is no proof. So a session is opened with CPU fallback disabled (unless --allow_cpu_nodes), and the
assignment of every node is read back from it.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections import Counter
from typing import Any, Protocol

import numpy as np

from bulkinfer.errors import RunError, ShapeError, UsageError, first_line
from bulkinfer.host.limits import exhausted
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec, runtime

_DTYPES = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32}
_KNOWN_DOMAINS = "ai.onnx, ai.onnx.ml and com.microsoft"
_REASONS = (
    (
        r"Unsupported model IR version: (\d+), max supported IR version: (\d+)",
        "its IR version is {0}, this onnxruntime takes up to {1}",
    ),
    (
        r"Opset (\d+) is under development.*support for domain (\S+) is till opset (\d+)",
        "its opset of {1} is {0}, this onnxruntime takes up to {2}",
    ),
    (
        r"(?:Fatal error: |: )([\w.-]+):(\w+)\(-?\d+\) is not a registered function/op",
        f"it needs the operator {{1}} of {{0}}, which this onnxruntime does not have (it has those of {_KNOWN_DOMAINS})",
    ),
    (
        r"No Op registered for (\w+) with domain_version of (\d+)",
        "it needs the operator {0} of ai.onnx, which this onnxruntime does not have in opset {1}",
    ),
)


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

    Attributes: `proof` (which provider runs which nodes, see prove), `batch_shape` and `dtype` of the only input,
    `output_shapes` by name (without the batch axis), `load_s` (seconds it took to open), `not_pinned` (see pin).
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
        self._shapes = [(self.batch_shape[0], *shapes[name]) for name in output_names]
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
        if self._memory:
            values = self._run_bound(images)
        else:
            values = self._session.run(self._output_names, {self._input_name: images})
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

    def _run_bound(self, images: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """Run with an input buffer on the device that is allocated once per stream, not once per run."""
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


def open_session(spec: SessionSpec) -> tuple[Any, dict[str, Any]]:
    """An onnxruntime session on exactly the provider asked for, and the proof: nodes per provider, versions, settings.

    Raises UsageError if the provider refuses the graph, or if another provider runs any node without --allow_cpu_nodes.
    """
    onnxruntime = runtime()
    provider = PROVIDERS[spec.provider]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        with provider.opening(spec):
            described = provider.attach(options, spec)
            # with a fallback, a session would change to another provider in the middle of a run, and the proof would be wrong
            session = onnxruntime.InferenceSession(spec.graph, options, enable_fallback=0)
    except UsageError:
        raise
    except Exception as error:  # onnxruntime raises many classes, none of them documented
        allow = "; --allow_cpu_nodes lets it" if "fallback to CPU" in str(error) else ""
        raise UsageError(
            f"--device {spec.provider} cannot run {spec.graph}: {runtime_reason(error).rstrip('.')}{allow}"
        ) from error
    nodes = Counter[str]()
    for part in session.get_provider_graph_assignment_info():
        nodes[part.ep_name] += len(part.get_nodes())
    return session, prove(spec, nodes, described, onnxruntime.__version__)


def prove(spec: SessionSpec, nodes: Counter[str], described: str, version: str) -> dict[str, Any]:
    """The proof: which provider runs how many nodes, and how. Raises UsageError if others run nodes without permission."""
    ep_name = PROVIDERS[spec.provider].ep_name
    others = {name: count for name, count in nodes.items() if name != ep_name}
    if nodes[ep_name] == 0 or (others and not spec.allow_cpu_nodes):
        ran = ", ".join(f"{count} nodes on {name}" for name, count in sorted(nodes.items())) or "no nodes at all"
        allow = "" if nodes[ep_name] == 0 else "; --allow_cpu_nodes lets it"
        raise UsageError(f"--device {spec.provider} was asked for, but the session placed {ran}{allow}")
    return {
        "provider": ep_name,
        "device": described,
        "precision": spec.precision,
        "nodes": dict(nodes),
        "onnxruntime": version,
        "streams": spec.streams,
        "threads_per_stream": spec.threads_per_stream,
    }


def describe_proof(proof: dict[str, Any]) -> str:
    """The proof as one sentence: which provider runs how many nodes of the graph, in which precision."""
    nodes = ", ".join(f"{count} nodes on {name}" for name, count in sorted(proof["nodes"].items()))
    return f"{nodes} ({proof['device']}), {proof['precision']}, onnxruntime {proof['onnxruntime']}"


def runtime_reason(error: BaseException) -> str:
    """The reason in an onnxruntime error as one sentence; an unknown error is cut to its first line.

    onnxruntime's own messages are pages that begin with C++ source places.
    """
    text = " ".join(str(error).split())
    for pattern, sentence in _REASONS:
        if match := re.search(pattern, text):
            return sentence.format(*match.groups())
    return exhausted(text) or re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", first_line(error))
