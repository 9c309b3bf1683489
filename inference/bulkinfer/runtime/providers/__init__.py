"""The execution providers, by the name that --device takes."""

from __future__ import annotations

from bulkinfer.runtime.providers import cpu, cuda, openvino
from bulkinfer.runtime.providers.spec import Provider, SessionSpec, runtime

__all__ = ["PROVIDERS", "Provider", "SessionSpec", "runtime"]

# --device auto prefers the earlier of two that are equally fast.
PROVIDERS: dict[str, Provider] = {
    "cuda": cuda.CUDA,
    "tensorrt": cuda.TENSORRT,
    "cpu": cpu.CPU,
    "openvino": openvino.PROCESSOR,
    "openvino:gpu": openvino.GPU,
    "openvino:npu": openvino.NPU,
}
