"""NVIDIA GPUs: onnxruntime-gpu's CUDA kernels, and TensorRT.

Both are in the package onnxruntime-gpu, whose files replace those of the package onnxruntime. Both need the driver and
libraries from further packages. Errors name what is missing and the command that installs it.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bulkinfer.errors import AbsentError, UsageError, first_line
from bulkinfer.files.atomic import file_sha256, temporary_path
from bulkinfer.files.file_lock import exclusive
from bulkinfer.host.install_hint import install_command
from bulkinfer.host.versions import versions
from bulkinfer.runtime.providers.spec import Provider, SessionSpec, refuse_other_nodes, runtime
from bulkinfer.runtime.providers.tensorrt_cache import LOCK_FILE, record, remove_invalid

_EXTRA = "gpu"
_REMOVE = "pip uninstall --yes onnxruntime onnxruntime-gpu"
_TENSORRT_EXTRA = "tensorrt"
_DRIVER = "libcuda.so.1"
_SHARED = "libonnxruntime_providers_{}.so"
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
# Extra settings of a CUDA session, by precision. Convolutions in fp16 run on tensor cores, which need channels last.
_CUDA_SETTINGS = {"fp32": {}, "fp16": {"prefer_nhwc": "1"}}
_CAPABILITY_MAJOR = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
_HALF_UNITS = 7  # GPUs of this capability and later compute in fp16 natively
_PORTABLE = 1  # CU_MEMHOSTREGISTER_PORTABLE


def find_devices(device: str, ep_name: str, extra: str) -> list[str]:
    """The GPUs that the driver shows this process, by name and position on the bus, in the order of their numbers.

    If CUDA_VISIBLE_DEVICES is set, a number is a position in it, not a number of the whole host.
    """
    _check_packages(device, ep_name, extra)
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError as error:
        raise UsageError(
            f"--device {device}: no NVIDIA driver here ({first_line(error)}): install it, or use --device cpu"
        ) from None
    names = _names(driver, device)
    if not names:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES is {hidden!r})"
        raise UsageError(f"--device {device}: the NVIDIA driver shows no GPU{why}: use --device cpu")
    return names


def _check_packages(device: str, ep_name: str, extra: str) -> None:
    """Raises UsageError unless the installed onnxruntime is built for GPUs.

    It is imported only if its GPU library is on disk, because an import takes time and memory.
    """
    spec = importlib.util.find_spec("onnxruntime")
    folders = spec.submodule_search_locations if spec else None
    is_there = any((Path(folder) / "capi" / _SHARED.format("cuda")).exists() for folder in folders or ())
    if is_there and ep_name in runtime().get_available_providers():
        return
    found = {}
    for package in ("onnxruntime", "onnxruntime-gpu"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    installed = " and ".join(f"{package} {version}" for package, version in found.items()) or "onnxruntime"
    again = f"{_REMOVE} && {install_command(extra)}"
    if len(found) == 2:
        raise UsageError(f"--device {device}: {installed} are both installed and overwrite each other: {again}")
    kind = UsageError if _has_driver() else AbsentError
    raise kind(f"--device {device}: the installed {installed} is built without {ep_name}: {again}")


def _has_driver() -> bool:
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return False
    return True


def _names(driver: Any, device: str) -> list[str]:
    """Names of the GPUs from the driver itself, without any tool or Python package."""

    def call(function: str, *arguments: Any) -> int:
        code = int(getattr(driver, function)(*arguments))
        if code not in (0, _NO_DEVICE):
            raise UsageError(f"--device {device}: the NVIDIA driver fails ({function} gives {code}): try nvidia-smi")
        return code

    count = ctypes.c_int(0)
    if call("cuInit", 0) == _NO_DEVICE or call("cuDeviceGetCount", ctypes.byref(count)) == _NO_DEVICE:
        return []
    names = []
    for number in range(count.value):
        handle, name, bus = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
        call("cuDeviceGet", ctypes.byref(handle), number)
        call("cuDeviceGetName", name, len(name), handle)
        call("cuDeviceGetPCIBusId", bus, len(bus), handle)
        names.append(f"{name.value.decode(errors='replace')} at {bus.value.decode(errors='replace')}")
    return names


def native(numbers: tuple[int, ...]) -> tuple[str, str]:
    """fp16 if all these GPUs compute in it natively (compute capability 7.0 or later); see Provider.native."""
    driver = ctypes.CDLL(_DRIVER)
    for number in numbers:
        handle, major = ctypes.c_int(), ctypes.c_int()
        for function, arguments in (
            ("cuInit", (0,)),
            ("cuDeviceGet", (ctypes.byref(handle), number)),
            ("cuDeviceGetAttribute", (ctypes.byref(major), _CAPABILITY_MAJOR, handle)),
        ):
            if code := int(getattr(driver, function)(*arguments)):
                return "fp32", f"the driver does not report what GPU {number} can do ({function} gives {code})"
        if major.value < _HALF_UNITS:
            return "fp32", f"GPU {number} has no units for fp16 (compute capability {major.value}, needed is {_HALF_UNITS})"
    return "fp16", ""


def pin(array: np.ndarray[Any, Any], device: int) -> str:
    """Lock the pages of the array for copies to any GPU until the process ends; returns why it failed, or ''.

    The pages are locked in the primary context of the device, which onnxruntime uses as well.
    """
    driver, context, handle = ctypes.CDLL(_DRIVER), ctypes.c_void_p(), ctypes.c_int()
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(handle), device)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), handle)),
        ("cuCtxPushCurrent_v2", (context,)),
        ("cuMemHostRegister_v2", (ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), _PORTABLE)),
    ]

    def call(function: str, *arguments: Any) -> int:
        return int(getattr(driver, function)(*arguments))

    failed = next((f"{function} gives {code}" for function, arguments in calls if (code := call(function, *arguments))), "")
    call("cuCtxPopCurrent_v2", ctypes.byref(context))  # has no effect if none was pushed
    return failed


def _load_libraries(library: str, extra: str, device: str) -> None:
    """Load the libraries that the provider links to, from their packages if those are installed.

    Raises UsageError that names a missing library; onnxruntime would only log it and go on without the provider.
    """
    onnxruntime = runtime()
    onnxruntime.preload_dlls()  # from the folders of their packages; the system's search path comes later
    if library == "tensorrt" and importlib.util.find_spec("tensorrt_libs"):
        importlib.import_module("tensorrt_libs")  # its import loads them
    folder = Path(onnxruntime.__file__).parent / "capi"
    try:
        ctypes.CDLL(str(folder / _SHARED.format("shared")), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / _SHARED.format(library)))
    except OSError as error:
        raise UsageError(
            f"--device {device}: a library is missing ({first_line(error)}): {install_command(extra)}, or name its folder in "
            "LD_LIBRARY_PATH"
        ) from None


def _attach_cuda(options: Any, spec: SessionSpec) -> str:
    _load_libraries("cuda", _EXTRA, "cuda")
    refuse_other_nodes(options, spec)
    options.use_deterministic_compute = True
    options.add_provider(
        "CUDAExecutionProvider",
        {
            "device_id": str(spec.device),
            "use_tf32": "0",  # fp32 means fp32
            # a search that measures may choose other algorithms in each worker, whose sums differ in the last bits
            "cudnn_conv_algo_search": "HEURISTIC",
            "arena_extend_strategy": "kSameAsRequested",  # the input shape is fixed: the arena need not grow ahead
            **_CUDA_SETTINGS[spec.precision],
        },
    )
    return _describe(spec)


def _engines(spec: SessionSpec) -> Path:
    """The folder for the engines of a graph. Its name has the hash, because the runtime does not compare weights."""
    return Path(spec.graph).parent / "tensorrt" / file_sha256(spec.graph)[:16]


@contextmanager
def _one_builds(spec: SessionSpec) -> Iterator[None]:
    """Let one process build the engine and the others load it.

    Each build chooses its kernels by measuring, so a second engine could give rows that differ in the last bits.
    """
    folder = _engines(spec)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = temporary_path(folder / LOCK_FILE)
        try:
            probe.touch(exist_ok=False)
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"--device tensorrt keeps its engines in {folder}, which cannot be written ({error.strerror}): make it writable"
        ) from None
    with exclusive(folder / LOCK_FILE, lambda: None):
        yield
        record(folder, _built_by())


def _built_by() -> dict[str, str]:
    """Packages that an engine depends on, with versions. Its name covers the graph and the kind of GPU."""
    found = {name: version for name, version in versions().items() if name.startswith("onnxruntime")}
    for package in ("tensorrt-cu13", "tensorrt-cu12", "tensorrt"):
        try:
            return {**found, package: importlib.metadata.version(package)}
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _attach_tensorrt(options: Any, spec: SessionSpec) -> str:
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # before its libraries are loaded: fp32 means fp32
    _load_libraries("tensorrt", _TENSORRT_EXTRA, "tensorrt")
    refuse_other_nodes(options, spec)
    folder = str(_engines(spec))
    removed = remove_invalid(Path(folder), _built_by())
    settings = {
        "device_id": str(spec.device),
        "trt_fp16_enable": "1" if spec.precision == "fp16" else "0",
        "trt_bf16_enable": "1" if spec.precision == "bf16" else "0",
        "trt_engine_cache_enable": "1",  # an engine takes minutes to build
        "trt_engine_cache_path": folder,
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": folder,
    }
    options.add_provider("TensorrtExecutionProvider", settings)
    return f"{_describe(spec)}, engines kept in {folder}{f' and built again: {removed}' if removed else ''}"


def _describe(spec: SessionSpec) -> str:
    return f"GPU {spec.device}, {_names(ctypes.CDLL(_DRIVER), spec.provider)[spec.device]}"


CUDA = Provider(
    "CUDAExecutionProvider",
    ("onnxruntime",),
    _EXTRA,
    ("fp32", "fp16"),
    lambda: find_devices("cuda", "CUDAExecutionProvider", _EXTRA),
    _attach_cuda,
    variants=("fp16",),
    is_counted=True,
    memory="cuda",
    pin=pin,
    native=native,
    hidden_by="CUDA_VISIBLE_DEVICES",
)
TENSORRT = Provider(
    "TensorrtExecutionProvider",
    ("onnxruntime",),
    _TENSORRT_EXTRA,
    ("fp32", "bf16", "fp16"),
    lambda: find_devices("tensorrt", "TensorrtExecutionProvider", _TENSORRT_EXTRA),
    _attach_tensorrt,
    is_counted=True,
    opening=_one_builds,
    is_automatic=False,  # building an engine takes minutes: never chosen automatically
    memory="cuda",
    pin=pin,
    native=native,
    hidden_by="CUDA_VISIBLE_DEVICES",
)
