"""preprocess.py against plain Pillow (resize, then crop, then pad) and numbers worked out by hand."""

from __future__ import annotations

import io
import threading
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import RecordError
from bulkinfer.images.decode import decode, prepare_decoder
from bulkinfer.images.preprocess import normalise, plan, prepare
from bulkinfer.model.recipe import INTERPOLATIONS, RESIZE_MODES, ROUNDINGS, Recipe
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests import pictures, plain_preparation
from tests.pictures import noise, photo, solid

IMAGENET: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def recipe(**changes: Any) -> Recipe:
    values = {
        "height": 224,
        "width": 224,
        "resize": "short_side",
        "resize_size": 256,
        "crop_fraction": 0.875,
        "interpolation": "bilinear",
        **IMAGENET,
    }
    return Recipe(**{**values, **changes})


def prepared(image: Image.Image, rules: Recipe) -> np.ndarray:
    out = np.full((rules.height, rules.width, 3), 77, np.uint8)
    prepare(image, rules, out)
    return out.astype(np.int16)


def plainly(image: Image.Image, rules: Recipe) -> np.ndarray:
    """What a reader would write: convert, resize all of it, crop or pad around the centre."""
    return plain_preparation.prepared(image, rules, whole=True)


def worst(image: Image.Image, rules: Recipe) -> int:
    return int(np.abs(prepared(image, rules) - plainly(image, rules)).max())


SIZES = [
    (640, 480),
    (480, 640),
    (500, 375),
    (427, 640),
    (333, 500),
    (1024, 300),
    (300, 1024),
    (256, 256),
    (255, 257),
    (100, 75),
]


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_b64_golden_pixels(size: tuple[int, int], interpolation: str) -> None:
    rules = recipe(interpolation=interpolation)
    assert worst(photo(*size), rules) <= 1
    assert worst(noise(*size), rules) <= (0 if interpolation in ("nearest", "box") else 1)


@pytest.mark.parametrize("interpolation", ["bicubic", "lanczos"])
@pytest.mark.parametrize(
    "size", [(120, 90), (90, 120), (120, 120), (60, 130), (40, 200), (200, 40), (65, 64), (33, 60)], ids=str
)
def test_black_and_white_noise_is_the_worst_case(size: tuple[int, int], interpolation: str) -> None:
    """Filters overshoot most here, and clipping between the passes shows their order: other ways differ by up to 47 levels."""
    image = noise(*size).point(lambda value: 255 * (value > 127))
    assert worst(image, recipe(height=56, width=56, resize_size=64, interpolation=interpolation)) <= 2


@settings(max_examples=250, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(1, 80),
    st.integers(1, 80),
    st.integers(1, 100),
    st.sampled_from(RESIZE_MODES),
    st.sampled_from(INTERPOLATIONS),
    st.sampled_from(ROUNDINGS),
    st.sampled_from(ROUNDINGS),
)
def test_any_size_and_recipe(
    width: int,
    height: int,
    crop_width: int,
    crop_height: int,
    size: int,
    resize: str,
    interpolation: str,
    long: str,
    offset: str,
) -> None:
    rules = recipe(
        height=crop_height,
        width=crop_width,
        resize=resize,
        resize_size=size,
        interpolation=interpolation,
        long_side_rounding=long,
        crop_offset=offset,
        fill=(1, 20, 130),
    )
    # Two, not one: noise has pixels on the border of rounding in both passes; about one example in a thousand.
    assert worst(noise(width, height, seed=width), rules) <= (0 if interpolation in ("nearest", "box") else 2)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (9, 1), (2, 3), (3, 224)], ids=str)
def test_tiny_pictures_are_enlarged(size: tuple[int, int], interpolation: str) -> None:
    rules = recipe(interpolation=interpolation)
    assert worst(noise(*size), rules) <= 1
    if size == (1, 1):
        assert (prepared(solid((9, 8, 7), (1, 1)), rules) == (9, 8, 7)).all()


