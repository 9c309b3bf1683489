"""json_tensors.py: requests and replies in JSON, with tensors as bytes behind it or inside of it."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from bulkinfer.serve.messages import Reply, Request
from bulkinfer.serve.refusals import RefusedError
from bulkinfer.serve.rest.json_tensors import parse_reply, parse_request, reply_bytes, request_bytes
from bulkinfer.serve.tensors import Tensor, tensor_of
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = np.array([[1, 2], [3, 4]], np.int16)


def parsed(content: Any, tail: bytes = b"") -> tuple[Request, set[str] | bool]:
    """The request of JSON, with bytes behind it."""
    head = json.dumps(content).encode()
    return parse_request("net", "", head + tail, str(len(head)) if tail else "")


def one_input(**fields: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": "INT16", "shape": [2, 2], **fields}]}


@pytest.mark.parametrize("data", [[[1, 2], [3, 4]], [1, 2, 3, 4], [[1, 2, 3, 4]], [[1], [2, 3, 4]]])
def test_numbers_in_lists_of_any_form(data: list[Any]) -> None:
    request, binary = parsed({"id": "a", **one_input(data=data)})
    assert (request.model, request.id, request.outputs, binary) == ("net", "a", (), False)
    (tensor,) = request.inputs
    assert np.array_equal(tensor.values, NUMBERS)


def test_bytes_behind_the_json_are_of_the_inputs_in_order() -> None:
    content = one_input(parameters={"binary_data_size": 8})
    content["inputs"].append({"name": "y", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}})
    content["inputs"].append({"name": "z", "datatype": "FP32", "shape": [1], "data": [0.5]})
    request, _ = parsed(content, NUMBERS.tobytes() + b"\x01\0\0\0a")
    assert np.array_equal(request.inputs[0].values, NUMBERS)
    assert request.inputs[1].values == [b"a"]
    assert request.inputs[2].values == np.float32(0.5)


@pytest.mark.parametrize(
    ("fields", "binary"),
    [
        ({}, False),
        ({"parameters": {"binary_data_output": True}}, True),
        ({"outputs": [{"name": "a"}, {"name": "b", "parameters": {"binary_data": True}}]}, {"b"}),
        (
            {
                "parameters": {"binary_data_output": True},
                "outputs": [{"name": "a"}, {"name": "b", "parameters": {"binary_data": False}}],
            },
            {"a"},
        ),
    ],
)
def test_which_outputs_go_as_bytes(fields: dict[str, Any], binary: set[str] | bool) -> None:
    assert parsed({**one_input(data=[1, 2, 3, 4]), **fields})[1] == binary


@pytest.mark.parametrize(
    ("content", "tail", "reason"),
    [
        ([], b"", "the body is no JSON object"),
        ({"inputs": 1}, b"", "inputs of the body is no list"),
        ({"inputs": [1]}, b"", "an input is no JSON object"),
        ({"inputs": [{}]}, b"", "name of an input is no text"),
        ({"id": 1, "inputs": []}, b"", "id of the body is no text"),
        (one_input(), b"", "has no data"),
        (one_input(shape="no"), b"", "is no list"),
        (one_input(data=["1", "2", "3", "4"]), b"", "other values than INT16"),
        (one_input(data=[True, False, True, True]), b"", "other values than INT16"),
        (one_input(data=[1, 2, 3, 1 << 15]), b"", "no INT16 is"),
        (one_input(data=[1, 2, 3, 1 << 80]), b"", "other values than INT16"),
        (one_input(data=[1, 2, 3]), b"", "has 4 values, 3 came"),
        (one_input(data=[]), b"", "has 4 values, 0 came"),
        (one_input(data={"a": 1}), b"", "other values"),
        (one_input(data=[1, 2, 3, 4], parameters={"binary_data_size": 8}), b"12345678", "send one of them"),
        (one_input(parameters={"binary_data_size": 9}), b"12345678", "8 bytes are left"),
        (one_input(parameters={"binary_data_size": -1}), b"12345678", "8 bytes are left"),
        (one_input(parameters={"binary_data_size": "8"}), b"12345678", "8 bytes are left"),
        (one_input(parameters={"binary_data_size": 8}), b"123456789", "1 bytes behind the JSON"),
        (one_input(parameters={"shared_memory_region": "r"}), b"", "shared memory is not served"),
        ({"inputs": [], "outputs": [{"name": "a", "parameters": {"classification": 3}}]}, b"", "classification is not served"),
        ({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["?"]}]}, b"", "base64"),
        ({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": [1]}]}, b"", "base64"),
        ({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [2], "data": [""]}]}, b"", "has 2 elements, 1 came"),
    ],
)
def test_what_is_refused(content: Any, tail: bytes, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        parsed(content, tail)


@pytest.mark.parametrize("length", ["x", "-1", "3", "²"])
def test_a_length_of_the_json_that_cannot_be(length: str) -> None:
    with pytest.raises(RefusedError, match=r"Inference-Header-Content-Length|is no JSON"):
        parse_request("net", "", b"{}", length)


def test_json_that_would_hold_up_others_is_refused() -> None:
    with pytest.raises(RefusedError, match="send tensors as bytes"):
        parse_request("net", "", bytes(16_000_001), "")


def test_a_reply_in_json_has_every_bit_of_its_numbers() -> None:
    values = np.array([0.1, 1 / 3, 1e-40, 3e38], np.float32)
    body, json_size = reply_bytes(Reply("net", "q", (tensor_of("x", values), tensor_of("n", [b"caf\xc3\xa9"]))), False)
    content = json.loads(body)
    assert json_size == 0
    assert (content["model_name"], content["id"]) == ("net", "q")
    assert np.array_equal(np.array(content["outputs"][0]["data"], np.float32), values)
    assert content["outputs"][1] == {"name": "n", "datatype": "BYTES", "shape": [1], "data": ["café"]}


def test_numbers_that_json_has_no_word_for_become_null() -> None:
    body, _ = reply_bytes(Reply("net", "", (tensor_of("x", np.array([np.nan, np.inf, 1], np.float32)),)), False)
    assert json.loads(body)["outputs"][0]["data"] == [None, None, 1]


@pytest.mark.parametrize("binary", [True, {"x"}, {"n"}])
def test_replies_come_back(binary: set[str] | bool) -> None:
    sent = Reply("net", "q", (tensor_of("x", NUMBERS), Tensor("n", "BYTES", (1,), [b"YQ=="])))
    body, json_size = reply_bytes(sent, binary)
    found = parse_reply(body, str(json_size))
    assert (found.model, found.id) == ("net", "q")
    assert np.array_equal(found.outputs[0].values, NUMBERS)
    assert found.outputs[1].values == ([b"YQ=="] if binary is True or "n" in binary else [b"a"])


@pytest.mark.parametrize("datatype", ["INT16", "BYTES"])
def test_lists_may_be_as_deep_as_json_may(datatype: str) -> None:
    data = b"[" * 1000 + b'"AA=="' + b"]" * 1000
    body = b'{"inputs":[{"name":"x","datatype":"%b","shape":[1],"data":%b}]}' % (datatype.encode(), data)
    if datatype == "BYTES":
        assert parse_request("net", "", body, "")[0].inputs[0].values == [b"\0"]
    else:
        with pytest.raises(RefusedError, match="other values than INT16"):
            parse_request("net", "", body, "")


def test_null_stands_for_what_is_left_out() -> None:
    """As clients and servers that write all fields do."""
    content = one_input(data=[1, 2, 3, 4], parameters=None)
    request, binary = parsed({"id": None, "parameters": None, "outputs": None, **content})
    assert (request.id, request.outputs, binary) == ("", (), False)
    output = {"name": "y", "datatype": "FP32", "shape": [1], "parameters": None, "data": [0.5]}
    body = json.dumps({"model_name": "net", "id": None, "parameters": None, "outputs": [output]}).encode()
    assert parse_reply(body, "").outputs[0].values == np.float32(0.5)


def test_requests_come_back() -> None:
    sent = Request("net", "", "7", (tensor_of("x", NUMBERS), tensor_of("p", [b"a", b"bc"])), ("scores",))
    body, json_size = request_bytes(sent)
    found, binary = parse_request("net", "", body, str(json_size))
    assert (found.id, found.outputs, binary) == ("7", ("scores",), {"scores"})
    assert np.array_equal(found.inputs[0].values, NUMBERS)
    assert found.inputs[1].values == [b"a", b"bc"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("x") | VALUES,
        "datatype": st.sampled_from(["UINT8", "FP16", "BOOL", "BYTES", "?"]) | VALUES,
        "shape": st.lists(st.integers(-1, 3), max_size=3) | VALUES,
        "data": VALUES,
        "parameters": st.dictionaries(st.sampled_from(["binary_data_size", "binary_data"]), VALUES) | VALUES,
    },
)


CONTENTS = st.dictionaries(st.sampled_from(["id", "inputs", "outputs", "parameters"]), st.lists(FIELDS, max_size=2) | VALUES)


@given(content=CONTENTS | VALUES, tail=st.binary(max_size=20))
def test_any_json_is_a_request_or_is_refused(content: Any, tail: bytes) -> None:
    with contextlib.suppress(RefusedError):
        request, _ = parsed(content, tail)
        assert all(isinstance(tensor, Tensor) for tensor in request.inputs)


@given(body=st.binary(max_size=60), length=st.text(max_size=3))
def test_any_bytes_are_a_request_or_are_refused(body: bytes, length: str) -> None:
    with contextlib.suppress(RefusedError):
        parse_request("net", "", body, length)
