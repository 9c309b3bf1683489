"""From a decoded picture to its slot in a batch, by the rules of the recipe.

Shape letters: N batch, H height, W width, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from inference.card import Recipe
from inference.errors import RecordError

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}
# Up to here "nearest" resizes the whole picture (at most 64 MiB as Pillow holds it); beyond, only what the crop keeps.
_MAX_WHOLE_NEAREST_PIXELS = 1 << 24


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the way from source to prepared picture, in pixels.

    The `source` pixels become `resized` ones; of these, `length` ones from `start` on are kept and placed at `place`.
    """

    source: int
    resized: int
    start: int
    length: int
    place: int

    @property
    def box(self) -> tuple[float, float]:
        """The kept part in source coordinates; the whole axis exactly where nothing is cut."""
        end = min(self.source, (self.start + self.length) * self.source / self.resized)
        return self.start * self.source / self.resized, end


def prepare(image: Image.Image, recipe: Recipe, out: NDArray[np.uint8]) -> None:
    """Resize, crop and pad `image` by the recipe and write it into `out`, one slot of a batch: uint8 H x W x 3, RGB.

    The channels are RGB whatever `recipe.channels` says: their order, like scaling, is the business of the graph, or of
    normalise() for graphs that take float32. Equals Pillow's resize followed by a crop to within one grey level (bit for bit
    where nothing is cut off, and for nearest), but never makes the pixels that the crop would throw away, so extreme
    aspect ratios cost nothing. Raises RecordError("preprocess").
    """
    assert out.shape == (recipe.height, recipe.width, 3), out.shape
    assert out.dtype == np.uint8, out.dtype
    try:
        _prepare(image, recipe, out)
    except Exception as error:  # Pillow and numpy raise what they like (MemoryError, ValueError ...): it costs this row only
        reason = str(error) or type(error).__name__
        raise RecordError("preprocess", f"cannot prepare a picture of {image.width}x{image.height}: {reason}") from error


def _prepare(image: Image.Image, recipe: Recipe, out: NDArray[np.uint8]) -> None:
    x, y = plan(image.width, image.height, recipe)
    if image.mode != "RGB":
        image = image.convert("RGB")
    kept = _resize(image, x, y, recipe.interpolation)
    if (x.length, y.length) != (recipe.width, recipe.height):
        out[:] = recipe.fill
    out[y.place : y.place + y.length, x.place : x.place + x.length] = np.asarray(kept)


def plan(width: int, height: int, recipe: Recipe) -> tuple[Axis, Axis]:
    """How a picture of width x height becomes the prepared one: the horizontal and the vertical axis. Pure."""
    resized_width, resized_height = _resized_size(width, height, recipe)
    return (
        _crop(width, resized_width, recipe.width, recipe.crop_offset),
        _crop(height, resized_height, recipe.height, recipe.crop_offset),
    )


def _resized_size(width: int, height: int, recipe: Recipe) -> tuple[int, int]:
    if recipe.resize == "none":
        return width, height
    size = recipe.resize_size
    if recipe.resize == "exact":
        return size, size
    short, long = sorted((width, height))
    # Whole numbers for floor: what torchvision's int(size * long / short) gives, without trusting a float to do so.
    # round() takes halves to the even number.
    long = size * long // short if recipe.long_side_rounding == "floor" else round(size * long / short)
    return (size, long) if width <= height else (long, size)


def _crop(source: int, resized: int, crop: int, crop_offset: str) -> Axis:
    if resized < crop:  # padding: the smaller half comes first, as in torchvision
        return Axis(source, resized, 0, resized, (crop - resized) // 2)
    start = (resized - crop) // 2 if crop_offset == "floor" else round((resized - crop) / 2)
    return Axis(source, resized, start, crop, 0)


def _resize(image: Image.Image, x: Axis, y: Axis, interpolation: str) -> Image.Image:
    """The kept part of the resized picture, y.length x x.length."""
    region = (x.start, y.start, x.start + x.length, y.start + y.length)
    size = (x.resized, y.resized)
    if size == image.size:
        return image if region == (0, 0, *size) else image.crop(region)
    filter_ = _FILTERS[interpolation]
    if filter_ is Image.Resampling.NEAREST and x.resized * y.resized <= _MAX_WHOLE_NEAREST_PIXELS:
        # A box moves the sampling points by rounding errors, which nearest turns into other pixels, not other grey levels.
        return image.resize(size, filter_).crop(region)
    (left, right), (top, bottom) = x.box, y.box
    return image.resize((x.length, y.length), filter_, box=(left, top, right, bottom))


def normalise(images_NHWC: NDArray[np.uint8], recipe: Recipe) -> NDArray[np.float32]:
    """Prepared pictures as float32 N x 3 x H x W, for graphs that take float32: what uint8 graphs do inside.

    0..255 is scaled to recipe.value_range, then (value - mean) / std, channels in the order of recipe.channels (mean and
    std are in that order too). As in the graph, this is one scale and one offset per channel, computed in float64 and applied
    in float32: within 1e-6 of the exact result where that is around 1.
    """
    assert images_NHWC.dtype == np.uint8, images_NHWC.dtype
    assert images_NHWC.ndim == 4, images_NHWC.shape
    assert images_NHWC.shape[3] == 3, images_NHWC.shape
    count, height, width, _ = images_NHWC.shape
    low, high = recipe.value_range
    images_NCHW = np.empty((count, 3, height, width), np.float32)
    for channel, (name, mean, std) in enumerate(zip(recipe.channels, recipe.mean, recipe.std, strict=True)):
        plane_NHW = images_NCHW[:, channel]
        scale, offset = np.float32((high - low) / 255 / std), np.float32((low - mean) / std)
        np.multiply(images_NHWC[..., "RGB".index(name)], scale, out=plane_NHW, dtype=np.float32)
        plane_NHW += offset
    return images_NCHW
