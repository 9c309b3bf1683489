"""From a decoded picture to its slot in a batch, by the rules of the recipe.

Shape letters: N batch, H height, W width, C channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bulkinfer.errors import RecordError
from bulkinfer.images.pixel_memory import cut, write_rgb
from bulkinfer.model.recipe import Recipe

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}
_SUPPORT = {"bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0, "hamming": 1.0, "box": 0.5, "nearest": 0.5}  # pixels, Pillow's
_NO_OVERSHOOT = ("bilinear", "hamming")  # all weights positive: the order of the two passes moves roundings only
# Up to here a picture may be resized whole, at 4 bytes per pixel, where nothing else gives the same pixels.
_MAX_WHOLE_PIXELS = 1 << 24


@dataclass(frozen=True, slots=True)
class Axis:
    """How one axis of a picture is resized and cropped, in pixels.

    `source` pixels are resized to `resized`; of these, `length` pixels from `start` on are kept, and go to `place` in the slot.
    `source` is a fraction if the picture was decoded at a reduced size, and ends inside a pixel.
    """

    source: float
    resized: int
    start: int
    length: int
    place: int

    def source_box(self, support: float) -> tuple[int, int, float, float]:
        """The source pixels first..last (exclusive) that the kept part is made of, and its exact bounds relative to `first`.

        `support` is the radius of the filter in pixels of the coarser of the two grids.
        """
        scale = self.source / self.resized
        left, right = self.start * scale, min((self.start + self.length) * scale, self.source)
        reach = support * max(scale, 1) + 1  # one more: rounding must never cut off a pixel that is needed
        first, last = max(math.floor(left - reach), 0), min(math.ceil(right + reach), math.ceil(self.source))
        return first, last, left - first, right - first


def prepare(image: Image.Image, recipe: Recipe, out: NDArray[np.uint8], *, full_size: tuple[int, int] | None = None) -> None:
    """Resize, crop and pad `image` by the recipe and write it into `out`, one slot of a batch: uint8 H x W x 3, RGB.

    `full_size` is the (width, height) of the whole picture, if `image` was decoded at a reduced size, in eighths: resize and
    crop are computed from it.

    The channels are RGB whatever `recipe.channels` says: the graph orders and scales them, or normalise() for graphs that
    take float32.
    Equals Pillow's resize followed by a crop to within one grey level, without making the pixels that the crop drops (two
    levels in the rare pixel that rounds differently in both passes; bit for bit where nothing is cut off, and for nearest and
    box). Beyond 16 million resized pixels, which takes an extreme aspect ratio, nearest and box may take a neighbouring pixel,
    and filters that overshoot may differ more.
    Raises RecordError("preprocess").
    """
    assert out.shape == (recipe.height, recipe.width, 3), out.shape
    assert out.dtype == np.uint8, out.dtype
    try:
        _prepare(image, recipe, out, full_size or image.size)
    except Exception as error:  # Pillow and numpy raise many classes (MemoryError, ValueError ...): only this row is lost
        reason = str(error) or type(error).__name__
        raise RecordError("preprocess", f"cannot prepare a picture of {image.width}x{image.height}: {reason}") from error


def _prepare(image: Image.Image, recipe: Recipe, out: NDArray[np.uint8], full_size: tuple[int, int]) -> None:
    way = _way(full_size, image.size, recipe)
    if image.mode != "RGB":
        image = image.convert("RGB")
    kept = _resize_kept(image, way.passes) if way.passes else _resize_whole(image, way.x, way.y, recipe)
    if way.place is None:
        write_rgb(kept, out)
    else:
        out[:] = recipe.fill
        write_rgb(kept, out[way.place])


def plan(width: int, height: int, recipe: Recipe) -> tuple[Axis, Axis]:
    """How a picture of width x height is resized and cropped: the horizontal and the vertical axis. Pure."""
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


def _reduced(axis: Axis, pixels: int) -> Axis:
    """The axis from a source that was reduced to so many pixels: N eighths of it, the last pixel possibly filled in part."""
    source = axis.source * (8 * pixels // axis.source) / 8
    assert math.ceil(source) == pixels, (axis, pixels)
    return replace(axis, source=source)


class _Passes(NamedTuple):
    """What is cut out of the picture, and resized to a size from a box of it: horizontally, then vertically."""

    cut: tuple[int, int, int, int]
    resample: Image.Resampling
    size: tuple[int, int]
    box: tuple[float, float, float, float]
    final_size: tuple[int, int]
    final_box: tuple[float, float, float, float]


class _Way(NamedTuple):
    """How pictures of one size are prepared. Those without `passes` are resized whole, those without `place` fill the slot."""

    x: Axis
    y: Axis
    passes: _Passes | None
    place: tuple[slice, slice] | None


@lru_cache(maxsize=1024)
def _way(full_size: tuple[int, int], size: tuple[int, int], recipe: Recipe) -> _Way:
    """For a picture of `full_size` (width, height) that was decoded at `size`."""
    x, y = plan(*full_size, recipe)
    if size != full_size:
        x, y = _reduced(x, size[0]), _reduced(y, size[1])
    is_whole = (x.start, y.start, x.length, y.length) == (0, 0, x.resized, y.resized)
    has_its_size = (x.resized, y.resized) == (x.source, y.source)
    is_small = x.resized * y.resized <= _MAX_WHOLE_PIXELS
    resizes_whole = is_whole or has_its_size or (is_small and not _may_cut_first(x, y, recipe))
    fills_slot = (x.length, y.length) == (recipe.width, recipe.height)
    place = None if fills_slot else (slice(y.place, y.place + y.length), slice(x.place, x.place + x.length))
    return _Way(x, y, None if resizes_whole else _passes(x, y, recipe.interpolation), place)


def _resize_whole(image: Image.Image, x: Axis, y: Axis, recipe: Recipe) -> Image.Image:
    """The kept part, y.length x x.length, of the whole picture resized."""
    region = (x.start, y.start, x.start + x.length, y.start + y.length)
    size = (x.resized, y.resized)
    if size == (x.source, y.source):
        return image if region == (0, 0, *size) else image.crop(region)
    return image.resize(size, _FILTERS[recipe.interpolation], box=(0, 0, x.source, y.source)).crop(region)


def _may_cut_first(x: Axis, y: Axis, recipe: Recipe) -> bool:
    """Whether _resize_kept() gives the pixels of a whole resize but for roundings (tested against Pillow 13).

    Not for nearest and box: they turn rounding errors of a sampling point into another pixel. And where a filter overshoots,
    clipping after the first pass makes the order of the passes visible: Pillow shrinks tall pictures vertically first.
    """
    if recipe.interpolation in _NO_OVERSHOOT:
        return True
    return recipe.interpolation in ("bicubic", "lanczos") and recipe.resize == "short_side" and y.source < 1.9 * x.source


def _passes(x: Axis, y: Axis, interpolation: str) -> _Passes:
    """How the kept part is resized to y.length x x.length from what it is made of.

    Two calls, not one with a box, because given a box Pillow chooses the order of its passes by what is cheaper; and cut out
    first, because it holds a box in 32-bit floats, too coarse for very wide pictures.
    """
    support = _SUPPORT[interpolation]
    left, right, box_left, box_right = x.source_box(support)
    top, bottom, box_top, box_bottom = y.source_box(support)
    return _Passes(
        cut=(left, top, right, bottom),
        resample=_FILTERS[interpolation],
        size=(x.length, bottom - top),
        box=(box_left, 0, box_right, bottom - top),
        final_size=(x.length, y.length),
        final_box=(0, box_top, x.length, box_bottom),
    )


def _resize_kept(image: Image.Image, passes: _Passes) -> Image.Image:
    """The kept part, without making the rest."""
    part = cut(image, passes.cut).resize(passes.size, passes.resample, passes.box)
    return part.resize(passes.final_size, passes.resample, passes.final_box)


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
    images_NCHW = np.empty((count, 3, height, width), np.float32)
    for channel, (name, scale, offset) in enumerate(zip(recipe.channels, recipe.scale, recipe.offset, strict=True)):
        plane_NHW = images_NCHW[:, channel]
        np.multiply(images_NHWC[..., "RGB".index(name)], np.float32(scale), out=plane_NHW, dtype=np.float32)
        plane_NHW += np.float32(offset)
    return images_NCHW
