"""providers.py: which provider runs what, and that nothing but the provider asked for runs a graph unnoticed."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import TensorProto, helper

from inference import providers
from inference.errors import UsageError, first_line
from inference.providers import PROVIDERS, SessionSpec, choose, describe_proof, open_session, prove
from tests.graphs import save, solid_batch
from tests.models import COLOURS, tiny_graph

FIND_SPEC = importlib.util.find_spec


def spec(graph: str = "model.onnx", provider: str = "openvino", precision: str = "fp32", *, mixed: bool = False) -> SessionSpec:
    return SessionSpec(graph, provider, precision, streams=2, threads_per_stream=1, allow_cpu_nodes=mixed)


def without(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """As if the package `missing` were not installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else FIND_SPEC(name))


@pytest.mark.parametrize(
    ("device", "precision", "name", "why"),
    [
        ("auto", "fp32", "cpu", "auto: cpu runs fp32"),
        ("auto", "bf16", "openvino", "auto: openvino runs bf16, cpu does not"),
        ("cpu", "fp32", "cpu", "as asked"),
        ("openvino", "fp32", "openvino", "as asked"),
        ("openvino", "bf16", "openvino", "as asked"),
    ],
)
def test_choose(device: str, precision: str, name: str, why: str) -> None:
    found, reason = choose(device, precision)
    assert found == name
    assert reason.startswith(why)


def test_a_precision_that_a_provider_lacks_names_who_has_it() -> None:
    with pytest.raises(UsageError, match=r"--device cpu has no --precision bf16; bf16 runs on openvino$"):
        choose("cpu", "bf16")


@pytest.mark.parametrize(
    ("missing", "device", "precision", "command"),
    [
        ("onnxruntime", "auto", "fp32", "pip install 'bulkinfer[cpu]'"),
        ("onnxruntime", "cpu", "fp32", "pip install 'bulkinfer[cpu]'"),
        ("onnxruntime", "openvino", "fp32", "pip install 'bulkinfer[openvino]'"),
        ("onnxruntime_ep_openvino", "openvino", "fp32", "pip install 'bulkinfer[openvino]'"),
        ("onnxruntime_ep_openvino", "auto", "bf16", "pip install 'bulkinfer[openvino]'"),
    ],
)
def test_a_missing_package_comes_with_its_command(
    monkeypatch: pytest.MonkeyPatch, missing: str, device: str, precision: str, command: str
) -> None:
    without(monkeypatch, missing)
    with pytest.raises(UsageError) as caught:
        choose(device, precision)
    assert f"needs the package {missing}: " in str(caught.value)
    assert str(caught.value).endswith(command)


def test_a_missing_plugin_does_not_matter_to_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "onnxruntime_ep_openvino")
    assert choose("auto", "fp32")[0] == "cpu"


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ({"CPUExecutionProvider": 241}, "241 nodes on CPUExecutionProvider"),
        ({"CPUExecutionProvider": 2, "OpenVINOExecutionProvider": 9}, "2 nodes on CPUExecutionProvider, 9 nodes on OpenVINO"),
        ({}, "no nodes at all"),
    ],
)
def test_a_silent_fallback_is_refused(nodes: dict[str, int], told: str) -> None:
    with pytest.raises(UsageError, match=rf"--device openvino was asked for, but the session placed {told}"):
        prove(spec(), Counter(nodes), "CPU", "1.32.0")


def test_allow_cpu_nodes_lets_some_through_but_not_all() -> None:
    mixed = Counter({"CPUExecutionProvider": 2, "OpenVINOExecutionProvider": 9})
    proof = prove(spec(mixed=True), mixed, "CPU", "1.32.0")
    assert proof["nodes"] == dict(mixed)
    assert proof["provider"] == "OpenVINOExecutionProvider"
    with pytest.raises(UsageError, match=r"but the session placed 9 nodes on CPUExecutionProvider$"):
        prove(spec(mixed=True), Counter({"CPUExecutionProvider": 9}), "CPU", "1.32.0")


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_a_real_graph_runs_where_it_was_asked_to(tmp_path: Path, name: str, kind: str) -> None:
    session, proof = open_session(spec(save(tiny_graph(4, input=kind), tmp_path), name))
    assert proof["provider"] == PROVIDERS[name].ep_name
    assert set(proof["nodes"]) == {PROVIDERS[name].ep_name}
    assert proof["nodes"][PROVIDERS[name].ep_name] >= 3
    assert (proof["precision"], proof["streams"], proof["threads_per_stream"]) == ("fp32", 2, 1)
    images = solid_batch(*list(COLOURS.values())[4:8])
    if kind == "float32":
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2) / np.float32(255))
    (logits,) = session.run(["logits"], {"images": images})
    assert logits.argmax(axis=1).tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_graph_that_cannot_be_loaded_is_a_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UsageError, match=rf"--device {name} cannot run \S+/model.onnx: ") as caught:
        open_session(spec(str(tmp_path / "model.onnx"), name))
    assert "\n" not in str(caught.value)


