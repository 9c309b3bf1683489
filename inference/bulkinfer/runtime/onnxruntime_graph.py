"""A graph that is open in onnxruntime, on exactly the provider asked for, and the proof of it.

A list of providers is no proof. So a session is opened with CPU fallback disabled (unless --allow_cpu_nodes), and the
assignment of every node is read back from it. Where an optimised graph is opened in place of the graph, the proof says so.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from bulkinfer.errors import UsageError, first_line
from bulkinfer.host.limits import exhausted
from bulkinfer.runtime.graph_cache import WEIGHTS, stamp_of
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec, runtime

_DTYPES = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32}
# How an optimised graph is saved: tensors of 1 KiB or more, also in the form that kernels prepare, go to a file that is mapped.
_SAVING = {
    "optimized_model_external_initializers_file_name": WEIGHTS,
    "optimized_model_external_initializers_min_size_in_bytes": "1024",
    "save_external_prepacked_constant_initializers": "1",
}
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


class OnnxRuntimeGraph:
    """See spec.Opened."""

    def __init__(self, spec: SessionSpec) -> None:
        self._session, self.proof = open_session(spec)
        self._memory, self._device = PROVIDERS[spec.provider].memory, spec.device
        self._bound = threading.local()  # a binding holds the input of one run: each stream has its own
        (graph_input,) = self._session.get_inputs()
        if graph_input.type not in _DTYPES:
            raise UsageError(f"{spec.graph}: input type {graph_input.type} is not one of {', '.join(_DTYPES)}")
        self._input_name: str = graph_input.name
        self.input_shape: tuple[int, ...] = tuple(graph_input.shape)
        self.dtype: np.dtype[Any] = np.dtype(_DTYPES[graph_input.type])
        self.output_shapes = {output.name: tuple(output.shape) for output in self._session.get_outputs()}

    def run(self, images: np.ndarray[Any, Any], names: list[str]) -> list[np.ndarray[Any, Any]]:
        if self._memory:
            return self._run_bound(images, names)
        values: list[np.ndarray[Any, Any]] = self._session.run(names, {self._input_name: images})
        return values

    def _run_bound(self, images: np.ndarray[Any, Any], names: list[str]) -> list[np.ndarray[Any, Any]]:
        """Run with an input buffer on the device that is allocated once per stream, not once per run."""
        bound = self._bound
        if not hasattr(bound, "binding"):
            make = runtime().OrtValue.ortvalue_from_shape_and_type
            bound.input = make(self.input_shape, self.dtype, self._memory, self._device)
            bound.binding = self._session.io_binding()
            bound.binding.bind_ortvalue_input(self._input_name, bound.input)
            for name in names:
                bound.binding.bind_output(name, "cpu")
        bound.input.update_inplace(images)
        self._session.run_with_iobinding(bound.binding)
        outputs: list[np.ndarray[Any, Any]] = bound.binding.copy_outputs_to_cpu()
        return outputs


def open_session(spec: SessionSpec) -> tuple[Any, dict[str, Any]]:
    """An onnxruntime session on exactly the provider asked for, and the proof: nodes per provider, versions, settings.

    The cached graph of `spec` is opened where it can be: the proof names its entry as `cached_graph`, or says in
    `cache_not_used` why the graph itself was opened.
    Raises UsageError if the provider refuses the graph, or if another provider runs any node without --allow_cpu_nodes.
    """
    note = {}
    if spec.cached_graph:
        try:
            session, described = _open_cached(spec)
            note = {"cached_graph": Path(spec.cached_graph).parent.name}
        except UsageError as error:
            note = {"cache_not_used": str(error)}
    if "cached_graph" not in note:
        session, described = open_file(spec, spec.graph)
    nodes = Counter[str]()
    for part in session.get_provider_graph_assignment_info():
        nodes[part.ep_name] += len(part.get_nodes())
    return session, prove(spec, nodes, described, runtime().__version__) | note


def _open_cached(spec: SessionSpec) -> tuple[Any, str]:
    """A session on the cached graph, and the description of its device. Raises UsageError if it cannot be used."""
    if stamp_of(spec.cached_graph) != spec.cached_stamp:
        raise UsageError(f"{spec.cached_graph} has changed since the launch began")
    return open_file(spec, spec.cached_graph, is_optimised=True)


def open_file(spec: SessionSpec, graph: str, *, is_optimised: bool = False, save_to: str = "") -> tuple[Any, str]:
    """An onnxruntime session of `spec` on the file `graph`, and the description of its device.

    With `is_optimised` the graph runs as it is. With `save_to` the optimised graph is written to that path, and its weights
    beside it. Raises UsageError if the provider refuses the graph.
    """
    onnxruntime = runtime()
    provider = PROVIDERS[spec.provider]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if save_to:
        options.optimized_model_filepath = save_to
        for name, value in _SAVING.items():
            options.add_session_config_entry(f"session.{name}", value)
    try:
        with provider.opening(spec):
            described = provider.attach(options, spec)
            # with a fallback, a session would change to another provider in the middle of a run, and the proof would be wrong
            session = onnxruntime.InferenceSession(graph, options, enable_fallback=0)
    except UsageError:
        raise
    except Exception as error:  # onnxruntime raises many classes, none of them documented
        allow = "; --allow_cpu_nodes lets it" if "fallback to CPU" in str(error) else ""
        raise UsageError(f"--device {spec.provider} cannot run {graph}: {runtime_reason(error).rstrip('.')}{allow}") from error
    return session, described


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


def runtime_reason(error: BaseException) -> str:
    """The reason in an onnxruntime error as one sentence; an unknown error is cut to its first line.

    onnxruntime's own messages are pages that begin with C++ source places.
    """
    text = " ".join(str(error).split())
    for pattern, sentence in _REASONS:
        if match := re.search(pattern, text):
            return sentence.format(*match.groups())
    return exhausted(text) or re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", first_line(error))
