"""providers/openvino_runtime.py: OpenVINO's own runtime, for real, on any processor; and which backend takes a processor."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bulkinfer.errors import AbsentError, UsageError
from bulkinfer.host.versions import NATIVE_HALVES, processor_features
from bulkinfer.runtime.devices import as_begun, find_candidates, parse_device
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec, entry_of, openvino
from bulkinfer.runtime.providers.openvino_runtime import openvino_reason
from bulkinfer.runtime.session import Session, describe_proof
from onnx import TensorProto, helper, numpy_helper

from tests.graphs import save
from tests.models import tiny_graph

PLUGIN, OWN = "onnxruntime-ep-openvino", "openvino"


def own(graph: str, precision: str = "fp32", streams: int = 2) -> SessionSpec:
    return SessionSpec(graph, "openvino", precision, streams, 1, backend=OWN)


def convolutions(batch_size: int = 4) -> onnx.ModelProto:
    """uint8 pictures of 16 x 16, two convolutions and a mean: `logits`."""
    rng = np.random.default_rng(3)
    weights = {"a": rng.normal(0, 0.2, (32, 3, 3, 3)), "b": rng.normal(0, 0.1, (64, 32, 3, 3))}
    nodes = [
        helper.make_node("Cast", ["images"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["float"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["planes", "a"], ["first"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["first"], ["positive"]),
        helper.make_node("Conv", ["positive", "b"], ["second"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["second"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, [batch_size, 16, 16, 3])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch_size, 64])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def pictures(shape: tuple[int, ...], seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("graph", [tiny_graph(4), convolutions()], ids=["tiny", "convolutions"])
def test_rows_in_fp32_are_those_of_the_cpu_provider(tmp_path: Path, graph: onnx.ModelProto) -> None:
    path, names = save(graph, tmp_path), [output.name for output in graph.graph.output]
    session, expected = Session(own(path), names), Session(SessionSpec(path, "cpu", "fp32", 2, 1), names)
    assert (session.batch_shape, session.dtype, session.output_shapes) == (
        expected.batch_shape,
        expected.dtype,
        expected.output_shapes,
    )
    images = pictures(session.batch_shape)
    there = expected.run(images)
    for name, values in session.run(images).items():
        assert values.dtype == there[name].dtype
        assert np.abs(values - there[name]).max() <= 1e-3 * np.abs(there[name]).max()


def test_threads_share_a_session_and_keep_their_rows_apart(tmp_path: Path) -> None:
    """More threads than streams, each with pictures of its own; an array that was returned does not change later."""
    session = Session(own(save(convolutions(), tmp_path)), ["logits"])
    images = [pictures(session.batch_shape, seed) for seed in range(5)]
    expected = [session.run(each)["logits"] for each in images]
    found: dict[int, list[Any]] = {number: [] for number in range(5)}

    def runs(number: int) -> None:
        found[number] = [session.run(images[number])["logits"] for _ in range(20)]

    threads = [threading.Thread(target=runs, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, values in found.items():
        assert len(values) == 20
        assert all(np.array_equal(each, expected[number]) for each in values)


def test_the_proof_is_what_the_compiled_network_says(tmp_path: Path) -> None:
    session = Session(own(save(convolutions(), tmp_path)), ["logits"])
    proof = session.proof
    assert (proof["provider"], proof["precision"], proof["streams"], proof["threads_per_stream"]) == ("OpenVINO", "fp32", 2, 1)
    assert proof["nodes"] == {"OpenVINO": sum(proof["nodes_by_type"].values())}
    assert proof["nodes_by_type"]["f32"] >= 2
    assert not {"bf16", "f16"} & proof["nodes_by_type"].keys()
    assert describe_proof(proof).endswith(f"), openvino {proof['openvino']}")
    assert f"fp32 ({proof['nodes_by_type']['f32']} in f32" in describe_proof(proof)


def test_bf16_is_proved_where_the_processor_has_it_and_refused_elsewhere(tmp_path: Path) -> None:
    path = save(convolutions(), tmp_path)
    if processor_features() & NATIVE_HALVES["bfloat16"]:
        session = Session(own(path, "bf16"), ["logits"])
        assert session.proof["nodes_by_type"]["bf16"] >= 2
        images = pictures(session.batch_shape)
        exact = Session(own(path), ["logits"]).run(images)["logits"]
        error = np.abs(session.run(images)["logits"] - exact).max() / np.abs(exact).max()
        assert 0 < error < 0.05
    else:
        with pytest.raises(UsageError, match=r"^--precision bf16 was asked for, but OpenVINO computes .*: 2 in f32: use"):
            Session(own(path, "bf16"), ["logits"])


def test_int8_that_a_graph_does_not_ask_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--precision int8 was asked for, but OpenVINO computes .*: 2 in f32: use another"):
        Session(own(save(convolutions(), tmp_path), "int8"), ["logits"])


def test_a_graph_that_it_does_not_take_is_one_sentence(tmp_path: Path) -> None:
    node = helper.make_node("Det", ["x"], ["y"])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 3])]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    path = save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path)
    with pytest.raises(UsageError) as caught:
        Session(own(path), ["y"])
    assert str(caught.value) == f"--device openvino cannot run {path}: No conversion rule found for operations: Det-20"


def test_the_reason_in_an_error_is_one_line() -> None:
    lines = ["Exception from a.cpp:84:", "Check 'false' failed at b.cpp:1:", "-- Softmax-20 with a message:", "Axis 99 is out."]
    told = "\n".join([*lines, "-- Conversion is failed for: Softmax-20"])
    assert openvino_reason(RuntimeError(told)) == "Axis 99 is out"
    assert openvino_reason(RuntimeError("no memory")) == "no memory"
    assert openvino_reason(RuntimeError("std::bad_alloc")).startswith("out of memory")
    assert openvino_reason(RuntimeError("")) == "RuntimeError"


def test_a_package_that_does_not_load_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(convolutions(), tmp_path)
    monkeypatch.setitem(sys.modules, "openvino", None)  # its import raises ImportError
    told = r"^--device openvino: the package openvino does not load \(.+\): pip install --force-reinstall openvino, or use "
    with pytest.raises(UsageError, match=told):
        Session(own(path), ["logits"])


OPENS = """
import sys
from bulkinfer.runtime.providers import SessionSpec
from bulkinfer.runtime.session import Session
Session(SessionSpec({path!r}, {provider!r}, "fp32", 1, 1, backend={backend!r}), {outputs!r})
print(*sorted(name for name in sys.modules if "openvino" in name and not name.startswith("bulkinfer")))
print(open("/proc/self/maps").read())
"""


def test_neither_telemetry_nor_the_plugin_is_loaded(tmp_path: Path) -> None:
    graph = convolutions()
    home = tmp_path / "home"
    home.mkdir()
    code = OPENS.format(path=save(graph, tmp_path), provider="openvino", backend=OWN, outputs=["logits"])
    environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    modules, maps = done.stdout.split("\n", 1)
    assert "openvino" in modules.split()
    assert "telemetry" not in " ".join(name for name in modules.split() if not name.startswith("openvino.tools.ovc."))
    assert "libopenvino" in maps
    assert "onnxruntime_ep_openvino" not in maps
    assert not list(home.iterdir())
    assert done.stderr == ""


# -- which backend takes the processor -----------------------------------------------------------------------------------


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what this host has: the vendor of its processor, the packages, what the plugin serves, BULKINFER_OPENVINO."""

    def has(vendor: str, *packages: str, serves: bool, wanted: str = "") -> None:
        here = {"onnxruntime": "1.32.0", **dict.fromkeys(packages, "1.0")}
        device = type("Device", (), {"ep_metadata": {"ov_device": "CPU"}})()
        monkeypatch.setattr(openvino, "processor_vendor", lambda: vendor)
        monkeypatch.setattr(openvino, "plugin_devices", lambda kind: [device] if serves and kind == "CPU" else [])
        monkeypatch.setattr("bulkinfer.runtime.providers.openvino.versions", lambda: here)
        monkeypatch.setattr("bulkinfer.runtime.providers.spec.versions", lambda: here)
        names = {"onnxruntime_ep_openvino": PLUGIN, "openvino": OWN}
        monkeypatch.setattr("importlib.util.find_spec", lambda name: names.get(name, "onnxruntime") in here or None)
        monkeypatch.setenv(openvino.VARIABLE, wanted)

    return has


