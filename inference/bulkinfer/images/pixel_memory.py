"""Memory of our own as a Pillow image, and the memory of a Pillow image as RGB bytes in a slot: without bytes objects between.

Shape letters: H height, W width, C channels, X the four bytes that Pillow keeps for an RGB pixel; the fourth means nothing.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

Pixels = np.ndarray[Any, Any]


def as_image(pixels_HWX: Pixels) -> Image.Image:
    """The same memory as an RGB image."""
    height, width, _ = pixels_HWX.shape
    flat = pa.UInt8Array.from_buffers(pa.uint8(), pixels_HWX.size, [None, pa.py_buffer(pixels_HWX)])
    return Image.fromarrow(pa.FixedSizeListArray.from_arrays(flat, 4), "RGB", (width, height))


def write_rgb(image: Image.Image, out_HWC: Pixels) -> None:
    """Write the pixels of an RGB image into `out_HWC`, uint8 H x W x 3 of the same size.

    The quick way holds the interpreter lock for a few microseconds only, where Pillow's tobytes() holds it all the time.
    """
    if not out_HWC.flags.c_contiguous or not _copies_in_order(out_HWC.size // 3) or (found := _memory(image)) is None:
        out_HWC[:] = np.frombuffer(image.tobytes(), np.uint8).reshape(out_HWC.shape)
        return
    pixels_X, owner = found
    _copy_rgb(pixels_X, out_HWC)
    del owner


def _copy_rgb(pixels_X: Pixels, out: Pixels) -> None:
    """Copy four bytes of every pixel three bytes apart: each one's fourth byte is overwritten by the next one's first."""
    last = len(pixels_X) // 4 - 1
    words = np.ndarray((last,), np.uint32, pixels_X)
    np.ndarray((last,), np.uint32, out, strides=(3,))[:] = words
    out[-1:, -1] = pixels_X[-4:-1]


@cache
def _copies_in_order(num_pixels: int) -> bool:
    """Whether numpy copies overlapping words from first to last: it does not promise to, so it is tried at this length."""
    pixels_X = np.random.default_rng(0).integers(0, 256, 4 * num_pixels, np.uint8)
    expected_C = pixels_X.reshape(-1, 4)[:, :3]
    memory = np.zeros(3 * num_pixels + 3, np.uint8)
    for shift in range(4):  # slots may begin at any byte
        out_HWC = memory[shift : shift + 3 * num_pixels].reshape(1, num_pixels, 3)
        _copy_rgb(pixels_X, out_HWC)
        if not np.array_equal(out_HWC[0], expected_C):
            return False
    return True


class _ArrowArray(ctypes.Structure):
    """An array in the Arrow C data interface, up to its children."""


_ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowArray))),
]
# Called with the interpreter lock held: releasing and taking it would take longer than the call.
_address_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def _memory(image: Image.Image) -> tuple[Pixels, object] | None:
    """The four bytes of every pixel in a row, and the object that keeps them; None where Pillow does not lend them.

    Not by pyarrow, which releases and takes the interpreter lock twice for it.
    """
    try:
        _, capsule = image.__arrow_c_array__()
    except (AttributeError, ValueError):  # a Pillow before 11.3; a picture in several pieces of memory
        return None
    array = _ArrowArray.from_address(_address_in(capsule, b"arrow_array"))
    num_pixels = image.width * image.height
    if (array.length, array.n_children) != (num_pixels, 1):
        return None
    memory: Any = (ctypes.c_uint8 * (4 * num_pixels)).from_address(array.children[0][0].buffers[1])
    return np.frombuffer(memory, np.uint8), capsule
