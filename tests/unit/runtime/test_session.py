"""session.py: one fixed shape in, named outputs out, and the warm-up before."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from bulkinfer.errors import RunError, ShapeError, UsageError
from bulkinfer.runtime.onnxruntime_graph import runtime_reason
from bulkinfer.runtime.providers import PROVIDERS, SessionSpec
from bulkinfer.runtime.session import Session, warm_up
from onnx import TensorProto, helper

from tests.foreign_graphs import foreign_graph
from tests.graphs import MARKER, grows_on, overflows_on_marker, raises_on_marker, save, solid_batch
from tests.models import COLOURS, SIZE, colour_logits, tiny_graph

PATIENCE_S = 60.0  # nothing here takes a hundredth of it; a machine may be busy
FOUR = [(200, 10, 30), (0, 255, 0), (5, 5, 90), (255, 255, 0)]


def open_graph(graph: onnx.ModelProto, folder: Path, *outputs: str) -> Session:
    return Session(SessionSpec(save(graph, folder), "cpu", "fp32", 2, 1), list(outputs or ("logits", "embedding")))


def test_facts_and_outputs(tmp_path: Path) -> None:
    session = open_graph(tiny_graph(4), tmp_path, "logits", "embedding")
    assert session.batch_shape == (4, SIZE, SIZE, 3)
    assert session.dtype == np.uint8
    assert session.output_shapes == {"logits": (len(COLOURS),), "embedding": (3,)}
    assert session.load_s > 0
    outputs = session.run(solid_batch(*FOUR))
    means = np.array(FOUR, np.float32) / 255
    np.testing.assert_allclose(outputs["embedding"], means, atol=1e-5)
    np.testing.assert_allclose(outputs["logits"], colour_logits(means), atol=1e-4)


def test_only_the_outputs_asked_for_come_back(tmp_path: Path) -> None:
    session = open_graph(tiny_graph(4, input="float32"), tmp_path, "embedding")
    assert (session.dtype, session.batch_shape) == (np.float32, (4, 3, SIZE, SIZE))
    assert list(session.run(np.zeros(session.batch_shape, np.float32))) == ["embedding"]


@pytest.mark.parametrize("count", [0, 1, 3, 5, 8])
def test_b38_no_other_shape_is_ever_fed(tmp_path: Path, count: int) -> None:
    session = open_graph(tiny_graph(4), tmp_path)
    with pytest.raises(AssertionError, match=r"is not the fixed shape \(4, 32, 32, 3\)"):
        session.run(np.zeros((count, SIZE, SIZE, 3), np.uint8))


def test_b31_an_input_type_that_nothing_prepares_is_refused(tmp_path: Path) -> None:
    graph = tiny_graph(4)
    graph.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    with pytest.raises(UsageError, match=r"input type tensor\(int32\) is not one of tensor\(uint8\), tensor\(float\)"):
        open_graph(graph, tmp_path)


def test_b32_weights_listed_as_inputs_are_no_inputs(tmp_path: Path) -> None:
    graph = tiny_graph(4)
    graph.graph.input.append(helper.make_tensor_value_info("bias", TensorProto.FLOAT, [len(COLOURS)]))
    assert open_graph(graph, tmp_path).batch_shape == (4, SIZE, SIZE, 3)


def test_the_bad_graphs_of_the_tests_are_bad_where_they_should_be(tmp_path: Path) -> None:
    raising = open_graph(raises_on_marker(4), tmp_path)
    assert raising.run(solid_batch(*FOUR))["logits"].shape == (4, 8)
    with pytest.raises(Exception, match=r"indices element out of data bounds"):
        raising.run(solid_batch(*FOUR[:3], MARKER))
    outputs = open_graph(overflows_on_marker(4), tmp_path).run(solid_batch(*FOUR[:3], MARKER))
    assert np.isposinf(outputs["embedding"][3]).all()
    assert not np.isfinite(outputs["logits"][3]).all()
    assert np.isfinite(outputs["logits"][:3]).all()


def test_c01_another_shape_than_declared_is_an_error_but_not_of_the_warm_up(tmp_path: Path) -> None:
    session = open_graph(grows_on(4, (0, 0, 0)), tmp_path)
    assert session.run(solid_batch(*[MARKER] * 4))["embedding"].shape == (4, 3)
    with pytest.raises(ShapeError, match=r"embedding has the shape \[4, 6\], its graph declares \[4, 3\]: its size depends"):
        session.run(solid_batch(*[(0, 0, 0)] * 4))
    assert warm_up(session, 1, 0.0) > 0


class FakeSession:
    """Counts runs and who makes them."""

    batch_shape, dtype = (5, 2, 2, 3), np.dtype(np.uint8)

    def __init__(self, seconds: float = 0.0, error: Exception | None = None, at_once: int = 1) -> None:
        """Every run takes `seconds`, or raises `error`; none ends before `at_once` of them run."""
        self.seconds, self.error = seconds, error
        self.together = threading.Barrier(at_once)
        self.runs = 0
        self.lock = threading.Lock()

    def run(self, images: np.ndarray[Any, Any]) -> None:
        assert images.shape == self.batch_shape
        assert images.dtype == self.dtype
        assert not images.any()
        if self.error:
            raise self.error
        with self.lock:
            self.runs += 1
        self.together.wait(PATIENCE_S)
        time.sleep(self.seconds)


def test_warm_up_runs_every_stream_once_and_all_at_once() -> None:
    session = FakeSession(0.05, at_once=3)
    start = time.perf_counter()
    rate = warm_up(session, 3, 0.0)  # type: ignore[arg-type]
    took_s = time.perf_counter() - start
    assert session.runs == 3
    assert 15 / took_s <= rate <= 15 / 0.05


def test_warm_up_measures_for_the_seconds_given() -> None:
    session = FakeSession(0.01)
    start = time.perf_counter()
    rate = warm_up(session, 2, 0.3)  # type: ignore[arg-type]
    took_s = time.perf_counter() - start
    assert 0.3 < took_s < PATIENCE_S
    assert session.runs >= 2 + 2, "both streams, once to warm up and then to measure"
    assert 5 * (session.runs - 2) / took_s <= rate <= 1000, "two streams of 5 pictures in 0.01 s each"


def test_warm_up_ends_after_enough_runs() -> None:
    session = FakeSession(0.001)
    start = time.perf_counter()
    assert warm_up(session, 2, 60.0, most_runs=3) > 0  # type: ignore[arg-type]
    assert time.perf_counter() - start < 30
    assert session.runs == 2 + 2 * 3


def test_a_network_that_cannot_run_zeros_is_refused_not_measured() -> None:
    session = FakeSession(error=RuntimeError("Non-zero status code\nwith details"))
    with pytest.raises(RunError, match=r"fails on its first batch, of zeros: Non-zero status code$"):
        warm_up(session, 2, 0.2)  # type: ignore[arg-type]


def test_warm_up_of_a_real_session(tmp_path: Path) -> None:
    assert warm_up(open_graph(tiny_graph(4), tmp_path), 2, 0.05) > 0


def test_batches_are_locked_if_the_provider_wants_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = open_graph(tiny_graph(4), tmp_path)
    batch = np.zeros((4, 2, 2, 3), np.uint8)
    assert plain.pin(batch) is batch
    assert plain.not_pinned == ""
    locked: list[Any] = []

    def pin(array: np.ndarray[Any, Any], device: int) -> str:
        locked.append((array, device))
        return "" if len(locked) == 1 else "no more"

    monkeypatch.setitem(PROVIDERS, "cpu", replace(PROVIDERS["cpu"], pin=pin))
    session = open_graph(tiny_graph(4), tmp_path)
    assert session.pin(batch) is batch
    assert session.not_pinned == ""
    assert locked[0][0] is batch
    assert locked[0][1] == 0
    session.pin(batch)
    assert session.not_pinned == "no more"


def test_an_input_that_stays_on_the_device_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of sessions on GPUs, with the host's memory as the device's: from several threads, nobody's outputs change."""
    monkeypatch.setitem(PROVIDERS, "cpu", replace(PROVIDERS["cpu"], memory="cpu"))
    session = open_graph(tiny_graph(4), tmp_path, "embedding", "logits")
    batches = [solid_batch(*np.roll(FOUR, turn, axis=0).tolist()) for turn in range(4)]
    found: dict[tuple[int, int], dict[str, np.ndarray[Any, Any]]] = {}

    def run(thread: int) -> None:
        for turn in range(20):
            found[thread, turn] = session.run(batches[(thread + turn) % 4])

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(found) == 60
    for (thread, turn), outputs in found.items():
        means = batches[(thread + turn) % 4].mean(axis=(1, 2)) / 255
        np.testing.assert_allclose(outputs["embedding"], means, atol=1e-5)
        np.testing.assert_allclose(outputs["logits"], colour_logits(means), atol=1e-3)
    assert (batches[0][:, 0, 0] == np.array(FOUR)).all(), "the caller's own batches are not written to"


