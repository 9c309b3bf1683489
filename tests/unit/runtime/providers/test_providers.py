"""providers/: nothing but the provider asked for runs a graph unnoticed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import UsageError, first_line
from bulkinfer.runtime.onnxruntime_graph import open_session, prove
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec
from bulkinfer.runtime.providers.openvino import plugin_devices
from bulkinfer.runtime.session import describe_proof
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import EPFail

from tests.graphs import save, solid_batch
from tests.models import COLOURS, tiny_graph
from tests.openvino import plugin

HERE = ("cpu", "openvino")  # what every machine that runs the tests has


def spec(graph: str = "model.onnx", provider: str = "openvino", precision: str = "fp32", *, mixed: bool = False) -> SessionSpec:
    return SessionSpec(graph, provider, precision, streams=2, threads_per_stream=1, allow_cpu_nodes=mixed)


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


@pytest.mark.parametrize("mode", ["absent", "present"])
def test_c33_the_devices_of_a_plugin_may_be_asked_for_twice(mode: str) -> None:
    with plugin(mode):
        assert len(plugin_devices("CPU")) == len(plugin_devices("CPU")) == (mode == "present")
        assert plugin_devices("NPU") == []


@pytest.mark.usefixtures("openvino")
@pytest.mark.parametrize("name", HERE)
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


@pytest.mark.usefixtures("openvino")
@pytest.mark.parametrize("name", HERE)
def test_a_graph_that_cannot_be_loaded_is_a_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UsageError, match=rf"--device {name} cannot run \S+/model.onnx: ") as caught:
        open_session(spec(str(tmp_path / "model.onnx"), name))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("openvino")
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


def test_first_line() -> None:
    assert first_line(ValueError("\n one\n two")) == "one"
    assert first_line(RuntimeError()) == "RuntimeError"
    assert len(first_line(ValueError("x" * 1000))) == 300


def test_a_proof_in_words() -> None:
    mixed = Counter({"OpenVINOExecutionProvider": 9, "CPUExecutionProvider": 2})
    told = describe_proof(prove(spec(mixed=True), mixed, "CPU, plugin 9.9", "1.32.0"))
    nodes = "2 nodes on CPUExecutionProvider, 9 nodes on OpenVINOExecutionProvider"
    assert told == f"{nodes} (CPU, plugin 9.9), fp32, onnxruntime 1.32.0"


def test_a_session_that_silently_fell_back_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a runtime does whose libraries are missing: it logs, goes on, and everything runs on the processor."""

    def falls_back(options: Any, spec: SessionSpec) -> str:
        options.add_provider("CPUExecutionProvider", {})
        return "GPU 0, so it says"

    monkeypatch.setitem(PROVIDERS, "cuda", replace(PROVIDERS["cuda"], attach=falls_back))
    graph = save(tiny_graph(4), tmp_path)
    for mixed in (False, True):
        with pytest.raises(
            UsageError, match=r"--device cuda was asked for, but the session placed \d+ nodes on CPUExecution\w+$"
        ):
            open_session(spec(graph, "cuda", mixed=mixed))


@pytest.mark.usefixtures("openvino")
def test_a_provider_that_fails_in_the_middle_of_a_run_is_not_replaced(tmp_path: Path) -> None:
    """The runtime's own habit is to go on with another provider, and nobody would know."""
    session, _ = open_session(spec(save(tiny_graph(4), tmp_path), "openvino", mixed=True))

    class Broken:
        working = session._sess

        def __getattr__(self, name: str) -> Any:
            return getattr(self.working, name)

        def run(self, *words: Any) -> Any:
            raise EPFail("the device is lost")

    session._sess = Broken()
    with pytest.raises(EPFail, match="the device is lost"):
        session.run(None, {"images": np.zeros((4, 32, 32, 3), np.uint8)})
    assert session.get_providers()[0] == "OpenVINOExecutionProvider"


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "int8"])
def test_what_auto_may_take_for_a_precision_runs_one_graph(precision: str) -> None:
    automatic = [entry for entry in PROVIDERS.values() if entry.is_automatic and precision in entry.precisions]
    assert len({precision in entry.variants for entry in automatic}) == 1


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_entry_is_whole(name: str) -> None:
    entry = PROVIDERS[name]
    assert entry.ep_name.endswith("ExecutionProvider")
    assert set(entry.precisions) <= {"fp32", "bf16", "fp16", "int8"}
    assert set(entry.variants) <= set(entry.precisions) - {"fp32"}
    assert entry.modules[0] == "onnxruntime"
    assert entry.extra
    assert name == name.lower()