def asked(device: str = "openvino") -> Any:
    (choice,) = find_candidates(parse_device(device, "fp32")).choices
    return choice


INTEL, AMD = "GenuineIntel", "AuthenticAMD"


@pytest.mark.parametrize(
    ("vendor", "packages", "serves", "wanted", "backend"),
    [
        (INTEL, (PLUGIN, OWN), True, "", PLUGIN),
        (INTEL, (PLUGIN, OWN), True, "runtime", OWN),
        (INTEL, (PLUGIN, OWN), False, "", OWN),
        (INTEL, (OWN,), True, "", OWN),
        (AMD, (PLUGIN, OWN), False, "", OWN),
        (AMD, (PLUGIN, OWN), True, "", OWN),
        (AMD, (PLUGIN, OWN), True, "plugin", PLUGIN),
        (AMD, (PLUGIN,), True, "", PLUGIN),
        (AMD, (OWN,), False, "", OWN),
    ],
)
def test_which_backend(host: Any, vendor: str, packages: tuple[str, ...], serves: bool, wanted: str, backend: str) -> None:
    host(vendor, *packages, serves=serves, wanted=wanted)
    choice = asked()
    assert (choice.backend, choice.entry) == (backend, entry_of("openvino", backend))
    assert choice.entry.backend_version == f"{backend} 1.0"
    assert str(choice) == ("openvino by openvino 1.0 (as asked)" if backend == OWN else "openvino (as asked)")


