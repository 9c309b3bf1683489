"""tf.train.Example, the message in a TFRecord, by the package protobuf alone: TensorFlow is not needed.

The schema is that of tensorflow/core/example/feature.proto and example.proto. It lies in a pool of its own: in a process that
loads TensorFlow as well, each has its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from bulkinfer.errors import UsageError
from bulkinfer.host.install_hint import install_command


@cache
def example_class() -> Any:
    """The class of tf.train.Example. Raises UsageError if protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ModuleNotFoundError:
        raise missing_package("protobuf") from None
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")
    lists = (("BytesList", field.TYPE_BYTES), ("FloatList", field.TYPE_FLOAT), ("Int64List", field.TYPE_INT64))
    for name, kind in lists:
        file.message_type.add(name=name).field.add(name="value", number=1, type=kind, label=field.LABEL_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, own) in enumerate(
        (("BytesList", "bytes_list"), ("FloatList", "float_list"), ("Int64List", "int64_list")), 1
    ):
        feature.field.add(name=own, number=number, type=field.TYPE_MESSAGE, type_name=f".tensorflow.{name}",
                          label=field.LABEL_OPTIONAL, oneof_index=0)  # fmt: skip
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(
        name="value", number=2, type=field.TYPE_MESSAGE, type_name=".tensorflow.Feature", label=field.LABEL_OPTIONAL
    )
    features.field.add(name="feature", number=1, type=field.TYPE_MESSAGE, type_name=".tensorflow.Features.FeatureEntry",
                       label=field.LABEL_REPEATED)  # fmt: skip
    file.message_type.add(name="Example").field.add(
        name="features", number=1, type=field.TYPE_MESSAGE, type_name=".tensorflow.Features", label=field.LABEL_OPTIONAL
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def missing_package(name: str) -> UsageError:
    """What to say where a package for TFRecord files is not installed."""
    return UsageError(f"TFRecord files need the package {name}, which is not installed: {install_command('tfrecord')}")


def parsed(data: bytes) -> Any | None:
    """The features of an Example by name; None if the bytes are no Example."""
    from google.protobuf.message import DecodeError

    try:
        return example_class().FromString(data).features.feature
    except DecodeError:
        return None


def values(features: Any, name: str, kind: str) -> Iterable[Any]:
    """The values of a feature, of the list `kind`; none if the Example has no such feature."""
    return getattr(features[name], kind).value if name in features else ()


def example_of(features: dict[str, bytes | int]) -> bytes:
    """An Example with one value of each feature, as bytes; the same features give the same bytes."""
    example = example_class()()
    for name, value in features.items():
        kind = "bytes_list" if isinstance(value, bytes) else "int64_list"
        getattr(example.features.feature[name], kind).value.append(value)
    return bytes(example.SerializeToString(deterministic=True))
