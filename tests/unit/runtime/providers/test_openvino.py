"""providers/openvino.py: which device of the plugin, with which settings, and what it refuses. The runtime is a fake."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from bulkinfer.errors import AbsentError, UsageError
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec, openvino

NATIVE = "WINOGRAD FP32 INT8 BF16 BIN"


class Device(NamedTuple):
    """What the runtime tells of a device."""

    ep_name: str
    ep_metadata: dict[str, str]


def device(name: str, capabilities: str = "FP32 FP16", ep_name: str = "OpenVINOExecutionProvider") -> Device:
    facts = {"ov_device": name, "FULL_DEVICE_NAME": f"Some {name}", "OPTIMIZATION_CAPABILITIES": capabilities, "version": "9.9"}
    return Device(ep_name, facts)


class FakeRuntime:
    """Shows `devices` once the plugin is registered, or fails to register it."""

    __version__ = "1.2.3"

    def __init__(self, devices: list[Device], error: Exception | None = None) -> None:
        self.devices, self.error = devices, error
        self.registered: list[str] = []

    def get_ep_devices(self) -> list[Device]:
        return [Device("CPUExecutionProvider", {}), *(self.devices if self.registered else [])]

    def register_execution_provider_library(self, name: str, path: str) -> None:
        if self.error:
            raise self.error
        self.registered.append(path)


class Options:
    """Takes what an attach function sets."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.load_config = ""
        self.device = ""

    def add_session_config_entry(self, name: str, value: str) -> None:
        self.entries[name] = value

    def add_provider_for_devices(self, devices: list[Device], options: dict[str, str]) -> None:
        (chosen,) = devices
        self.device = chosen.ep_metadata["ov_device"]
        self.load_config = options["load_config"]


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(openvino.VARIABLE, "plugin")
    monkeypatch.setitem(
        sys.modules, "onnxruntime_ep_openvino", SimpleNamespace(__version__="4.5.6", get_library_path=lambda: "plugin.so")
    )


def attach(
    monkeypatch: pytest.MonkeyPatch,
    devices: list[Device],
    provider: str = "openvino",
    precision: str = "fp32",
    **spec: Any,
) -> tuple[str, Options]:
    monkeypatch.setattr(openvino, "runtime", lambda: FakeRuntime(devices))
    options = Options()
    return PROVIDERS[provider].attach(options, SessionSpec("m.onnx", provider, precision, 2, 1, **spec)), options


def test_what_is_native_is_told_without_the_plugin_on_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    for features, expected in (
        ({"sse2", "amx_bf16"}, "bf16"),
        ({"avx512_bf16"}, "bf16"),
        ({"avx512_vnni", "amx_int8"}, "fp32"),
    ):
        monkeypatch.setattr(openvino, "processor_features", lambda features=features: frozenset(features))
        assert PROVIDERS["openvino"].native((0,))[0] == expected
    assert PROVIDERS["openvino"].native((0,))[1] == "this processor has neither AMX nor AVX512-BF16"


