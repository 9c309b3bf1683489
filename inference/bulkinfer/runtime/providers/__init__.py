"""The execution providers, by the name that --device takes."""

from __future__ import annotations

from dataclasses import replace

from bulkinfer.runtime.providers import cpu, cuda, openvino, openvino_runtime
from bulkinfer.runtime.providers.spec import Opened, Provider, SessionSpec, runtime

__all__ = ["PROVIDERS", "Opened", "Provider", "SessionSpec", "entry_of", "runtime"]

# --device auto prefers the earlier of two that are equally fast.
PROVIDERS: dict[str, Provider] = {
    "cuda": cuda.CUDA,
    "tensorrt": cuda.TENSORRT,
    "cpu": cpu.CPU,
    "openvino": replace(openvino.PROCESSOR, alternative=openvino_runtime.PROCESSOR),
    "openvino:gpu": openvino.GPU,
    "openvino:npu": openvino.NPU,
}


def entry_of(provider: str, backend: str = "") -> Provider:
    """The entry of a provider that has this backend; empty: the preferred one."""
    entries = PROVIDERS[provider].backends
    return next((entry for entry in entries if entry.backend == backend), entries[0])
