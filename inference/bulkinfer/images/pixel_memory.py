"""Memory of our own as Pillow images, and Pillow's memory as RGB bytes in a slot: without bytes objects between.

Each thread keeps a canvas, and on it an image of each size that came up: to make an image takes longer than all else that is
done for a small picture, decoding and resizing aside, since it releases and takes the interpreter lock four times.

Shape letters: H height, W width, C channels, X the four bytes that Pillow keeps for an RGB pixel; the fourth means nothing.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

Pixels = np.ndarray[Any, Any]
Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels, the latter two exclusive

_MAX_KEPT_BYTES = 64 << 20  # of a thread's canvas: 16 million pixels
_MAX_CUT_BYTES = 4 << 20  # of a thread's memory for parts of pictures
_MOST_SIZES = 32  # of pictures, and as many parts of them, that a thread keeps an image of

_of_thread = threading.local()


def as_image(pixels_HWX: Pixels) -> Image.Image:
    """The same memory as an RGB image."""
    height, width, _ = pixels_HWX.shape
    flat = pa.UInt8Array.from_buffers(pa.uint8(), pixels_HWX.size, [None, pa.py_buffer(pixels_HWX)])
    return Image.fromarrow(pa.FixedSizeListArray.from_arrays(flat, 4), "RGB", (width, height))


class Canvas:
    """Memory for one picture of up to so many pixels, which is decoded into its beginning.

    Fresh memory costs a page fault for every 4 KiB, which shows in the time that 12 million pixels take.
    """

    def __init__(self, num_pixels: int) -> None:
        self.memory = np.empty(4 * num_pixels, np.uint8)
        self._images: dict[tuple[int, int], tuple[Image.Image, Any]] = {}  # with the core over our memory
        self._last: Image.Image | None = None
        self._references = 0  # to the last image, where nobody else holds it; their number differs between versions of Python
        self._cut_memory = np.empty(0, np.uint8)
        self._cuts: dict[tuple[tuple[int, int], Box], tuple[Pixels, Pixels, Image.Image]] = {}

    def is_free(self) -> bool:
        """Whether nobody holds the last image any more."""
        return self._last is None or sys.getrefcount(self._last) <= self._references

    def image(self, width: int, height: int) -> Image.Image:
        """The picture that was decoded: no copy.

        An image that its last user changed in place has left our memory (Pillow copies on a write), and is not used again.
        """
        image, core = self._images.get((width, height), (None, None))
        if image is None or image.im is not core:
            if len(self._images) == _MOST_SIZES:
                self._images.clear()
            image = as_image(self.memory[: 4 * width * height].reshape(height, width, 4))
            self._images[width, height] = image, image.im
        image.info.clear()
        if image is not self._last:
            self._last = image
            self._references = sys.getrefcount(self._last) - 1  # but for this function's own
        return image

    def cut(self, image: Image.Image, box: Box) -> Image.Image | None:
        """A part of the picture, in memory that the next part takes; None if too large, or if this is another picture."""
        if image is not self._last:
            return None
        key = (image.size, box)
        if (found := self._cuts.get(key)) is None and (found := self._make_cut(*key)) is None:
            return None
        to_HW, from_HW, part = found
        to_HW[:] = from_HW
        return part

    def _make_cut(self, size: tuple[int, int], box: Box) -> tuple[Pixels, Pixels, Image.Image] | None:
        left, top, right, bottom = box
        width, height = right - left, bottom - top
        if 4 * width * height > _MAX_CUT_BYTES:
            return None
        if 4 * width * height > len(self._cut_memory):
            self._cuts.clear()
            self._cut_memory = np.empty(4 * width * height, np.uint8)
        if len(self._cuts) == _MOST_SIZES:
            self._cuts.clear()
        to_HW = self._cut_memory[: 4 * width * height].view(np.uint32).reshape(height, width)
        from_HW = self.memory[: 4 * size[0] * size[1]].view(np.uint32).reshape(size[1], size[0])[top:bottom, left:right]
        part = as_image(to_HW.view(np.uint8).reshape(height, width, 4))
        found = self._cuts[size, box] = (to_HW, from_HW, part)
        return found


def canvas_for(num_pixels: int) -> Canvas:
    """The thread's canvas, or a new one where a picture still lies in it, or it is too small."""
    if 4 * num_pixels > _MAX_KEPT_BYTES:
        return Canvas(num_pixels)
    canvas: Canvas | None = getattr(_of_thread, "canvas", None)
    if canvas is None or len(canvas.memory) < 4 * num_pixels or not canvas.is_free():
        canvas = _of_thread.canvas = Canvas(num_pixels)
    return canvas


def cut(image: Image.Image, box: Box) -> Image.Image:
    """The part of an image within `box`, a copy; it may be in memory that the thread's next part takes."""
    canvas: Canvas | None = getattr(_of_thread, "canvas", None)
    part = canvas.cut(image, box) if canvas is not None else None
    return image.crop(box) if part is None else part


def write_rgb(image: Image.Image, out_HWC: Pixels) -> None:
    """Write the pixels of an RGB image into `out_HWC`, uint8 H x W x 3 of the same size.

    The quick way holds the interpreter lock for a few microseconds only, where Pillow's tobytes() holds it all the time.
    """
    num_pixels = out_HWC.size // 3
    if not out_HWC.flags.c_contiguous or not _copies_in_order(num_pixels) or (found := _memory(image, num_pixels)) is None:
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


def _memory(image: Image.Image, num_pixels: int) -> tuple[Pixels, object] | None:
    """The four bytes of all its pixels, and the object that keeps them; None where Pillow does not lend them.

    Not by pyarrow, which releases and takes the interpreter lock twice for it.
    """
    try:
        capsule = image.im.__arrow_c_array__()  # the image's own method would describe the type as well
    except (AssertionError, AttributeError, ValueError):  # not loaded yet; Pillow before 11.3; in several pieces of memory
        return None
    array = _ArrowArray.from_address(_address_in(capsule, b"arrow_array"))
    if (array.length, array.n_children) != (num_pixels, 1):
        return None
    memory: Any = (ctypes.c_uint8 * (4 * num_pixels)).from_address(array.children[0][0].buffers[1])
    return np.frombuffer(memory, np.uint8), capsule