def test_nodes_that_the_plugin_cannot_run(tmp_path: Path) -> None:
    """Refused as asked for; run on the CPU provider, and told, if that is allowed."""
    nodes = [helper.make_node("Det", ["images"], ["volume"]), helper.make_node("Add", ["images", "volume"], ["out"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in ("images", "out")]
    graph = helper.make_graph(nodes, "mixed", values[:1], values[1:])
    path = save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path)
    with pytest.raises(UsageError, match=r"--device openvino cannot run .*; --allow_cpu_nodes lets it$"):
        open_session(spec(path))
    _, proof = open_session(spec(path, mixed=True))
    assert proof["nodes"] == {"OpenVINOExecutionProvider": 1, "CPUExecutionProvider": 1}


class Device(NamedTuple):
    """What the runtime tells of a device."""

    ep_name: str
    ep_metadata: dict[str, str]


class Options:
    """Takes what an attach function sets."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.load_config = ""

    def add_session_config_entry(self, name: str, value: str) -> None:
        self.entries[name] = value

    def add_provider_for_devices(self, devices: list[Device], options: dict[str, str]) -> None:
        (device,) = devices
        assert device.ep_metadata["ov_device"] == "CPU"
        self.load_config = options["load_config"]


def fake_devices(monkeypatch: pytest.MonkeyPatch, **metadata: str) -> None:
    gpu = Device("OpenVINOExecutionProvider", {"ov_device": "GPU"})
    devices = [gpu, Device("OpenVINOExecutionProvider", metadata)] if metadata else [gpu]
    monkeypatch.setattr(providers, "_openvino_devices", lambda: devices)


def test_bf16_where_it_is_native(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_devices(monkeypatch, ov_device="CPU", OPTIMIZATION_CAPABILITIES="WINOGRAD FP32 INT8 BF16 BIN", version="9.9")
    options = Options()
    assert PROVIDERS["openvino"].attach(options, spec(precision="bf16")) == "CPU, plugin 9.9"
    assert options.entries == {"session.disable_cpu_ep_fallback": "1"}
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
    fake_devices(monkeypatch, ov_device="CPU", OPTIMIZATION_CAPABILITIES=capabilities, FULL_DEVICE_NAME="Some Processor")
    with pytest.raises(UsageError, match=r"--precision bf16: Some Processor has no native bf16.*use --precision fp32"):
        open_session(spec(precision="bf16"))
    options = Options()
    PROVIDERS["openvino"].attach(options, spec(precision="fp32", mixed=True))
    assert options.entries == {"session.disable_cpu_ep_fallback": "0"}


def test_a_plugin_without_a_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_devices(monkeypatch)
    with pytest.raises(UsageError, match=r"offers no CPU here"):
        open_session(spec())


def test_a_plugin_that_does_not_load_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> list[Any]:
        raise ImportError("libtbb.so.12: cannot open shared object file\nand more")

    monkeypatch.setattr(providers, "_openvino_devices", fails)
    with pytest.raises(
        UsageError, match=r"--device openvino cannot run model.onnx: libtbb.so.12: cannot open shared object file$"
    ):
        open_session(spec())


def test_first_line() -> None:
    assert first_line(ValueError("\n one\n two")) == "one"
    assert first_line(RuntimeError()) == "RuntimeError"
    assert len(first_line(ValueError("x" * 1000))) == 300


def test_a_proof_in_words() -> None:
    mixed = Counter({"OpenVINOExecutionProvider": 9, "CPUExecutionProvider": 2})
    told = describe_proof(prove(spec(mixed=True), mixed, "CPU, plugin 9.9", "1.32.0"))
    nodes = "2 nodes on CPUExecutionProvider, 9 nodes on OpenVINOExecutionProvider"
    assert told == f"{nodes} (CPU, plugin 9.9), fp32, onnxruntime 1.32.0"
