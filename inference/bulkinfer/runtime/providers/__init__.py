"""Execution providers: how a session asks for each, which precisions it runs natively, and proof that it ran the graph.

Asked for means run: the session is made with CPU fallback disabled (unless --allow_cpu_nodes), and the assignment of every
node is read back from the session. A list of providers is no proof.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from bulkinfer.errors import UsageError
from bulkinfer.runtime.ort_errors import runtime_reason
from bulkinfer.runtime.providers import cpu, nvidia, openvino
from bulkinfer.runtime.providers.spec import Provider, SessionSpec, runtime

__all__ = ["PROVIDERS", "Provider", "SessionSpec", "describe_proof", "open_session", "prove", "runtime"]

# By the name that --device takes. --device auto prefers the earlier of two that are equally fast.
PROVIDERS: dict[str, Provider] = {
    "cuda": nvidia.CUDA,
    "tensorrt": nvidia.TENSORRT,
    "cpu": cpu.CPU,
    "openvino": openvino.PROCESSOR,
    "openvino:gpu": openvino.GPU,
    "openvino:npu": openvino.NPU,
}


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
            # without a fallback: it would go on with another provider in the middle of a run, behind the proof's back
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