@pytest.mark.parametrize("size", [(100_000, 1), (1, 100_000), (65_500, 3), (3, 65_500)], ids=str)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_extreme_aspect_ratios_cost_nothing(size: tuple[int, int], interpolation: str) -> None:
    """Resized whole these would take 17 to 23 GB. Both ends black, the middle, which the crop keeps, grey levels."""
    image = Image.new("RGB", size)
    middle = solid((200, 100, 50), (min(size[0], 200), min(size[1], 200)))
    image.paste(middle, (size[0] // 2 - middle.width // 2, size[1] // 2 - middle.height // 2))
    tracemalloc.start()  # numpy's share; Pillow's would end the test by itself
    assert (prepared(image, recipe(interpolation=interpolation)) == (200, 100, 50)).all()
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos", "hamming"])
def test_wide_pictures_beyond_the_precision_of_a_box(interpolation: str) -> None:
    """A gradient, 70,000 pixels wide: a box in 32-bit floats would be off by up to 0.004 pixels."""
    image = noise(70_001, 2)
    rules = recipe(height=32, width=32, resize_size=16, interpolation=interpolation)
    assert worst(image, rules) <= 1


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK"])
def test_other_modes_are_converted(mode: str) -> None:
    image = photo(51, 37).convert("LA" if mode == "LA" else mode) if mode != "PA" else photo(51, 37).convert("P").convert("PA")
    assert worst(image, recipe(height=24, width=24, resize_size=28)) <= 1


def test_padding_is_filled_and_the_smaller_half_comes_first() -> None:
    rules = recipe(height=5, width=8, resize="none", fill=(1, 2, 3))
    out = prepared(solid((9, 9, 9), (3, 2)), rules)
    inside = (out == 9).all(axis=2)
    assert np.argwhere(inside).min(axis=0).tolist() == [1, 2]
    assert np.argwhere(inside).max(axis=0).tolist() == [2, 4]
    assert (out[~inside] == (1, 2, 3)).all()


def test_crop_offset_and_long_side_by_hand() -> None:
    x, y = plan(640, 480, recipe())
    assert (x.resized, y.resized) == (341, 256)  # 341.33
    assert (x.start, y.start) == (58, 16)  # 58.5: halves to even
    assert plan(640, 480, recipe(crop_offset="floor"))[0].start == 58
    assert plan(500, 375, recipe(resize_size=255, crop_offset="floor"))[1].start == 15
    assert plan(500, 375, recipe(resize_size=255))[1].start == 16  # 15.5
    x, _ = plan(500, 333, recipe(long_side_rounding="round"))  # 384.38
    assert x.resized == 384
    x, _ = plan(500, 334, recipe(long_side_rounding="round"))  # 383.23
    assert x.resized == 383
    x, _ = plan(427, 640, recipe(resize="exact", resize_size=224))
    assert (x.resized, x.start, x.length) == (224, 0, 224)


def test_the_slot_alone_is_written() -> None:
    batch = np.full((3, 32, 32, 3), 5, np.uint8)
    prepare(photo(), recipe(height=32, width=32, resize_size=36), batch[1])
    assert (batch[[0, 2]] == 5).all()
    assert (batch[1] != 5).any()


def test_threads_agree() -> None:
    image, rules = photo(320, 240), recipe(interpolation="bicubic")
    batch = np.zeros((8, 224, 224, 3), np.uint8)
    threads = [threading.Thread(target=prepare, args=(image, rules, slot)) for slot in batch]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (batch == batch[0]).all()
    assert (batch[0] == prepared(image, rules)).all()


def test_b11_a_grey_picture_among_colour_ones() -> None:
    batch = np.zeros((8, 3, 16, 16), np.float32)
    rules = recipe(height=16, width=16, resize_size=18)
    for n in range(8):
        image = Image.open(io.BytesIO(pictures.encode(photo(seed=n).convert("L" if n == 5 else "RGB"), "JPEG")))
        batch[n] = normalise(prepared(image, rules).astype(np.uint8)[None], replace(rules, mean=(0, 0, 0), std=(1, 1, 1)))[0]
    assert (batch[5] == batch[5, :1]).all()
    assert not (batch[4] == batch[4, :1]).all()


# Mean and largest difference in grey levels from Pillow's resize with antialiasing, on noise of 900 x 700: from..to.
SHORTCUTS = {
    "reducing_gap": ((1.0, 2.5), (5, 50)),
    "draft": ((2.0, 4.5), (10, 50)),
    "nearest": ((35.0, 45.0), (100, 255)),
}


@pytest.mark.parametrize("shortcut", SHORTCUTS)
def test_b64_the_shortcuts_differ_from_the_reference(shortcut: str) -> None:
    """Why none of them is taken unasked; what is prepared is the reference itself, bit for bit where nothing is cut off."""
    rules = recipe(resize="exact", resize_size=224)
    data, size = pictures.encode(noise(900, 700), "JPEG", quality=95), (224, 224)
    image = Image.open(io.BytesIO(data))
    reference = np.asarray(image.resize(size, Image.Resampling.BILINEAR)).astype(np.int16)
    if shortcut == "draft":
        small = Image.open(io.BytesIO(data))
        small.draft("RGB", size)
        assert small.size == (450, 350)
        short = small.resize(size, Image.Resampling.BILINEAR)
    elif shortcut == "reducing_gap":
        short = image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
    else:
        short = image.resize(size, Image.Resampling.NEAREST)
    apart = np.abs(np.asarray(short).astype(np.int16) - reference)
    (least, most), (smallest, largest) = SHORTCUTS[shortcut]
    assert least < apart.mean() < most
    assert smallest < apart.max() < largest
    prepare_decoder()
    decoded = decode(data, orientation="exif", max_pixels=10**6).image
    assert (prepared(decoded, rules) == reference).all()
    assert np.abs(prepared(decoded, recipe(resize_size=224)) - plainly(decoded, recipe(resize_size=224))).max() <= 1


def reduced_and_whole(data: bytes, rules: Recipe) -> tuple[np.ndarray, np.ndarray]:
    """The slots of a JPEG decoded at a reduced size, which it must be, and exactly."""
    prepare_decoder()
    slots = []
    for at_least in (rules.short_side_needed, 0):
        picture = decode(data, orientation="exif", max_pixels=10**8, at_least=at_least)
        full_size = (picture.width, picture.height)
        assert (picture.image.size != full_size) == bool(at_least)
        slots.append(np.zeros((rules.height, rules.width, 3), np.uint8))
        prepare(picture.image, rules, slots[-1], full_size=full_size)
    return slots[0].astype(np.int16), slots[1].astype(np.int16)


# What docs/how-to/decoding.md says of --decode fast: mean and largest difference in grey levels.
BOUND_ON_PHOTOGRAPHS, BOUND_ON_NOISE = (1, 60), (10, 60)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(640, 480), (481, 1333), (900, 700), (1201, 801), (2403, 3001)])
def test_b64_fast_stays_within_its_bound(size: tuple[int, int], interpolation: str) -> None:
    rules = recipe(interpolation=interpolation)
    for image, subsampling, (mean, largest) in ((noise(*size), 0, BOUND_ON_NOISE), (photo(*size), 2, BOUND_ON_PHOTOGRAPHS)):
        fast, exact = reduced_and_whole(pictures.encode(image, "JPEG", quality=90, subsampling=subsampling), rules)
        apart = np.abs(fast - exact)
        assert apart.mean() <= mean
        assert apart.max() <= largest


