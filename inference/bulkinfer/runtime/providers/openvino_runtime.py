"""OpenVINO's own runtime, without onnxruntime: for the processors that the plugin does not serve.

The proof is read from the compiled network: how many of its nodes compute in which type.
"""

from __future__ import annotations

import importlib
import queue
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from bulkinfer.errors import AbsentError, UsageError, first_line
from bulkinfer.host.limits import exhausted
from bulkinfer.host.versions import versions
from bulkinfer.runtime.providers import openvino
from bulkinfer.runtime.providers.openvino import OWN_PACKAGE, VARIABLE, processor_settings, wanted_backend
from bulkinfer.runtime.providers.spec import SessionSpec

_NAME = "OpenVINO"
_TELEMETRY = "openvino_telemetry"
_DTYPES: dict[str, np.dtype[Any]] = {"u8": np.dtype(np.uint8), "f32": np.dtype(np.float32)}
_NOT_COMPUTED = {"Input", "Output", "Const"}
# The layers that cost the time, and the types that each precision allows them, by OpenVINO's names. The first type must occur:
# it is what was asked for. In an int8 graph some layers stay as they are.
_COSTLY = {"Convolution", "Deconvolution", "FullyConnected", "MatMul"}
_ALLOWED = {"fp32": ({"f32"}, {"f32"}), "bf16": ({"bf16"}, {"bf16", "f32"}), "int8": ({"i8", "u8"}, {"i8", "u8", "f32"})}
# Lines of OpenVINO's errors that lead to the reason.
_LEADING = ("Exception from ", "Check '", "FrontEnd API failed", "Model wasn't fully", "While validating", "Summary:",
            "-- Conversion is failed")  # fmt: skip


class OpenVinoGraph:
    """See spec.Opened.

    Raises UsageError if OpenVINO does not take the graph, or computes in other types than the precision asks for.
    """

    def __init__(self, spec: SessionSpec) -> None:
        module = import_openvino()
        core = module.Core()
        try:
            compiled = core.compile_model(core.read_model(spec.graph), "CPU", processor_settings(spec))
        except Exception as error:  # OpenVINO raises RuntimeError for everything
            raise UsageError(f"--device {spec.provider} cannot run {spec.graph}: {openvino_reason(error)}") from error
        (graph_input,) = compiled.inputs
        kind = graph_input.get_element_type().get_type_name()
        if kind not in _DTYPES:
            raise UsageError(f"{spec.graph}: input type {kind} is not one of {', '.join(_DTYPES)}: run get_model again")
        self.dtype: np.dtype[Any] = _DTYPES[kind]
        self.input_shape = _shape(graph_input)
        self.output_shapes = {name: _shape(output) for output in compiled.outputs for name in output.get_names()}
        self._compiled = compiled
        self._places = {name: place for place, output in enumerate(compiled.outputs) for name in output.get_names()}
        self._idle = queue.SimpleQueue[Any]()  # a request runs one batch at a time, and has its own input
        for _ in range(spec.streams):
            request = compiled.create_infer_request()
            # OpenVINO makes its table of types at the first use; two threads that do so at once wait for each other for ever
            request.get_output_tensor(0).element_type.to_dtype()
            self._idle.put((request, request.get_input_tensor(0).data))
        self.proof = _prove(spec, compiled)

    def run(self, images: np.ndarray[Any, Any], names: list[str]) -> list[np.ndarray[Any, Any]]:
        request, its_input = idle = self._idle.get()
        try:
            np.copyto(its_input, images)
            request.infer(share_outputs=True)
            return [request.get_output_tensor(self._places[name]).data.copy() for name in names]
        finally:
            self._idle.put(idle)


def import_openvino() -> Any:
    """The module openvino, without its telemetry, which writes to the home folder and reports to a server.

    Raises UsageError if it does not load.
    """
    try:
        return _without_telemetry()
    except (ImportError, OSError) as error:  # a library of it is missing, or made for another system
        what = f"--device openvino: the package openvino does not load ({first_line(error)})"
        raise UsageError(f"{what}: pip install --force-reinstall openvino, or use --device cpu") from error


def _without_telemetry() -> Any:
    if "openvino" not in sys.modules and _TELEMETRY not in sys.modules:
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment] # its import fails, and openvino takes its own substitute
        try:
            return importlib.import_module("openvino")
        finally:
            del sys.modules[_TELEMETRY]
    return importlib.import_module("openvino")


def openvino_reason(error: BaseException) -> str:
    """The reason in an error of OpenVINO, whose messages are pages that begin with C++ source places, as one sentence."""
    lines = [line.strip() for line in str(error).splitlines()]
    kept = [line for line in lines if line and not line.startswith(_LEADING) and not line.endswith(" with a message:")]
    return exhausted(str(error)) or (kept[0].removeprefix("-- ").rstrip(".") if kept else first_line(error))


def _shape(port: Any) -> tuple[Any, ...]:
    """Sizes that the graph leaves open stay as words."""
    return tuple(size.get_length() if size.is_static else str(size) for size in port.get_partial_shape())


def _prove(spec: SessionSpec, compiled: Any) -> dict[str, Any]:
    """The proof: how many nodes ran in which type. Raises UsageError if they are not those of the precision."""
    facts = [{name: value.astype(str) for name, value in node.get_rt_info().items()} for node in _nodes(compiled)]
    computed = [fact for fact in facts if fact["layerType"] not in _NOT_COMPUTED]
    costly = Counter(fact["runtimePrecision"] for fact in computed if fact["layerType"] in _COSTLY)
    needed, allowed = _ALLOWED[spec.precision]
    if costly and (not needed & costly.keys() or costly.keys() - allowed):
        found = ", ".join(f"{count} in {kind}" for kind, count in sorted(costly.items()))
        raise UsageError(
            f"--precision {spec.precision} was asked for, but OpenVINO computes the convolutions and matrix products of "
            f"{spec.graph} otherwise: {found}: use another --precision, or --device cpu"
        )
    return {
        "provider": _NAME,
        "device": "CPU",
        "precision": spec.precision,
        "nodes": {_NAME: len(computed)},
        "nodes_by_type": dict(sorted(Counter(fact["runtimePrecision"] for fact in computed).items())),
        "openvino": versions()[OWN_PACKAGE],
        "streams": spec.streams,
        "threads_per_stream": spec.threads_per_stream,
    }


def _nodes(compiled: Any) -> Any:
    return compiled.get_runtime_model().get_ordered_ops()


def _find() -> list[str]:
    if wanted_backend() == "plugin":
        raise AbsentError(f"--device openvino: {VARIABLE} leaves OpenVINO's own runtime out: set it to runtime, or unset it")
    return ["the processor"]


def _never_attached(_options: Any, _spec: SessionSpec) -> str:
    raise AssertionError("onnxruntime does not open this graph")


PROCESSOR = replace(
    openvino.PROCESSOR,
    ep_name=_NAME,
    modules=(OWN_PACKAGE,),
    find_devices=_find,
    attach=_never_attached,
    backend=OWN_PACKAGE,
    open_graph=OpenVinoGraph,
)
