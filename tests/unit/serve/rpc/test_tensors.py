"""rpc/tensors.py: requests and replies as messages, with tensors as bytes or as lists of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bulkinfer.serve.messages import Reply, Request
from bulkinfer.serve.refusals import RefusedError
from bulkinfer.serve.rpc.schema import message
from bulkinfer.serve.rpc.tensors import parse_reply, parse_request, reply_message, request_message
from bulkinfer.serve.tensors import tensor_of

VALUES = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-1, 2]),
    "INT32": ("int_contents", [-1, 2]),
    "INT64": ("int64_contents", [-1, 1 << 60]),
    "UINT8": ("uint_contents", [0, 255]),
    "UINT16": ("uint_contents", [0, 65535]),
    "UINT32": ("uint_contents", [0, 1]),
    "UINT64": ("uint64_contents", [0, 1 << 63]),
    "FP32": ("fp32_contents", [0.5, -1.0]),
    "FP64": ("fp64_contents", [0.1, -1.0]),
    "BYTES": ("bytes_contents", [b"a", b"\xff"]),
}


def asked(datatype: str, field: str, values: list[Any], shape: tuple[int, ...] = (2,)) -> Any:
    request = message("ModelInferRequest")(model_name="net")
    tensor = request.inputs.add(name="x", datatype=datatype, shape=shape)
    if field:
        getattr(tensor.contents, field).extend(values)
    return request


@pytest.mark.parametrize("datatype", VALUES)
def test_values_in_lists(datatype: str) -> None:
    field, values = VALUES[datatype]
    (tensor,) = parse_request(asked(datatype, field, values)).inputs
    assert (tensor.datatype, tensor.shape, list(tensor.values)) == (datatype, (2,), values)
    back = reply_message(Reply("net", "q", (tensor,)), raw=False)
    assert list(getattr(back.outputs[0].contents, field)) == values


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (asked("UINT8", "uint_contents", [1, 256]), "no UINT8 is"),
        (asked("UINT8", "uint_contents", [1]), "has 2 values, uint_contents has 1"),
        (asked("FP16", "", []), "goes in raw_input_contents"),
        (asked("FLOAT", "", []), "is unknown"),
        (asked("UINT8", "uint_contents", [1, 2], (-2, -1)), "no list of whole numbers"),
    ],
)
def test_what_is_refused(request_: Any, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        parse_request(request_)


def test_bytes_must_be_those_of_the_inputs() -> None:
    request = asked("UINT8", "", [])
    request.raw_input_contents.extend([b"ab", b"cd"])
    with pytest.raises(RefusedError, match="1 inputs and 2 raw_input_contents"):
        parse_request(request)


def test_requests_and_replies_come_back() -> None:
    numbers, names = tensor_of("x", np.arange(6, dtype=np.float32).reshape(2, 3)), tensor_of("n", [b"a", b"b"])
    found = parse_request(request_message(Request("net", "1", "q", (numbers, names), ("scores",))))
    assert (found.model, found.version, found.id, found.outputs) == ("net", "1", "q", ("scores",))
    assert np.array_equal(found.inputs[0].values, numbers.values)
    assert found.inputs[1].values == names.values
    reply = parse_reply(reply_message(Reply("net", "q", (numbers, names)), raw=True))
    assert np.array_equal(reply.outputs[0].values, numbers.values)
    assert reply.outputs[1].values == names.values
