"""schema.py: the bytes of the messages are those that other implementations of the protocol write."""

from __future__ import annotations

from bulkinfer.serve.rpc.schema import message


def test_the_bytes_of_a_request() -> None:
    """Written by hand from the encoding of protobuf: tag (number << 3 | wire type), length, content."""
    request = message("ModelInferRequest")(model_name="m", id="i", raw_input_contents=[b"ab"])
    tensor = request.inputs.add(name="x", datatype="UINT8", shape=[1, 300])
    tensor.parameters["p"].int64_param = 5
    request.outputs.add(name="y")
    entry = b"\x0a\x01p" + b"\x12\x02" + b"\x10\x05"
    inner = b"\x0a\x01x" + b"\x12\x05UINT8" + b"\x1a\x03\x01\xac\x02" + b"\x22" + bytes([len(entry)]) + entry
    expected = b"\x0a\x01m" + b"\x1a\x01i" + b"\x2a" + bytes([len(inner)]) + inner + b"\x32\x03" + b"\x0a\x01y" + b"\x3a\x02ab"
    assert request.SerializeToString(deterministic=True) == expected


def test_a_parameter_has_one_value() -> None:
    parameter = message("InferParameter")(bool_param=True)
    parameter.string_param = "a"
    assert parameter.WhichOneof("parameter_choice") == "string_param"
    assert parameter.SerializeToString() == b"\x1a\x01a"
