"""Requests and replies as messages of gRPC, with tensors as bytes or as lists of values."""

from __future__ import annotations

from typing import Any

import numpy as np

from bulkinfer.serve.messages import VERSION, Reply, Request
from bulkinfer.serve.refusals import InvalidError
from bulkinfer.serve.rpc.schema import message
from bulkinfer.serve.tensors import BYTES, Tensor, checked_shape, from_bytes, known_dtype, to_bytes

# The field of InferTensorContents that holds values of a datatype; FP16 goes as bytes only.
_FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}


def parse_request(asked: Any) -> Request:
    """The request in a ModelInferRequest. Raises RefusedError."""
    raw = asked.raw_input_contents
    if raw and len(raw) != len(asked.inputs):
        raise InvalidError(
            f"there are {len(asked.inputs)} inputs and {len(raw)} raw_input_contents: give one for each, or none"
        )
    inputs = tuple(_input(each, raw[index] if raw else None) for index, each in enumerate(asked.inputs))
    for each in asked.outputs:
        if "classification" in each.parameters:
            raise InvalidError(
                "the parameter classification is not served: ask for the outputs class_ids, scores and class_names"
            )
    return Request(asked.model_name, asked.model_version, asked.id, inputs, tuple(each.name for each in asked.outputs))


def _input(asked: Any, raw: bytes | None) -> Tensor:
    name, datatype = asked.name, asked.datatype
    if "shared_memory_region" in asked.parameters:
        raise InvalidError("shared memory is not served: send tensors in the request")
    shape = checked_shape(name, list(asked.shape))
    if raw is not None:
        return from_bytes(name, datatype, shape, raw)
    dtype = None if datatype == BYTES else known_dtype(name, datatype)
    if datatype not in _FIELDS:
        raise InvalidError(f"input {name}: {datatype} goes in raw_input_contents")
    given = getattr(asked.contents, _FIELDS[datatype])
    count = int(np.prod(shape, dtype=np.int64))
    if len(given) != count:
        raise InvalidError(f"input {name}: the shape {list(shape)} has {count} values, {_FIELDS[datatype]} has {len(given)}")
    if dtype is None:
        return Tensor(name, BYTES, shape, list(given))
    values = np.array(given)
    if dtype.kind in "iu" and values.size and (values.min() < np.iinfo(dtype).min or values.max() > np.iinfo(dtype).max):
        raise InvalidError(f"input {name}: {_FIELDS[datatype]} holds numbers that no {datatype} is")
    return Tensor(name, datatype, shape, values.astype(dtype).reshape(shape))


def reply_message(reply: Reply, *, raw: bool) -> Any:
    """The ModelInferResponse of a reply, with its tensors as bytes (`raw`), or as lists of values."""
    sent = message("ModelInferResponse")(model_name=reply.model, model_version=VERSION, id=reply.id)
    for tensor in reply.outputs:
        output = sent.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if raw:
            sent.raw_output_contents.append(to_bytes(tensor))
        else:
            values = tensor.values if isinstance(tensor.values, list) else tensor.values.ravel().tolist()
            getattr(output.contents, _FIELDS[tensor.datatype]).extend(values)
    return sent


def request_message(request: Request) -> Any:
    """The ModelInferRequest of a request, with its tensors as bytes."""
    sent = message("ModelInferRequest")(model_name=request.model, model_version=request.version, id=request.id)
    for tensor in request.inputs:
        sent.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        sent.raw_input_contents.append(to_bytes(tensor))
    for name in request.outputs:
        sent.outputs.add(name=name)
    return sent


def parse_reply(sent: Any) -> Reply:
    """The reply in a ModelInferResponse whose tensors are bytes."""
    outputs = tuple(
        from_bytes(each.name, each.datatype, tuple(each.shape), data)
        for each, data in zip(sent.outputs, sent.raw_output_contents, strict=True)
    )
    return Reply(sent.model_name, sent.id, outputs)
