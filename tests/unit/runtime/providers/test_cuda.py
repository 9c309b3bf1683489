"""providers/cuda.py: counting GPUs, what is missing and which command brings it, settings. Driver and runtime are fakes."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bulkinfer.config import LaunchConfig
from bulkinfer.errors import AbsentError, UsageError
from bulkinfer.host.cores import CoreBudget
from bulkinfer.runtime.devices import find_candidates, parse_device, plan_workers
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec, cuda

GPUS = ["NVIDIA A", "NVIDIA B"]


class FakeDriver:
    """libcuda as ctypes shows it, with `names` as the GPUs of the host; `fails` maps a function to the code it gives."""

    def __init__(self, names: list[str], fails: dict[str, int] | None = None) -> None:
        self.names, self.fails = names, fails or {}
        self.calls: list[str] = []

    def __getattr__(self, function: str) -> Any:
        return lambda *arguments: self.fails.get(function) or getattr(self, f"_{function}")(*arguments)

    def _cuInit(self, flags: int) -> int:  # noqa: N802 -- the driver's name
        return 0

    def visible(self) -> list[int]:
        """Numbers of the host, by their place in what the driver shows."""
        asked = os.environ.get("CUDA_VISIBLE_DEVICES")
        known = {str(number): number for number in range(len(self.names))} | {"GPU-b": 1}
        return list(range(len(self.names))) if asked is None else [known[word] for word in asked.split(",") if word]

    def _cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802 -- the same
        count._obj.value = len(self.visible())
        return 0

    def _cuDeviceGet(self, handle: Any, number: int) -> int:  # noqa: N802 -- the same
        handle._obj.value = self.visible()[number]
        return 0

    def _cuDeviceGetName(self, name: Any, size: int, handle: Any) -> int:  # noqa: N802 -- the same
        name.value = self.names[handle.value].encode()[: size - 1]
        return 0

    def _cuDeviceGetPCIBusId(self, bus: Any, size: int, handle: Any) -> int:  # noqa: N802 -- the same
        bus.value = b"0000:0%d:00.0" % handle.value
        return 0

    def _cuDeviceGetAttribute(self, value: Any, attribute: int, handle: Any) -> int:  # noqa: N802 -- the same
        assert attribute == 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        value._obj.value = 6 if "old" in self.names[handle.value] else 9
        return 0

    def _cuDevicePrimaryCtxRetain(self, context: Any, handle: Any) -> int:  # noqa: N802 -- the same
        context._obj.value = 1000 + handle.value
        self.calls.append(f"retain {handle.value}")
        return 0

    def _cuCtxPushCurrent_v2(self, context: Any) -> int:  # noqa: N802 -- the same
        self.calls.append(f"push {context.value}")
        return 0

    def _cuMemHostRegister_v2(self, address: Any, size: Any, flags: int) -> int:  # noqa: N802 -- the same
        self.calls.append(f"register {address.value} {size.value} {flags}")
        return 0

    def _cuCtxPopCurrent_v2(self, context: Any) -> int:  # noqa: N802 -- the same
        self.calls.append("pop")
        return 0


class Host:
    """A machine: packages with their versions, the providers that onnxruntime was built with, a driver, libraries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages = {"onnxruntime-gpu": "1.31.1"}
        self.built_with = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
        self.driver: FakeDriver | None = FakeDriver(GPUS)
        self.missing: dict[str, str] = {}  # by part of a path: what the loader says
        self.preloaded = 0
        (folder / "capi").mkdir()
        self.shared("cuda").touch()

    def shared(self, library: str) -> Path:
        return self.folder / "capi" / f"libonnxruntime_providers_{library}.so"

    def load(self, path: str, mode: int = 0) -> Any:
        if path == "libcuda.so.1" and self.driver:
            return self.driver
        if path == "libcuda.so.1":
            raise OSError("libcuda.so.1: cannot open shared object file: No such file or directory")
        for part, error in self.missing.items():
            if part in path:
                raise OSError(error)
        assert path.startswith(str(self.folder)), path
        return None

    def version(self, package: str) -> str:
        if package not in self.packages:
            raise importlib.metadata.PackageNotFoundError(package)
        return self.packages[package]

    def preload_dlls(self) -> None:
        self.preloaded += 1

    def get_available_providers(self) -> list[str]:
        return self.built_with


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path)
    runtime = SimpleNamespace(
        __file__=str(tmp_path / "__init__.py"),
        preload_dlls=host.preload_dlls,
        get_available_providers=host.get_available_providers,
    )
    monkeypatch.setattr(cuda, "runtime", lambda: runtime)
    monkeypatch.setattr(importlib.metadata, "version", host.version)
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found if name == "onnxruntime" else None)
    monkeypatch.setattr(ctypes, "CDLL", host.load)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "")  # so that it is taken away again afterwards
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    return host