@pytest.mark.parametrize(
    ("vendor", "packages", "wanted", "sentence"),
    [
        (AMD, (PLUGIN,), "", "its plugin does not serve this processor (AuthenticAMD): install OpenVINO's own runtime "
                             "(pip install '.[openvino]'), or use --device cpu"),
        (AMD, (PLUGIN, OWN), "plugin", "its plugin does not serve this processor (AuthenticAMD): use --device cpu"),
        (INTEL, (PLUGIN,), "runtime", "OpenVINO's own runtime, which BULKINFER_OPENVINO asks for, is not here: "
                                      "install it (pip install '.[openvino]'), or unset the variable"),
    ],
)  # fmt: skip
def test_no_backend_is_one_sentence(host: Any, vendor: str, packages: tuple[str, ...], wanted: str, sentence: str) -> None:
    host(vendor, *packages, serves=False, wanted=wanted)
    with pytest.raises(AbsentError) as caught:
        asked()
    assert str(caught.value) == f"--device openvino: {sentence}"


def test_neither_installed_comes_with_the_command(host: Any) -> None:
    host(AMD, serves=False)
    with pytest.raises(AbsentError, match=r"^--device openvino needs the package onnxruntime_ep_openvino: pip install '\."):
        asked()


def test_another_word_in_the_variable_is_refused(host: Any) -> None:
    host(INTEL, PLUGIN, serves=True, wanted="both")
    with pytest.raises(
        UsageError, match=r"^the environment variable BULKINFER_OPENVINO is 'both': set it to plugin or runtime"
    ):
        asked()


def test_a_job_stays_with_the_backend_that_it_began_with(host: Any) -> None:
    auto = parse_device("auto", "fp32")
    host(INTEL, PLUGIN, OWN, serves=True)
    assert as_begun("openvino", "fp32", auto, "out", "openvino 1.0").backend == OWN
    assert as_begun("openvino", "fp32", auto, "out", f"{PLUGIN} 0.9").backend == PLUGIN  # a warning tells that it is newer
    assert as_begun("openvino", "fp32", auto, "out").backend == PLUGIN  # files of earlier versions do not name it
    with pytest.raises(UsageError, match=r"^out was begun on openvino in fp32 by openvino 0\.9, and here runs openvino 1\.0: "):
        as_begun("openvino", "fp32", auto, "out", "openvino 0.9")


def test_a_job_whose_backend_is_not_here_is_refused_with_both_named(host: Any) -> None:
    auto = parse_device("auto", "fp32")
    host(AMD, PLUGIN, OWN, serves=False)
    begun = r"out was begun on openvino in fp32 by onnxruntime-ep-openvino 0\.9, and here runs openvino 1\.0: give another"
    with pytest.raises(UsageError, match=begun):
        as_begun("openvino", "fp32", auto, "out", f"{PLUGIN} 0.9")
    host(INTEL, PLUGIN, serves=True)
    begun = r"by openvino 0\.9, and here runs onnxruntime-ep-openvino 1\.0: give another --output to start a new job$"
    with pytest.raises(UsageError, match=begun):
        as_begun("openvino", "fp32", auto, "out", "openvino 0.9")


def test_both_entries_promise_the_same() -> None:
    plugin, runtime = PROVIDERS["openvino"].backends
    for name in ("precisions", "variants", "only_native", "is_counted", "is_automatic", "extra", "native", "memory"):
        assert getattr(plugin, name) == getattr(runtime, name), name
