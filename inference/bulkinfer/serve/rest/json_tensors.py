"""Requests and replies as JSON, with tensors inside of it, or as bytes behind it (the binary tensor data extension)."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from bulkinfer.serve.messages import VERSION, Reply, Request
from bulkinfer.serve.refusals import InvalidError, Reason, RefusedError
from bulkinfer.serve.tensors import BYTES, Tensor, checked_shape, from_bytes, known_dtype, to_bytes
from bulkinfer.types import Array

HEADER_LENGTH = "inference-header-content-length"  # the size of the JSON, in bytes, where tensors are behind it
_MOST_JSON_BYTES = 16_000_000  # parsing holds up every other request: larger tensors come as bytes
_KINDS = {"u": "iu", "i": "iu", "f": "iuf", "b": "b"}  # of a dtype: the kinds of numbers that it takes


def parse_request(model: str, version: str, body: bytes | bytearray, header_length: str) -> tuple[Request, set[str] | bool]:
    """The request in a body; `header_length` is the value of HEADER_LENGTH, empty if there is none.

    Also which outputs go back as bytes: those of these names, or all, or none. Raises RefusedError.
    """
    view = memoryview(body)
    end = _json_end(header_length, len(view))
    if end > _MOST_JSON_BYTES:
        raise RefusedError(
            Reason.TOO_LARGE, f"the JSON of a request has at most {_MOST_JSON_BYTES} bytes: send tensors as bytes behind it"
        )
    try:
        content = orjson.loads(view[:end])
    except orjson.JSONDecodeError as error:
        raise InvalidError(f"the body is no JSON ({error})") from None
    fields = _object(content, "the body")
    inputs, rest = [], view[end:]
    for each in _list(fields, "inputs", "the body"):
        tensor, rest = _input(_object(each, "an input"), rest)
        inputs.append(tensor)
    if rest:
        raise InvalidError(f"{len(rest)} bytes behind the JSON belong to no input")
    wanted = [_object(each, "an output") for each in _list(fields, "outputs", "the body")]
    names = tuple(_text(each, "name", "an output") for each in wanted)
    request = Request(model, version, _text(fields, "id", "the body", ""), tuple(inputs), names)
    if not wanted:
        return request, bool(_parameters(fields).get("binary_data_output"))
    by_default = bool(_parameters(fields).get("binary_data_output"))
    binary = {
        name for name, each in zip(names, wanted, strict=True) if _parameters(each, refuse=True).get("binary_data", by_default)
    }
    return request, binary


def _json_end(header_length: str, size: int) -> int:
    if not header_length:
        return size
    if not header_length.isascii() or not header_length.isdecimal() or int(header_length) > size:
        raise InvalidError(f"the header Inference-Header-Content-Length is {header_length!r}, and the body has {size} bytes")
    return int(header_length)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidError(f"{what} is no JSON object")
    return value


def _list(fields: dict[str, Any], key: str, what: str) -> list[Any]:
    value = [] if fields.get(key) is None else fields[key]  # clients and servers of others write null for what they leave out
    if not isinstance(value, list):
        raise InvalidError(f"{key} of {what} is no list")
    return value


def _text(fields: dict[str, Any], key: str, what: str, default: str | None = None) -> str:
    value = default if fields.get(key) is None else fields[key]
    if not isinstance(value, str):
        raise InvalidError(f"{key} of {what} is no text")
    return value


def _parameters(fields: dict[str, Any], *, refuse: bool = False) -> dict[str, Any]:
    found = _object(fields.get("parameters") or {}, "parameters")
    if refuse and "classification" in found:
        raise InvalidError("the parameter classification is not served: ask for the outputs class_ids, scores and class_names")
    if refuse and "shared_memory_region" in found:
        raise InvalidError("shared memory is not served: send and receive tensors in the request")
    return found


def _input(fields: dict[str, Any], rest: memoryview) -> tuple[Tensor, memoryview]:
    """The tensor of one input, and the bytes behind the JSON that are left for the others."""
    name, datatype = _text(fields, "name", "an input"), _text(fields, "datatype", "an input")
    shape = checked_shape(name, _list(fields, "shape", f"input {name}"))
    size = _parameters(fields, refuse=True).get("binary_data_size")
    if size is None:
        if fields.get("data") is None:
            raise InvalidError(f"input {name} has no data")
        return _from_json(name, datatype, shape, fields["data"]), rest
    if fields.get("data") is not None:
        raise InvalidError(f"input {name} has data, and binary_data_size as well: send one of them")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(rest):
        raise InvalidError(f"input {name}: binary_data_size is {size!r}, and {len(rest)} bytes are left behind the JSON")
    return from_bytes(name, datatype, shape, rest[:size]), rest[size:]


def _from_json(name: str, datatype: str, shape: tuple[int, ...], data: Any) -> Tensor:
    count = math.prod(shape)
    if datatype == BYTES:
        elements = _flat(data)
        if len(elements) != count:
            raise InvalidError(f"input {name}: the shape {list(shape)} has {count} elements, {len(elements)} came")
        return Tensor(name, BYTES, shape, [_decoded(name, element) for element in elements])
    dtype = known_dtype(name, datatype)
    values = _numbers(name, datatype, dtype, data)
    if values.size != count:
        raise InvalidError(f"input {name}: the shape {list(shape)} has {count} values, {values.size} came")
    return Tensor(name, datatype, shape, values.reshape(shape))


def _flat(data: Any) -> list[Any]:
    """The elements of lists in lists, however deep, in order."""
    found: list[Any] = []
    open_lists = [iter([data])]
    while open_lists:
        for each in open_lists[-1]:
            if isinstance(each, list):
                open_lists.append(iter(each))
                break
            found.append(each)
        else:
            open_lists.pop()
    return found


def _decoded(name: str, element: Any) -> bytes:
    try:
        return base64.b64decode(element, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise InvalidError(f"input {name}: BYTES in JSON are base64 texts, and one is not") from None


def _numbers(name: str, datatype: str, dtype: np.dtype[Any], data: Any) -> Array:
    try:
        values = np.asarray(data)
    except ValueError:  # lists of different lengths
        values = np.asarray(_flat(data))
    if not values.size:
        return np.zeros(0, dtype)
    if values.dtype.kind not in _KINDS[dtype.kind]:
        raise InvalidError(f"input {name}: data holds other values than {datatype}")
    if dtype.kind in "iu" and (values.min() < np.iinfo(dtype).min or values.max() > np.iinfo(dtype).max):
        raise InvalidError(f"input {name}: data holds numbers that no {datatype} is")
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def reply_bytes(reply: Reply, binary: set[str] | bool) -> tuple[bytes, int]:
    """The body of a reply, and the size of its JSON, in bytes; 0: the body is the JSON."""
    outputs: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for tensor in reply.outputs:
        shown: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        if binary is True or (binary and tensor.name in binary):
            tail.append(to_bytes(tensor))
            shown["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            shown["data"] = _json_data(tensor)
        outputs.append(shown)
    content: dict[str, Any] = {"model_name": reply.model, "model_version": VERSION, "outputs": outputs}
    if reply.id:
        content["id"] = reply.id
    head = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return b"".join([head, *tail]), len(head) if tail else 0


def _json_data(tensor: Tensor) -> Sequence[str] | Array:
    """Values in one list. Numbers that are not finite become null: JSON has no words for them."""
    if isinstance(tensor.values, list):
        return [value.decode("utf-8", "backslashreplace") for value in tensor.values]
    return np.ascontiguousarray(tensor.values).reshape(-1)


def request_bytes(request: Request) -> tuple[bytes, int]:
    """The body of a request, with all its tensors as bytes, and the size of its JSON, in bytes. Replies come as bytes, too."""
    inputs: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for tensor in request.inputs:
        tail.append(to_bytes(tensor))
        about = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        inputs.append({**about, "parameters": {"binary_data_size": len(tail[-1])}})
    outputs = [{"name": name} for name in request.outputs]
    content = {"id": request.id, "parameters": {"binary_data_output": True}, "inputs": inputs, "outputs": outputs}
    head = orjson.dumps(content)
    return b"".join([head, *tail]), len(head)


def parse_reply(body: bytes, header_length: str) -> Reply:
    """The reply in the body of an answer whose tensors are bytes. Raises RefusedError if it is none."""
    view = memoryview(body)
    end = _json_end(header_length, len(view))
    try:
        content = orjson.loads(view[:end])
    except orjson.JSONDecodeError as error:
        raise InvalidError(f"the answer is no JSON ({error})") from None
    outputs, rest = [], view[end:]
    for each in _list(_object(content, "the answer"), "outputs", "the answer"):
        tensor, rest = _input(each, rest)
        outputs.append(tensor)
    return Reply(_text(content, "model_name", "the answer", ""), _text(content, "id", "the answer", ""), tuple(outputs))
