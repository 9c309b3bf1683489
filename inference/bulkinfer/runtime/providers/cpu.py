"""onnxruntime's own processor kernels."""

from __future__ import annotations

from typing import Any

from bulkinfer.runtime.providers.spec import Provider, SessionSpec


def _attach(options: Any, spec: SessionSpec) -> str:
    # streams are concurrent run calls on one session: each uses its own thread plus this pool's others
    options.intra_op_num_threads = spec.threads_per_stream
    options.add_provider("CPUExecutionProvider", {})
    return "CPU"


CPU = Provider(
    "CPUExecutionProvider",
    ("onnxruntime",),
    "cpu",
    ("fp32", "int8"),
    lambda: ["the processor"],
    _attach,
    variants=("int8",),
    is_cached=True,
)