# -- why the runtime refuses a graph ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "reason"), [
    ({"ir_version": 99}, r"its IR version is 99, this onnxruntime takes up to \d+"),
    ({"opset": 99}, r"its opset of ai\.onnx is 99, this onnxruntime takes up to \d+"),
    ({"nodes": [helper.make_node("Foo", ["y"], ["z"], domain="my.ops")], "domains": ("my.ops",), "outputs": {"z": None}},
     r"it needs the operator Foo of my\.ops, which this onnxruntime does not have \(it has those of ai\.onnx, .*\)"),
    ({"nodes": [helper.make_node("Foo", ["y"], ["z"])], "outputs": {"z": None}},
     r"it needs the operator Foo of ai\.onnx, which this onnxruntime does not have in opset 17"),
])  # fmt: skip
def test_b28_what_a_graph_asks_for_and_what_there_is(changes: dict[str, Any], reason: str) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with pytest.raises(Exception, match="ONNXRuntimeError") as caught:
        onnxruntime.InferenceSession(foreign_graph(**changes).SerializeToString(), options)
    assert pytest.approx(1) == len(runtime_reason(caught.value).splitlines())
    with pytest.raises(RuntimeError, match=rf"^{reason}$"):
        raise RuntimeError(runtime_reason(caught.value))


def test_other_messages_keep_their_first_line() -> None:
    assert runtime_reason(RuntimeError("[ONNXRuntimeError] : 1 : FAIL : no memory\nand more")) == "no memory"
    assert runtime_reason(RuntimeError("")) == "RuntimeError"
