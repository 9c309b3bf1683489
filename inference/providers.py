"""Execution providers: how a session asks for each, which precisions it runs natively, and proof that it ran the graph.

Asked for means run: the session is made with CPU fallback disabled (unless --allow_cpu_nodes), and the assignment of every
node is read back from the session. A list of providers is no proof.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inference.errors import UsageError
from inference.runtime_reason import runtime_reason


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What a worker asks of the runtime."""

    graph: str
    provider: str
    precision: str
    streams: int
    threads_per_stream: int
    allow_cpu_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Provider:
    """One entry of PROVIDERS. `attach(options, spec)` adds it to onnxruntime SessionOptions and returns a description."""

    ep_name: str
    module: str
    install: str
    precisions: tuple[str, ...]
    attach: Callable[[Any, SessionSpec], str]


def runtime() -> Any:
    """The module onnxruntime, imported with its telemetry off unless the environment already decides about that.

    From 1.32 on, its Linux builds would otherwise write a device id and a store of events below the home folder when imported.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module("onnxruntime")


def _attach_cpu(options: Any, spec: SessionSpec) -> str:
    # streams are concurrent run calls on one session: each uses its own thread plus this pool's others
    options.intra_op_num_threads = spec.threads_per_stream
    options.add_provider("CPUExecutionProvider", {})
    return "CPU"


def _openvino_devices() -> list[Any]:
    """The plugin's devices; it is registered with the runtime the first time."""
    onnxruntime = runtime()

    found = [d for d in onnxruntime.get_ep_devices() if d.ep_name == OPENVINO.ep_name]
    if found:
        return found
    plugin = importlib.import_module(OPENVINO.module)
    onnxruntime.register_execution_provider_library("openvino", plugin.get_library_path())
    return [d for d in onnxruntime.get_ep_devices() if d.ep_name == OPENVINO.ep_name]


def _attach_openvino(options: Any, spec: SessionSpec) -> str:
    device = next((d for d in _openvino_devices() if d.ep_metadata.get("ov_device") == "CPU"), None)
    if device is None:
        raise UsageError(f"--device openvino: its plugin offers no CPU here: use --device cpu, or again {OPENVINO.install}")
    if spec.precision == "bf16" and "BF16" not in device.ep_metadata.get("OPTIMIZATION_CAPABILITIES", "").split():
        raise UsageError(
            f"--precision bf16: {device.ep_metadata.get('FULL_DEVICE_NAME', 'this processor')} has no native bf16 "
            "(AMX or AVX512-BF16), it would only be emulated: use --precision fp32"
        )
    settings = {
        "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[spec.precision],
        "NUM_STREAMS": str(spec.streams),
        "INFERENCE_NUM_THREADS": str(spec.streams * spec.threads_per_stream),
        "ENABLE_CPU_PINNING": "NO",  # the process's affinity pins; the plugin would put every process on the first core
    }
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "0" if spec.allow_cpu_nodes else "1")
    options.add_provider_for_devices([device], {"load_config": json.dumps({"CPU": settings})})
    return f"CPU, plugin {device.ep_metadata.get('version', 'of unknown version')}"


CPU = Provider("CPUExecutionProvider", "onnxruntime", "pip install 'bulkinfer[cpu]'", ("fp32",), _attach_cpu)
OPENVINO = Provider(
    "OpenVINOExecutionProvider",
    "onnxruntime_ep_openvino",
    "pip install 'bulkinfer[openvino]'",
    ("fp32", "bf16"),
    _attach_openvino,
)
PROVIDERS = {"cpu": CPU, "openvino": OPENVINO}


def choose(device: str, precision: str) -> tuple[str, str]:
    """The provider for `--device` and why. Raises UsageError where it cannot run the precision or is not installed."""
    if device == "auto":
        name = "cpu" if precision in CPU.precisions else "openvino"
        why = f"auto: {name} runs {precision}"
        why += " and needs nothing beyond onnxruntime" if name == "cpu" else ", cpu does not"
    else:
        name, why = device, "as asked"
    provider = PROVIDERS[name]
    if precision not in provider.precisions:
        able = ", ".join(other for other, entry in PROVIDERS.items() if precision in entry.precisions)
        raise UsageError(f"--device {name} has no --precision {precision}; {precision} runs on {able}")
    for module in ("onnxruntime", provider.module):
        if importlib.util.find_spec(module) is None:
            raise UsageError(f"--device {name} needs the package {module}: {provider.install}")
    return name, why


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
        described = provider.attach(options, spec)
        session = onnxruntime.InferenceSession(spec.graph, options)
    except UsageError:
        raise
    except Exception as error:  # onnxruntime raises many classes, none of them documented
        allow = "; --allow_cpu_nodes lets it" if "fallback to CPU" in str(error) else ""
        raise UsageError(f"--device {spec.provider} cannot run {spec.graph}: {runtime_reason(error)}{allow}") from error
    nodes = Counter[str]()
    for part in session.get_provider_graph_assignment_info():
        nodes[part.ep_name] += len(part.get_nodes())
    return session, prove(spec, nodes, described, onnxruntime.__version__)


def prove(spec: SessionSpec, nodes: Counter[str], described: str, version: str) -> dict[str, Any]:
    """The record of what ran. Raises UsageError if the provider asked for does not run every node."""
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
    """For people: which provider ran how many nodes of the graph, at which precision."""
    nodes = ", ".join(f"{count} nodes on {name}" for name, count in sorted(proof["nodes"].items()))
    return f"{nodes} ({proof['device']}), {proof['precision']}, onnxruntime {proof['onnxruntime']}"