def test_gpus_of_intel_tell_what_is_native(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [device("GPU.0"), device("GPU.1", "FP32"), device("NPU")]
    monkeypatch.setattr(openvino, "runtime", lambda: FakeRuntime(devices))
    assert PROVIDERS["openvino:gpu"].native((0,)) == ("fp16", "")
    assert PROVIDERS["openvino:gpu"].native((0, 1)) == ("fp32", "this GPU does not compute in fp16")
    assert PROVIDERS["openvino:npu"].native((0,)) == ("fp16", "")


def test_bf16_where_it_is_native(monkeypatch: pytest.MonkeyPatch) -> None:
    told, options = attach(monkeypatch, [device("GPU"), device("CPU", NATIVE)], precision="bf16")
    assert told == "CPU, plugin 9.9"
    assert (options.device, options.entries) == ("CPU", {"session.disable_cpu_ep_fallback": "1"})
    assert json.loads(options.load_config) == {
        "CPU": {
            "INFERENCE_PRECISION_HINT": "bf16",
            "NUM_STREAMS": "2",
            "INFERENCE_NUM_THREADS": "2",
            "ENABLE_CPU_PINNING": "NO",
        }
    }


@pytest.mark.parametrize("capabilities", ["WINOGRAD FP32 INT8 BIN", "NOT_BF16_AT_ALL", ""])
def test_bf16_where_it_would_be_emulated_is_refused(monkeypatch: pytest.MonkeyPatch, capabilities: str) -> None:
    devices = [device("CPU", capabilities)]
    with pytest.raises(UsageError, match=r"--precision bf16: Some CPU has no native bf16.*use --precision fp32"):
        attach(monkeypatch, devices, precision="bf16")
    _, options = attach(monkeypatch, devices, allow_cpu_nodes=True)
    assert options.entries == {"session.disable_cpu_ep_fallback": "0"}


@pytest.mark.parametrize(("number", "name"), [(0, "GPU.0"), (1, "GPU.1")])
def test_a_gpu_by_its_number(monkeypatch: pytest.MonkeyPatch, number: int, name: str) -> None:
    devices = [device("GPU.1"), device("CPU"), device("GPU.0"), device("NPU"), device("GPU", ep_name="Another")]
    told, options = attach(monkeypatch, devices, "openvino:gpu", "fp16", device=number)
    assert options.device == name
    assert told == f"{name}, Some {name}, plugin 9.9"
    assert json.loads(options.load_config) == {"GPU": {"INFERENCE_PRECISION_HINT": "f16", "NUM_STREAMS": "2"}}


def test_a_gpu_that_does_not_compute_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"--precision fp16: Some GPU does not compute in fp16: use --precision fp32"):
        attach(monkeypatch, [device("GPU", "FP32")], "openvino:gpu", "fp16")


def test_devices_are_counted_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino, "runtime", lambda: FakeRuntime([device("GPU.0"), device("NPU"), device("GPU.1")]))
    assert PROVIDERS["openvino:gpu"].find_devices() == ["Some GPU.0", "Some GPU.1"]
    assert PROVIDERS["openvino:npu"].find_devices() == ["Some NPU"]
    for others, way_out in (([device("CPU")], "openvino"), ([], "cpu")):
        monkeypatch.setattr(openvino, "runtime", lambda others=others: FakeRuntime(others))
        missing = rf"--device openvino:npu: OpenVINO finds no NPU here: install its driver, or use --device {way_out}$"
        with pytest.raises(UsageError, match=missing):
            PROVIDERS["openvino:npu"].find_devices()


def test_the_processor_is_one_device_whatever_the_plugin_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino, "runtime", lambda: FakeRuntime([device("CPU"), device("GPU")]))
    assert PROVIDERS["openvino"].find_devices() == ["the processor"]


@pytest.mark.parametrize("devices", [[], [device("GPU")]], ids=["nothing", "a GPU"])
def test_c33_a_plugin_that_does_not_serve_the_processor_counts_as_absent_and_the_vendor_is_named(
    monkeypatch: pytest.MonkeyPatch, devices: list[Device]
) -> None:
    monkeypatch.setattr(openvino, "processor_vendor", lambda: "AuthenticAMD")
    sentence = r"^--device openvino: its plugin does not serve this processor \(AuthenticAMD\): use --device cpu$"
    with pytest.raises(AbsentError, match=sentence):
        attach(monkeypatch, devices)
    with pytest.raises(AbsentError, match=sentence):
        PROVIDERS["openvino"].find_devices()


def test_c33_a_plugin_without_devices_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime([])
    monkeypatch.setattr(openvino, "runtime", lambda: runtime)
    assert [openvino.plugin_devices(kind) for kind in ("CPU", "CPU", "GPU")] == [[], [], []]
    assert runtime.registered == ["plugin.so"]


def test_a_plugin_that_does_not_fit_the_runtime_names_both_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("The requested API version [99] is not available\nand more")
    monkeypatch.setattr(openvino, "runtime", lambda: FakeRuntime([], error))
    with pytest.raises(UsageError) as caught:
        openvino.plugin_devices("CPU")
    assert str(caught.value) == (
        "--device openvino: the plugin onnxruntime_ep_openvino 4.5.6 with onnxruntime 1.2.3 does not load (The requested API "
        "version [99] is not available): pip install --upgrade onnxruntime onnxruntime-ep-openvino"
    )


def test_in_int8_the_graph_says_what_is_quantised_and_the_rest_stays_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    _, options = attach(monkeypatch, [device("CPU", "FP32")], precision="int8")
    assert json.loads(options.load_config)["CPU"]["INFERENCE_PRECISION_HINT"] == "f32"
