"""The OpenVINO plugin of onnxruntime: one provider for processors, one for GPUs, one for NPUs.

The plugin serves the processors of some vendors only; on others OpenVINO's own runtime takes its place (openvino_runtime.py).
"""

from __future__ import annotations

import functools
import importlib
import json
import os
from typing import Any

from bulkinfer.errors import AbsentError, UsageError, first_line
from bulkinfer.host.install_hint import install_command
from bulkinfer.host.versions import NATIVE_HALVES, processor_features, processor_vendor, versions
from bulkinfer.runtime.providers.spec import Provider, SessionSpec, refuse_other_nodes, runtime

EP_NAME = "OpenVINOExecutionProvider"
PACKAGE = "onnxruntime-ep-openvino"
OWN_PACKAGE = "openvino"
VARIABLE = "BULKINFER_OPENVINO"  # the backend for processors: plugin or runtime; not set: the plugin where it serves them
_MODULE = "onnxruntime_ep_openvino"
_SERVED_VENDOR = "GenuineIntel"
# The plugin's word for a precision, and the word by which a device declares that it computes in it natively. An int8 graph
# marks what is quantised; the hint is for the rest.
_HINTS = {"fp32": ("f32", "FP32"), "bf16": ("bf16", "BF16"), "fp16": ("f16", "FP16"), "int8": ("f32", "FP32")}
_LACKS = {"bf16": "has no native bf16 (AMX or AVX512-BF16), it would only be emulated"}


def plugin_devices(kind: str) -> list[Any]:
    """The plugin's devices of a kind (CPU, GPU or NPU) in the order of their numbers; empty if it serves none on this host.

    The first call registers the plugin with the runtime. Raises UsageError if the plugin does not fit the runtime.
    """
    onnxruntime = runtime()
    if not any(device.ep_name == EP_NAME for device in onnxruntime.get_ep_devices()):
        _register(onnxruntime)
    devices = onnxruntime.get_ep_devices()
    names = {device.ep_metadata.get("ov_device", ""): device for device in devices if device.ep_name == EP_NAME}
    return [names[name] for name in sorted(names) if name.partition(".")[0] == kind]  # GPU, or GPU.0 and GPU.1


@functools.cache  # a plugin without devices is registered all the same, and a second time is an error
def _register(onnxruntime: Any) -> None:
    """Load the plugin into the runtime. Raises UsageError if the plugin does not fit the runtime."""
    plugin = importlib.import_module(_MODULE)
    try:
        onnxruntime.register_execution_provider_library("openvino", plugin.get_library_path())
    except Exception as error:  # onnxruntime raises many classes, none of them documented
        found = f"{_version(plugin)} with onnxruntime {onnxruntime.__version__}"
        raise UsageError(
            f"--device openvino: the plugin {_MODULE} {found} does not load ({first_line(error)}): "
            "pip install --upgrade onnxruntime onnxruntime-ep-openvino"
        ) from error


def _version(plugin: Any) -> str:
    return str(getattr(plugin, "__version__", "of unknown version"))


def _attach(kind: str, options: Any, spec: SessionSpec) -> str:
    devices = plugin_devices(kind)
    if len(devices) <= spec.device:
        raise _no_device(kind)
    device = devices[spec.device]
    name = device.ep_metadata.get("FULL_DEVICE_NAME", f"this {kind}")
    hint, capability = _HINTS[spec.precision]
    if capability != "FP32" and capability not in device.ep_metadata.get("OPTIMIZATION_CAPABILITIES", "").split():
        lacks = _LACKS.get(spec.precision, f"does not compute in {spec.precision}")
        raise UsageError(f"--precision {spec.precision}: {name} {lacks}: use --precision fp32")
    settings = {"INFERENCE_PRECISION_HINT": hint}
    if kind == "CPU":
        settings = processor_settings(spec)
    elif kind != "NPU":  # an NPU chooses its number of streams itself
        settings["NUM_STREAMS"] = str(spec.streams)
    refuse_other_nodes(options, spec)
    options.add_provider_for_devices([device], {"load_config": json.dumps({kind: settings})})
    where = kind if kind == "CPU" else f"{device.ep_metadata.get('ov_device', kind)}, {name}"
    return f"{where}, plugin {device.ep_metadata.get('version', 'of unknown version')}"


