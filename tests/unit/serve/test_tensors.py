"""tensors.py: tensors as bytes and back, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from bulkinfer.serve.refusals import Reason, RefusedError
from bulkinfer.serve.tensors import BYTES, DTYPES, checked_shape, from_bytes, tensor_of, to_bytes


@pytest.mark.parametrize("datatype", DTYPES)
def test_numbers_are_little_endian_bytes(datatype: str) -> None:
    values = np.array([[0, 1, 1], [1, 0, 1]], DTYPES[datatype])
    data = b"".join(number.tobytes() for number in values.ravel())
    tensor = tensor_of("x", values)
    assert (tensor.datatype, tensor.shape, to_bytes(tensor)) == (datatype, (2, 3), data)
    assert np.array_equal(from_bytes("x", datatype, (2, 3), data).values, values)


def test_elements_of_bytes_have_their_lengths_before_them() -> None:
    data = b"\x01\0\0\0a\0\0\0\0\x03\0\0\0\xff\0b"
    tensor = from_bytes("x", BYTES, (3, 1), memoryview(data))
    assert tensor.values == [b"a", b"", b"\xff\0b"]
    assert to_bytes(tensor) == data


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "reason"),
    [
        ("FP32", (2,), b"1234567", "has 8 bytes, 7 came"),
        ("FP31", (2,), b"", "unknown; known are BOOL"),
        (BYTES, (1,), b"\x02\0\0\0a", "ends behind the 5 bytes"),
        (BYTES, (1,), b"\x02\0", "ends behind the 2 bytes"),
        (BYTES, (2,), b"\x01\0\0\0a", "2 elements of BYTES are declared"),
        (BYTES, (1,), b"\x01\0\0\0ab", "1 elements of BYTES are declared"),
        (BYTES, (0,), b"\x01\0\0\0a", "0 elements of BYTES are declared"),
        ("UINT8", (1 << 62, 1 << 62), b"", "bytes, 0 came"),
        (BYTES, (1 << 62,), b"", "elements of BYTES are declared"),
    ],
)
def test_other_bytes_are_refused(datatype: str, shape: tuple[int, ...], data: bytes, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason) as refusal:
        from_bytes("x", datatype, shape, data)
    assert refusal.value.reason is Reason.INVALID


@pytest.mark.parametrize("shape", [[-1], [1.0], [True], ["1"], [None]])
def test_a_shape_is_whole_numbers(shape: list[object]) -> None:
    assert checked_shape("x", [0, 3]) == (0, 3)
    with pytest.raises(RefusedError, match="no list of whole numbers"):
        checked_shape("x", shape)