@pytest.mark.parametrize(
    "changes", [{"resize": "exact"}, {"long_side_rounding": "round", "crop_offset": "floor"}, {"width": 448}, {"height": 300}]
)
@pytest.mark.parametrize("size", [(1003, 601), (601, 1003), (4001, 640), (640, 4001)])
def test_b64_fast_moves_nothing(size: tuple[int, int], changes: dict[str, Any]) -> None:
    """Smooth pictures show every shift: a quarter of a pixel here would be more than a grey level at every edge."""
    coarse = Image.fromarray(np.random.default_rng(1).integers(0, 256, (12, 12, 3), np.uint8))
    smooth = coarse.resize(size, Image.Resampling.BICUBIC)
    fast, exact = reduced_and_whole(pictures.encode(smooth, "JPEG", quality=98, subsampling=0), recipe(**changes))
    assert np.abs((fast - exact).mean((0, 1))).max() < 0.1
    assert np.abs(fast - exact).mean() < 0.6


def test_b64_a_reduced_size_that_is_not_in_eighths_is_our_own_fault() -> None:
    with pytest.raises(RecordError, match="cannot prepare"):
        prepare(photo(401, 300), recipe(), np.zeros((224, 224, 3), np.uint8), full_size=(640, 480))


def test_b62_bgr_0_255_recipe() -> None:
    rules = recipe(channels="BGR", value_range=(0, 255), mean=(104, 117, 128), std=(1, 1, 1))
    slot = prepared(solid((200, 100, 50), (300, 260)), rules).astype(np.uint8)
    assert slot[0, 0].tolist() == [200, 100, 50]  # the slot stays RGB
    images_NCHW = normalise(slot[None], rules)
    assert images_NCHW[0, :, 0, 0].tolist() == [-54, -17, 72]
    assert images_NCHW.shape == (1, 3, 224, 224)
    assert images_NCHW.dtype == np.float32


