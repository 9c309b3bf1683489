"""The recipe of a network: how a decoded picture becomes its input."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

from bulkinfer.errors import UsageError

RESIZE_MODES = ("short_side", "exact", "none")
ROUNDINGS = ("floor", "round")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
CHANNEL_ORDERS = ("RGB", "BGR")
ORIENTATIONS = ("exif", "stored")
STORED, SRGB = COLOURS = ("stored", "srgb")
# How much larger than the resized picture a reduced one must be. At 1.0 the reduction does most of the resizing: on crops of
# photographs it changed 0.6 % of the clear classes, at 1.1 it changed 0.1 %.
_REDUCED_MARGIN = 1.1
_MOST_SIDE = 65_535  # pixels, as in JPEG; a larger number is a typing error that would take all memory
_SMOOTH = ("bilinear", "bicubic", "lanczos")  # the others are so narrow that they show single pixels, which a reduction loses


@dataclass(frozen=True, slots=True)
class Recipe:
    """Every rule that moves a pixel between the decoded picture and the network's input.

    The prepared picture is `height` x `width`. `resize` is "short_side" (short side becomes `resize_size` pixels, the long
    side keeps the aspect and is rounded by `long_side_rounding`), "exact" (straight to resize_size x resize_size, no
    aspect kept) or "none". A centre crop follows: offset (side - crop) / 2, rounded by `crop_offset` (torchvision's
    `int(round(...))` is "round", halves to even); where the picture is smaller than the crop it is padded with `fill`, in
    grey levels. Values are scaled from 0..255 to `value_range`, then (x - mean) / std in the order of `channels`.
    `orientation` "exif" turns pictures upright, "stored" takes them as they lie in the file. `colour` "stored" takes the
    numbers in the file, "srgb" converts by an embedded colour profile. Transparent pictures are laid over the colour
    `alpha_over` (red, green, blue in grey levels), or their alpha is dropped (None). docs/pixels.md has all rules.
    """

    height: int
    width: int
    resize: str
    resize_size: int
    crop_fraction: float
    interpolation: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    long_side_rounding: str = "floor"
    crop_offset: str = "round"
    antialias: bool = True
    fill: tuple[int, int, int] = (0, 0, 0)
    channels: str = "RGB"
    value_range: tuple[float, float] = (0.0, 1.0)
    orientation: str = "exif"
    colour: str = STORED
    alpha_over: tuple[int, int, int] | None = None

    def facts(self) -> dict[str, Any]:
        """The fields for JSON, as in cards and in the identity of a job.

        Fields that came later are left out at their defaults: cards from before them have the same facts, and so the same
        fingerprint.
        """
        facts = asdict(self)
        for name, default in (("colour", STORED), ("alpha_over", None)):
            if facts[name] == default:
                del facts[name]
        return facts

    @property
    def short_side_needed(self) -> int:
        """Pixels that the short side must keep if a picture is decoded at a reduced size; 0: it must not be."""
        if self.resize == "none" or self.interpolation not in _SMOOTH:
            return 0
        return math.ceil(_REDUCED_MARGIN * self.resize_size)

    def reduce_to(self, decode: str) -> int:
        """The short side in pixels that JPEGs may be decoded at under --decode `decode`; 0: they are decoded exactly."""
        return self.short_side_needed if decode == "fast" else 0

    @property
    def scale(self) -> tuple[float, ...]:
        """Factor for a value of 0..255, by channel in the order of `channels`. See `offset`."""
        low, high = self.value_range
        return tuple((high - low) / 255 / std for std in self.std)

    @property
    def offset(self) -> tuple[float, ...]:
        """Summand after that, by channel. Both are computed in float64, so that only one product and one sum are rounded."""
        return tuple((self.value_range[0] - mean) / std for mean, std in zip(self.mean, self.std, strict=True))

    @property
    def black_and_white(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What black and white become, by channel in the order of `channels`."""
        white = tuple(255 * scale + offset for scale, offset in zip(self.scale, self.offset, strict=True))
        return self.offset, white

    def __post_init__(self) -> None:
        for name, legal in (
            ("resize", RESIZE_MODES),
            ("long_side_rounding", ROUNDINGS),
            ("crop_offset", ROUNDINGS),
            ("interpolation", INTERPOLATIONS),
            ("channels", CHANNEL_ORDERS),
            ("orientation", ORIENTATIONS),
            ("colour", COLOURS),
        ):
            if (value := getattr(self, name)) not in legal:
                raise UsageError(f"recipe: {name} is {value!r}; known are {', '.join(legal)}")
        for name in ("mean", "std", "fill", "value_range", "alpha_over"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(value))
        if not self.antialias:
            raise UsageError("recipe: antialias false is not supported; pictures are resized with antialiasing")
        sides = (self.height, self.width) if self.resize == "none" else (self.height, self.width, self.resize_size)
        if not all(1 <= side <= _MOST_SIDE for side in sides):
            raise UsageError(f"recipe: height, width and resize_size must be 1 to {_MOST_SIDE} pixels")
        if len(self.mean) != 3 or len(self.std) != 3 or len(self.fill) != 3 or 0 in self.std:
            raise UsageError("recipe: mean, std and fill need three values each, and no std may be 0")
        over = self.alpha_over
        if over is not None and not (len(over) == 3 and all(isinstance(level, Real) and 0 <= level <= 255 for level in over)):
            raise UsageError("recipe: alpha_over needs three grey levels, 0 to 255")
        numbers = (self.crop_fraction, *self.mean, *self.std, *self.fill, *self.value_range)
        # math.isfinite fails for larger whole numbers
        if not all(isinstance(number, Real) and abs(number) <= sys.float_info.max for number in numbers):
            raise UsageError("recipe: crop_fraction, mean, std, fill and value_range must be finite numbers")
        if self.crop_fraction <= 0:
            raise UsageError("recipe: crop_fraction must be above 0")
        if len(self.value_range) != 2:
            raise UsageError("recipe: value_range needs two values, those of black and white")
