"""Messages of onnxruntime in one sentence."""

from __future__ import annotations

from typing import Any

import onnxruntime
import pytest
from bulkinfer.runtime.ort_errors import runtime_reason
from onnx import helper

from tests.foreign_graphs import foreign_graph


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
