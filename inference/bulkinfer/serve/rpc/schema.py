"""The messages of GRPCInferenceService, by the package protobuf alone.

They are those of the Open Inference Protocol, version 2. They lie in a pool of their own: in a process that loads a client with
messages of the same names, such as tritonclient, each has its own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

SERVICE = "inference.GRPCInferenceService"
_PACKAGE = "inference"

# Message -> its fields in order of their numbers: name and type. [] marks a list, <> a map from names to parameters.
_MESSAGES: dict[str, tuple[str, ...]] = {
    "ServerLiveRequest": (),
    "ServerLiveResponse": ("live bool",),
    "ServerReadyRequest": (),
    "ServerReadyResponse": ("ready bool",),
    "ModelReadyRequest": ("name string", "version string"),
    "ModelReadyResponse": ("ready bool",),
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": ("name string", "version string", "extensions string[]"),
    "ModelMetadataRequest": ("name string", "version string"),
    "ModelMetadataResponse": (
        "name string",
        "versions string[]",
        "platform string",
        "inputs ModelMetadataResponse.TensorMetadata[]",
        "outputs ModelMetadataResponse.TensorMetadata[]",
    ),
    "ModelMetadataResponse.TensorMetadata": ("name string", "datatype string", "shape int64[]"),
    "ModelInferRequest": (
        "model_name string",
        "model_version string",
        "id string",
        "parameters <>",
        "inputs ModelInferRequest.InferInputTensor[]",
        "outputs ModelInferRequest.InferRequestedOutputTensor[]",
        "raw_input_contents bytes[]",
    ),
    "ModelInferRequest.InferInputTensor": (
        "name string",
        "datatype string",
        "shape int64[]",
        "parameters <>",
        "contents InferTensorContents",
    ),
    "ModelInferRequest.InferRequestedOutputTensor": ("name string", "parameters <>"),
    "ModelInferResponse": (
        "model_name string",
        "model_version string",
        "id string",
        "parameters <>",
        "outputs ModelInferResponse.InferOutputTensor[]",
        "raw_output_contents bytes[]",
    ),
    "ModelInferResponse.InferOutputTensor": (
        "name string",
        "datatype string",
        "shape int64[]",
        "parameters <>",
        "contents InferTensorContents",
    ),
    "InferParameter": (
        "bool_param bool",
        "int64_param int64",
        "string_param string",
        "double_param double",
        "uint64_param uint64",
    ),
    "InferTensorContents": (
        "bool_contents bool[]",
        "int_contents int32[]",
        "int64_contents int64[]",
        "uint_contents uint32[]",
        "uint64_contents uint64[]",
        "fp32_contents float[]",
        "fp64_contents double[]",
        "bytes_contents bytes[]",
    ),
}
_CHOICES = {"InferParameter": "parameter_choice"}  # messages whose fields exclude each other
METHODS = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")


def message(name: str) -> Any:
    """The class of a message, such as ModelInferRequest. Raises ModuleNotFoundError if protobuf is not installed."""
    return _classes()[name]


@cache
def _classes() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="open_inference.proto", package=_PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}
    for name in _MESSAGES:
        outer, _, inner = name.rpartition(".")
        made[name] = made[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=inner)
    for name, fields in _MESSAGES.items():
        for number, field in enumerate(fields, 1):
            _add_field(made[name], name, number, *field.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


def _add_field(made: Any, of: str, number: int, name: str, kind: str) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    field = made.field.add(name=name, number=number)
    field.label = FieldDescriptorProto.LABEL_REPEATED if kind[-1] in "]>" else FieldDescriptorProto.LABEL_OPTIONAL
    kind = kind.removesuffix("[]")
    if kind == "<>":
        entry = made.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        _add_field(entry, "", 1, "key", "string")
        _add_field(entry, "", 2, "value", "InferParameter")
        kind = f"{of}.ParametersEntry"
    if kind[0].isupper():
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}")
    if of in _CHOICES:
        if not made.oneof_decl:
            made.oneof_decl.add(name=_CHOICES[of])
        field.oneof_index = 0