def processor_settings(spec: SessionSpec) -> dict[str, str]:
    """OpenVINO's settings for a session on the processor."""
    return {
        "INFERENCE_PRECISION_HINT": _HINTS[spec.precision][0],
        "NUM_STREAMS": str(spec.streams),
        "INFERENCE_NUM_THREADS": str(spec.streams * spec.threads_per_stream),
        # the affinity of the process pins its threads; OpenVINO would put every process on the first core
        "ENABLE_CPU_PINNING": "NO",
    }


def _native(kind: str, numbers: tuple[int, ...]) -> tuple[str, str]:
    """See Provider.native."""
    if kind == "CPU":
        if processor_features() & NATIVE_HALVES["bfloat16"]:
            return "bf16", ""
        return "fp32", "this processor has neither AMX nor AVX512-BF16"
    devices = plugin_devices(kind)
    able = all("FP16" in devices[number].ep_metadata.get("OPTIMIZATION_CAPABILITIES", "").split() for number in numbers)
    return ("fp16", "") if able else ("fp32", f"this {kind} does not compute in fp16")


def _find(kind: str) -> list[str]:
    """See Provider.find_devices. The plugin is asked what it serves.

    But not on a processor of another vendor where OpenVINO's own runtime is installed: one process must not load both.
    """
    if kind == "CPU":
        _leave_to_own_runtime()
    devices = plugin_devices(kind)
    if not devices:
        raise _no_device(kind)
    if kind == "CPU":
        return ["the processor"]
    return [device.ep_metadata.get("FULL_DEVICE_NAME", f"{kind} {number}") for number, device in enumerate(devices)]


def wanted_backend() -> str:
    """What BULKINFER_OPENVINO asks for: plugin, runtime, or '' for either. Raises UsageError for another word."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "plugin", "runtime"):
        raise UsageError(f"the environment variable {VARIABLE} is {wanted!r}: set it to plugin or runtime, or unset it")
    return wanted


def _leave_to_own_runtime() -> None:
    """Raises AbsentError where OpenVINO's own runtime takes the place of the plugin, without asking the plugin."""
    wanted, has_own = wanted_backend(), OWN_PACKAGE in versions()
    if wanted == "runtime" and not has_own:
        raise AbsentError(
            f"--device openvino: OpenVINO's own runtime, which {VARIABLE} asks for, is not here: "
            f"install it ({install_command('openvino')}), or unset the variable"
        )
    if wanted == "runtime":
        raise AbsentError(f"--device openvino: {VARIABLE} leaves its plugin out: set it to plugin, or unset it")
    if not wanted and has_own and processor_vendor() != _SERVED_VENDOR:
        raise _no_device("CPU")


def _no_device(kind: str) -> UsageError:
    """The error for a plugin that offers no device of a kind; on processors it counts as not installed."""
    if kind == "CPU":
        refusal = f"--device openvino: its plugin does not serve this processor ({processor_vendor()})"
        if wanted_backend() == "plugin" or OWN_PACKAGE in versions():
            return AbsentError(f"{refusal}: use --device cpu")
        return AbsentError(f"{refusal}: install OpenVINO's own runtime ({install_command('openvino')}), or use --device cpu")
    other = "openvino" if plugin_devices("CPU") else "cpu"
    return UsageError(
        f"--device openvino:{kind.lower()}: OpenVINO finds no {kind} here: install its driver, or use --device {other}"
    )


def _entry(kind: str, precisions: tuple[str, ...]) -> Provider:
    is_processor = kind == "CPU"
    return Provider(
        EP_NAME,
        ("onnxruntime", _MODULE),
        "openvino",
        precisions,
        lambda: _find(kind),
        lambda options, spec: _attach(kind, options, spec),
        variants=("int8",) if is_processor else (),
        is_counted=not is_processor,
        is_automatic=is_processor,  # an integrated GPU is not always faster than the processor
        native=lambda numbers: _native(kind, numbers),
        only_native=("bf16",) if is_processor else ("fp16",),
        backend=PACKAGE,
    )


PROCESSOR = _entry("CPU", ("fp32", "bf16", "int8"))
GPU = _entry("GPU", ("fp32", "fp16"))
NPU = _entry("NPU", ("fp16",))