def test_b62_half_half_recipe() -> None:
    rules = recipe(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    images_NHWC = np.array([[[[0, 255, 51]]]], np.uint8)
    assert normalise(images_NHWC, rules)[0, :, 0, 0].tolist() == pytest.approx([-1, 1, -0.6], abs=1e-7)


def test_imagenet_recipe_by_hand() -> None:
    images_NHWC = np.array([[[[200, 100, 50]]]], np.uint8)
    expected = [(200 / 255 - 0.485) / 0.229, (100 / 255 - 0.456) / 0.224, (50 / 255 - 0.406) / 0.225]
    assert normalise(images_NHWC, recipe())[0, :, 0, 0].tolist() == pytest.approx(expected, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(
    st.tuples(*[st.floats(-1, 200)] * 3),
    st.tuples(*[st.floats(0.1, 300)] * 3),
    st.sampled_from(["RGB", "BGR"]),
    st.sampled_from([(0.0, 1.0), (0.0, 255.0), (-1.0, 1.0)]),
)
def test_normalise_against_plain_numpy(
    mean: tuple[float, float, float], std: tuple[float, float, float], channels: str, value_range: tuple[float, float]
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3), dtype=np.uint8)
    low, high = value_range
    values = images.astype(np.float64)[..., :: 1 if channels == "RGB" else -1] / 255 * (high - low) + low
    expected = ((values - mean) / std).transpose(0, 3, 1, 2)
    found = normalise(images, recipe(mean=mean, std=std, channels=channels, value_range=value_range))
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=1e-6 * max(1, *np.abs(np.divide(mean, std)), np.abs(expected).max())
    )


def test_what_pillow_raises_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def resize(*_arguments: object, **_options: object) -> None:
        raise MemoryError

    image = photo()
    monkeypatch.setattr(Image.Image, "resize", resize)
    with pytest.raises(RecordError, match="cannot prepare a picture of 64x48: MemoryError") as caught:
        prepared(image, recipe())
    assert caught.value.stage == "preprocess"


def test_a_slot_of_the_wrong_shape_is_our_own_fault() -> None:
    with pytest.raises(AssertionError):
        prepare(photo(), recipe(), np.zeros((3, 224, 224), np.uint8))
    with pytest.raises(AssertionError):
        normalise(np.zeros((1, 3, 4, 4), np.uint8), recipe())