def refusal(device: str = "cuda") -> str:
    with pytest.raises(UsageError) as caught:
        PROVIDERS[device].find_devices()
    return str(caught.value)


@pytest.mark.parametrize("device", ["cuda", "tensorrt"])
def test_gpus_are_counted_and_named(host: Host, device: str) -> None:
    assert PROVIDERS[device].find_devices() == ["NVIDIA A at 0000:00:00.0", "NVIDIA B at 0000:01:00.0"]


@pytest.mark.parametrize(
    ("visible", "asked", "given"),
    [
        (None, "cuda", {0: "NVIDIA A at 0000:00:00.0", 1: "NVIDIA B at 0000:01:00.0"}),
        (None, "cuda:1", {1: "NVIDIA B at 0000:01:00.0"}),
        ("1", "cuda", {0: "NVIDIA B at 0000:01:00.0"}),
        ("1", "cuda:0", {0: "NVIDIA B at 0000:01:00.0"}),
        ("1,0", "cuda:1", {1: "NVIDIA A at 0000:00:00.0"}),
        ("GPU-b", "cuda:0", {0: "NVIDIA B at 0000:01:00.0"}),
    ],
)
def test_b41_a_number_is_a_place_among_the_visible_devices(
    host: Host, monkeypatch: pytest.MonkeyPatch, visible: str | None, asked: str, given: dict[int, str]
) -> None:
    """OpenNMT/OpenNMT-py#609: with device 1 alone visible it is number 0. Each worker gets exactly one."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (choice,) = find_candidates(parse_device(asked, "fp32")).choices
    assert dict(zip(choice.numbers, choice.names, strict=True)) == given
    assert plan_workers(LaunchConfig(), choice, CoreBudget((0, 1), None)).devices == tuple(given)
    assert all(f"{number}: {name}" in str(choice) for number, name in given.items())


@pytest.mark.parametrize(
    ("visible", "asked", "told"),
    [
        ("1", "cuda:1", r"--device cuda:1 is not here; there are 0: NVIDIA B at 0000:01:00.0 \(CUDA_VISIBLE_DEVICES is '1'\)$"),
        ("1,0", "cuda:0,2", r"--device cuda:2 is not here; there are 0: NVIDIA B at \S+, 1: NVIDIA A at \S+ \(CUDA_VISIBLE"),
        ("", "cuda:0", r"the NVIDIA driver shows no GPU \(CUDA_VISIBLE_DEVICES is ''\)"),
        ("0", "cuda:-1", r"--device cuda:-1: devices are picked by number"),
    ],
)
def test_b41_devices_that_are_not_visible_are_refused_with_the_mapping(
    host: Host, monkeypatch: pytest.MonkeyPatch, visible: str, asked: str, told: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(UsageError, match=told):
        find_candidates(parse_device(asked, "fp32"))


def test_the_runtime_is_built_for_processors_only(host: Host) -> None:
    host.packages = {"onnxruntime": "1.32.0"}
    host.shared("cuda").unlink()
    assert refusal() == (
        "--device cuda: the installed onnxruntime 1.32.0 is built without CUDAExecutionProvider: "
        "pip uninstall --yes onnxruntime onnxruntime-gpu && pip install '.[gpu]'"
    )
    with pytest.raises(UsageError) as with_driver:  # a GPU lies idle: worth a word also where nobody asked for it
        PROVIDERS["cuda"].find_devices()
    assert not isinstance(with_driver.value, AbsentError)
    host.driver = None
    with pytest.raises(AbsentError):
        PROVIDERS["cuda"].find_devices()
    assert refusal("tensorrt").endswith("onnxruntime onnxruntime-gpu && pip install '.[tensorrt]'")


def test_two_runtimes_that_overwrite_each_other(host: Host) -> None:
    """The libraries of the one lie there, and the module of the other is imported."""
    host.packages["onnxruntime"] = "1.32.0"
    host.built_with = ["CPUExecutionProvider"]
    assert refusal() == (
        "--device cuda: onnxruntime 1.32.0 and onnxruntime-gpu 1.31.1 are both installed and overwrite each other: "
        "pip uninstall --yes onnxruntime onnxruntime-gpu && pip install '.[gpu]'"
    )


def test_no_driver(host: Host) -> None:
    host.driver = None
    assert refusal().startswith("--device cuda: no NVIDIA driver here (libcuda.so.1: cannot open shared object file")
    assert refusal().endswith("install it, or use --device cpu")


@pytest.mark.parametrize(
    "driver", [FakeDriver([]), FakeDriver(GPUS, {"cuInit": 100}), FakeDriver([], {"cuDeviceGetCount": 100})]
)
def test_no_gpu(host: Host, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    host.driver = driver
    assert refusal() == "--device cuda: the NVIDIA driver shows no GPU: use --device cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert refusal() == "--device cuda: the NVIDIA driver shows no GPU (CUDA_VISIBLE_DEVICES is ''): use --device cpu"


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetPCIBusId"])
def test_a_driver_that_fails(host: Host, function: str) -> None:
    host.driver = FakeDriver(GPUS, {function: 999})
    assert refusal() == f"--device cuda: the NVIDIA driver fails ({function} gives 999): try nvidia-smi"


def test_pages_are_locked_in_the_primary_context_of_the_device(host: Host) -> None:
    driver = host.driver = FakeDriver(GPUS)
    images = np.zeros((4, 8, 8, 3), np.uint8)
    assert PROVIDERS["cuda"].pin is not None
    assert PROVIDERS["cuda"].pin(images, 1) == ""
    assert driver.calls == ["retain 1", "push 1001", f"register {images.ctypes.data} {images.nbytes} 1", "pop"]
    for function in ("cuDevicePrimaryCtxRetain", "cuMemHostRegister_v2"):
        host.driver = FakeDriver(GPUS, {function: 1})
        assert PROVIDERS["cuda"].pin(images, 1) == f"{function} gives 1"


class Options:
    """Takes what an attach function sets."""

    use_deterministic_compute = False

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.providers: dict[str, dict[str, str]] = {}

    def add_session_config_entry(self, name: str, value: str) -> None:
        self.entries[name] = value

    def add_provider(self, name: str, settings: dict[str, str]) -> None:
        self.providers[name] = settings


def attach(provider: str, graph: Path, precision: str = "fp32", device: int = 1) -> tuple[str, Options]:
    options = Options()
    return PROVIDERS[provider].attach(options, SessionSpec(str(graph), provider, precision, 2, 1, device=device)), options


def test_cuda_runs_on_the_device_picked_in_full_precision(host: Host, tmp_path: Path) -> None:
    told, options = attach("cuda", tmp_path / "model_6.onnx")
    assert told == "GPU 1, NVIDIA B at 0000:01:00.0"
    (settings,) = options.providers.values()
    assert (settings["device_id"], settings["use_tf32"]) == ("1", "0")
    assert options.use_deterministic_compute
    assert options.entries == {"session.disable_cpu_ep_fallback": "1"}
    assert "prefer_nhwc" not in settings
    assert host.preloaded == 1


def test_cuda_in_half_precision_differs_in_the_layout_of_its_kernels(host: Host, tmp_path: Path) -> None:
    full, half = (
        attach("cuda", tmp_path / "model_6.onnx", precision)[1].providers["CUDAExecutionProvider"]
        for precision in ("fp32", "fp16")
    )
    assert half == {**full, "prefer_nhwc": "1"}
    assert PROVIDERS["cuda"].variants == ("fp16",)
    assert PROVIDERS["tensorrt"].variants == ()


@pytest.mark.parametrize(
    ("device", "library", "error", "command"),
    [
        ("cuda", "cuda", "libcudnn.so.9: cannot open shared object file", "pip install '.[gpu]'"),
        ("cuda", "shared", "libonnxruntime_providers_shared.so: file too short", "pip install '.[gpu]'"),
        ("tensorrt", "tensorrt", "libnvinfer.so.10: cannot open shared object file", "pip install '.[tensorrt]'"),
    ],
)
def test_a_missing_library_is_named(host: Host, tmp_path: Path, device: str, library: str, error: str, command: str) -> None:
    """onnxruntime logs it and goes on without the provider."""
    host.missing = {f"providers_{library}.so": error}
    with pytest.raises(UsageError) as caught:
        attach(device, graph_of(tmp_path))
    assert (
        str(caught.value)
        == f"--device {device}: a library is missing ({error}): {command}, or name its folder in LD_LIBRARY_PATH"
    )


def graph_of(folder: Path, content: bytes = b"a graph") -> Path:
    path = folder / "model_6.onnx"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("precision", "halves", "brains"), [("fp32", "0", "0"), ("fp16", "1", "0"), ("bf16", "0", "1")])
def test_tensorrt_keeps_its_engines_beside_the_graph(
    host: Host, tmp_path: Path, precision: str, halves: str, brains: str
) -> None:
    graph = graph_of(tmp_path)
    told, options = attach("tensorrt", graph, precision)
    (settings,) = options.providers.values()
    folder = tmp_path / "tensorrt" / hashlib.sha256(b"a graph").hexdigest()[:16]
    assert told == f"GPU 1, NVIDIA B at 0000:01:00.0, engines kept in {folder}"
    assert (settings["trt_fp16_enable"], settings["trt_bf16_enable"]) == (halves, brains)
    assert settings["trt_engine_cache_path"] == str(folder)
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"


def test_half_precision_is_native_where_all_gpus_have_units_for_it(host: Host) -> None:
    for name in ("cuda", "tensorrt"):
        assert PROVIDERS[name].native((0, 1)) == ("fp16", "")
    host.driver = FakeDriver(["NVIDIA A", "NVIDIA old"])
    assert PROVIDERS["cuda"].native((0,)) == ("fp16", "")
    told = "GPU 1 has no units for fp16 (compute capability 6, needed is 7)"
    assert PROVIDERS["cuda"].native((0, 1)) == ("fp32", told)
    host.driver = FakeDriver(GPUS, fails={"cuDeviceGetAttribute": 1})
    told = "the driver does not report what GPU 0 can do (cuDeviceGetAttribute gives 1)"
    assert PROVIDERS["cuda"].native((0,)) == ("fp32", told)


def test_an_engine_is_of_one_graph_and_its_weights(host: Host, tmp_path: Path) -> None:
    """The graph's bytes name its weights by their hash; the runtime's own name for an engine does not."""
    folders = set()
    for content in (b"weights-0a.bin", b"weights-0b.bin", b"weights-0a.bin"):
        _, options = attach("tensorrt", graph_of(tmp_path, content))
        folders.add(options.providers["TensorrtExecutionProvider"]["trt_engine_cache_path"])
    assert len(folders) == 2


def test_one_process_builds_the_engine_and_the_others_wait(host: Host, tmp_path: Path) -> None:
    spec = SessionSpec(str(graph_of(tmp_path)), "tensorrt", "fp32", 2, 1)
    inside: list[str] = []

    def second() -> None:
        with PROVIDERS["tensorrt"].opening(spec):
            inside.append("second")

    thread = threading.Thread(target=second)
    with PROVIDERS["tensorrt"].opening(spec):
        thread.start()
        time.sleep(0.1)
        inside.append("first")
    thread.join(60)
    assert inside == ["first", "second"]


def test_engines_that_cannot_be_kept_are_refused(host: Host, tmp_path: Path) -> None:
    (tmp_path / "tensorrt").write_text("a file in its place")
    spec = SessionSpec(str(graph_of(tmp_path)), "tensorrt", "fp32", 2, 1)
    with pytest.raises(UsageError, match=r"--device tensorrt keeps its engines in \S+, which cannot be written \(") as caught:
        PROVIDERS["tensorrt"].opening(spec).__enter__()
    assert str(caught.value).endswith("make it writable")
