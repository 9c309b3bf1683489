"""From the pixels of any mode to RGB of 8 bits: palettes, grey, CMYK, 16 bits, alpha, and embedded colour profiles (ICC).

docs/pixels.md says the rules.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image, ImageCms, features

from bulkinfer.errors import RecordError
from bulkinfer.images.jpeg import Header
from bulkinfer.images.pillow_warnings import count_notice
from bulkinfer.images.profile_digest import Kept, content_digest, digest_of
from bulkinfer.model.recipe import SRGB, STORED

IGNORED_PROFILE = "icc_profile"
SCALED = "scaled_16bit"
_SPACES = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}  # of profiles -> the mode of pixels that they describe
_SAME = 3  # grey levels by which a profile may differ from sRGB and still be it: writers round its curve
_STEPS = 9  # of each channel, where profiles are compared
_MOST_PROFILE_BYTES = 4 << 20  # those of printers have two or three million
_SEGMENT_HEAD = 14  # bytes of a JPEG's segment before its part of the profile: its name, number and count
_UNKNOWN_RANGE = {"I": "32-bit integers, range unknown", "F": "32-bit floats, range unknown", "LAB": "Lab colours"}

Alpha = tuple[int, int, int] | None
Described = tuple[str, bytes]  # the mode of pixels that a profile describes, "" if it is to be ignored; digest of its content

_described = Kept[Described](4096)
_transforms = Kept[ImageCms.ImageCmsTransform](48)  # each of up to two megabytes


def to_rgb(image: Image.Image, profile: bytes, colour: str, alpha_over: Alpha) -> tuple[Image.Image, tuple[str, ...]]:
    """The picture as RGB with 8 bits a channel, and the flags of the row.

    `colour` "stored" takes the numbers in the file, and flags a `profile` that is not sRGB; "srgb" converts by it. Alpha is
    dropped, or the picture is laid over the colour `alpha_over`. Raises RecordError for pixels of unknown range.
    """
    flags: tuple[str, ...] = ()
    alpha = _alpha_of(image) if alpha_over is not None else None
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):  # values up to 65535
        # The upper byte, as Pillow takes it of 16-bit RGB. Its convert() of 16-bit grey would clip: nearly all white.
        image, flags = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)), (SCALED,)
    if image.mode in _UNKNOWN_RANGE:
        raise RecordError("decode", f"unsupported pixels: {_UNKNOWN_RANGE[image.mode]}")
    image, more = by_profile(image, profile, colour)
    image = image if image.mode == "RGB" else image.convert("RGB")
    if alpha is not None and alpha_over is not None:
        shown = Image.new("RGB", image.size, alpha_over)
        shown.paste(image, mask=alpha)
        image = shown
    return image, flags + more


def _alpha_of(image: Image.Image) -> Image.Image | None:
    """How opaque each pixel is, 0 to 255; None if all are."""
    if image.mode in ("LA", "PA", "RGBA"):
        return image.getchannel("A")
    if image.mode in ("La", "RGBa") or ("transparency" in image.info and image.mode in ("1", "L", "P", "RGB")):
        return image.convert("RGBA").getchannel("A")
    return None


def by_profile(image: Image.Image, profile: bytes, colour: str) -> tuple[Image.Image, tuple[str, ...]]:
    """The picture, converted to sRGB if `colour` is "srgb" and `profile` is another; else with the flag that it is ignored.

    A profile that cannot be read, or describes other channels than the picture has, is no profile.
    """
    assert colour in (STORED, SRGB), colour
    if profile and colour == SRGB and not features.check("littlecms2"):
        raise RecordError("decode", "unsupported: this Pillow was built without LittleCMS, which `colour` srgb needs")
    if not 0 < len(profile) <= _MOST_PROFILE_BYTES:
        return image, ()
    mode, content = _describe(profile)
    if not mode:
        return image, ()
    if colour == STORED:
        return image, (IGNORED_PROFILE,)
    pixels = image if image.mode == mode else image.convert(mode) if _may_be(image.mode, mode) else None
    if pixels is None:
        count_notice(f"colour profile of {mode} in a picture of {image.mode}: ignored")
        return image, (IGNORED_PROFILE,)
    converted = ImageCms.applyTransform(pixels, _to_srgb(profile, mode, content))
    assert converted is not None
    return converted, ()


def _may_be(image_mode: str, profile_mode: str) -> bool:
    """Whether pixels of a mode have the channels that a profile describes, in another form."""
    is_grey = image_mode in ("1", "L", "LA", "La")
    return {"L": is_grey, "RGB": image_mode not in ("CMYK",) and not is_grey, "CMYK": False}[profile_mode]


def _describe(profile: bytes) -> Described:
    """What is known of the profile, or of another one that moves colours alike."""
    digest = digest_of(profile)
    if (known := _described.get(digest)) is None:
        content = content_digest(profile) or digest
        if (known := _described.get(content)) is None:
            known = (_mode_unless_srgb(profile, content), content)
            _described.keep(content, known)
        _described.keep(digest, known)
    return known


def _mode_unless_srgb(profile: bytes, content: bytes) -> str:
    """The mode of pixels that a profile describes; "" if it is sRGB, or cannot be read."""
    try:
        space = ImageCms.ImageCmsProfile(io.BytesIO(profile)).profile.xcolor_space.strip()
        mode = _SPACES.get(space, "")
        if not mode:
            count_notice(f"colour profile of {space[:8]}: ignored")
            return ""
        return "" if mode != "CMYK" and _largest_difference(profile, mode, content) <= _SAME else mode
    except MemoryError:  # says nothing about the profile
        raise
    except Exception as error:  # PyCMSError, OSError, TypeError: the pixels are good all the same
        count_notice(f"unreadable colour profile, ignored: {type(error).__name__}")
        return ""


def _largest_difference(profile: bytes, mode: str, content: bytes) -> int:
    """The number of grey levels by which the profile moves the colours that it moves most."""
    steps = np.linspace(0, 255, _STEPS).round().astype(np.uint8)
    if mode == "L":
        colours: Any = steps[None]
    else:
        colours = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(_STEPS, -1, 3)
    before = Image.fromarray(colours)
    after = ImageCms.applyTransform(before, _to_srgb(profile, mode, content))
    assert after is not None
    return int(np.abs(np.asarray(after).astype(int) - np.asarray(before.convert("RGB"))).max())


def _to_srgb(profile: bytes, mode: str, content: bytes) -> ImageCms.ImageCmsTransform:
    """Threads may share it. Relative colorimetric, so that white stays white."""
    if (known := _transforms.get(content)) is not None:
        return known
    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    intent = ImageCms.Intent.RELATIVE_COLORIMETRIC
    built = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB", intent)
    _transforms.keep(content, built)
    return built


def turbo_by_profile(image: Image.Image, header: Header, profile: bytes, colour: str) -> tuple[Image.Image, tuple[str, ...]]:
    """As by_profile, for a JPEG that was decoded as RGB although it may be grey; RGB again."""
    if not profile or colour == STORED:
        return by_profile(image, profile, colour)
    converted, flags = by_profile(image.convert("L") if header.channels == 1 else image, profile, colour)
    return converted if converted.mode == "RGB" else image, flags


def joined_profile(segments: tuple[bytes, ...]) -> bytes:
    """The profile that a JPEG holds in these segments, as Pillow joins it; empty if it is not whole."""
    parts = sorted(segments)
    if not parts or len(parts[0]) < _SEGMENT_HEAD or parts[0][_SEGMENT_HEAD - 1] != len(parts):
        return b""
    return b"".join(part[_SEGMENT_HEAD:] for part in parts)
