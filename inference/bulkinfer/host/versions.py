"""What this machine runs: versions of Python and of the packages, and its processor."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path

_PACKAGES = (
    "numpy",
    "Pillow",
    "simplejpeg",
    "pillow-heif",
    "pyarrow",
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-ep-openvino",
    "openvino",
)


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that may change the content of a row: name -> version."""
    from bulkinfer import __version__

    found = {"bulkinfer": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """The processor's name; the machine's architecture where the system gives no name."""
    return _cpuinfo("model name") or platform.machine()


def processor_vendor() -> str:
    """The vendor as the processor names it, such as AuthenticAMD; the machine's architecture where the system gives none."""
    return _cpuinfo("vendor_id") or platform.machine()


def processor_features() -> frozenset[str]:
    """Instruction sets of the processor as the system names them, such as amx_bf16; empty where it does not list them."""
    return frozenset(_cpuinfo("flags", "Features").split())


# Instruction sets with which a processor computes in 16 bits itself, by Linux's names; the last ones are Arm's.
NATIVE_HALVES = {
    "bfloat16": frozenset({"amx_bf16", "avx512_bf16", "bf16"}),
    "float16": frozenset({"amx_fp16", "avx512_fp16", "asimdhp"}),
}


def _cpuinfo(*fields: str) -> str:
    """The first of these fields in /proc/cpuinfo, or ''."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(fields)), "")
