"""The way from a picture file to a network's input once more, written plainly: what the product is held against.

Nothing of inference/ is imported here; recipes are read by the names of their fields. Shape letters: N batch, H height,
W width, C channels.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageOps

EXTREME_ASPECT = 20  # beyond, a picture resized whole can take gigabytes
_A = -0.5  # of the cubic: Pillow's


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(0, 1 - abs(x))


def _cubic(x: np.ndarray) -> np.ndarray:
    x = abs(x)
    near, far = ((_A + 2) * x - (_A + 3)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * _A
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


def _hamming(x: np.ndarray) -> np.ndarray:
    return np.where(abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0)


def _box(x: np.ndarray) -> np.ndarray:
    return np.where((x > -0.5) & (x <= 0.5), 1.0, 0)


# name -> reach in pixels, weight at a distance in pixels
KERNELS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "bilinear": (1, _triangle), "bicubic": (2, _cubic), "lanczos": (3, _lanczos), "hamming": (1, _hamming), "box": (0.5, _box),
}  # fmt: skip


def upright_rgb(data: bytes) -> Image.Image:
    """A picture file as Pillow reads it: upright, RGB; of 16-bit grey the upper byte."""
    with Image.open(io.BytesIO(data)) as opened:
        image = ImageOps.exif_transpose(opened)
        if image.mode.startswith("I"):
            image = Image.fromarray((np.asarray(image) // 256).astype(np.uint8))
        return image.convert("RGB")


def resized_size(width: int, height: int, recipe: Any) -> tuple[int, int]:
    """(width, height) of the resized picture, as torchvision and timm compute it."""
    size = recipe.resize_size
    if recipe.resize == "none":
        return width, height
    if recipe.resize == "exact":
        return size, size
    short, long = min(width, height), max(width, height)
    long = int(size * long / short) if recipe.long_side_rounding == "floor" else round(size * long / short)
    return (size, long) if width <= height else (long, size)


def _crop_start(have: int, want: int, recipe: Any) -> int:
    """Where the crop of `want` pixels begins; negative where the picture is smaller and is padded, the smaller half first."""
    if have < want:
        return -((want - have) // 2)
    return int((have - want) / 2) if recipe.crop_offset == "floor" else round((have - want) / 2)


def prepared(image: Image.Image, recipe: Any, *, whole: bool = False) -> np.ndarray:
    """The picture of the recipe's size, int16 H x W x C, RGB: resize all of it, then cut out the middle, or pad around it.

    Beyond an aspect ratio of EXTREME_ASPECT only what the crop keeps is computed, see `_resampled`, unless `whole`.
    """
    image = image.convert("RGB")
    resized = resized_size(*image.size, recipe)
    left, top = (_crop_start(have, want, recipe) for have, want in zip(resized, (recipe.width, recipe.height), strict=True))
    canvas_HWC = np.full((recipe.height, recipe.width, 3), recipe.fill, np.int16)
    from_left, from_top = max(left, 0), max(top, 0)
    at_left, at_top = max(-left, 0), max(-top, 0)
    width, height = min(recipe.width, resized[0]), min(recipe.height, resized[1])
    if not whole and max(image.size) > EXTREME_ASPECT * min(image.size) and recipe.resize == "short_side":
        kept_HWC = _resampled(np.asarray(image), resized, (from_left, from_top), (width, height), recipe.interpolation)
    else:
        image = image.resize(resized, getattr(Image.Resampling, recipe.interpolation.upper()))
        kept_HWC = np.asarray(image)[from_top : from_top + height, from_left : from_left + width]
    canvas_HWC[at_top : at_top + height, at_left : at_left + width] = kept_HWC
    return canvas_HWC


def _resampled(
    pixels_HWC: np.ndarray, resized: tuple[int, int], start: tuple[int, int], length: tuple[int, int], interpolation: str
) -> np.ndarray:
    """What Pillow's resize gives in the box `start`, `length` of the picture of size `resized`; all three (width, height).

    First along the width, for those rows that count, rounded to whole grey levels, then along the height.
    """
    rows, row_weights = _weights(pixels_HWC.shape[0], resized[1], start[1], length[1], interpolation)
    columns, column_weights = _weights(pixels_HWC.shape[1], resized[0], start[0], length[0], interpolation)
    part_HWC = pixels_HWC[rows][:, columns].astype(np.float64)
    narrow_HWC = _whole_levels(np.einsum("ow,hwc->hoc", column_weights, part_HWC, optimize=True))
    return _whole_levels(np.einsum("oh,hwc->owc", row_weights, narrow_HWC, optimize=True))


def _weights(source: int, resized: int, start: int, length: int, interpolation: str) -> tuple[slice, np.ndarray]:
    """Along one side: the source pixels that count, and the weight of each of them in each kept one, length x source."""
    reach, kernel = KERNELS[interpolation]
    scale = source / resized
    stretch = max(scale, 1)
    centres = (start + np.arange(length) + 0.5) * scale
    firsts = np.maximum((centres - reach * stretch + 0.5).astype(int), 0)
    lasts = np.minimum((centres + reach * stretch + 0.5).astype(int), source)
    places = np.arange(firsts[0], lasts[-1])
    weights = kernel((places + 0.5 - centres[:, None]) / stretch)
    weights[(places < firsts[:, None]) | (places >= lasts[:, None])] = 0
    return slice(firsts[0], lasts[-1]), weights / weights.sum(1, keepdims=True)


def _whole_levels(values: np.ndarray) -> np.ndarray:
    return np.clip(np.floor(values + 0.5), 0, 255)


def normalised(images_NHWC: np.ndarray, recipe: Any) -> np.ndarray:
    """float64 N x 3 x H x W: bytes to the recipe's range, less mean, by std, channels in the recipe's order."""
    low, high = recipe.value_range
    values = images_NHWC.astype(np.float64) / 255 * (high - low) + low
    values = values[..., ["RGB".index(name) for name in recipe.channels]]
    return ((values - recipe.mean) / recipe.std).transpose(0, 3, 1, 2)
