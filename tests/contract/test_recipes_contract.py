"""Every recipe of the zoo makes of a picture what a plain implementation makes of it.

Over all sizes, orientations and kinds of pixels, through every decoder, and normalised inside the graph as well as outside.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from bulkinfer import zoo
from bulkinfer.errors import RecordError, UsageError
from bulkinfer.images.decode import prepare_decoder
from bulkinfer.images.jpeg import turbo_decode
from bulkinfer.images.preprocess import normalise
from bulkinfer.model.recipe import Recipe
from bulkinfer.types import Record
from bulkinfer.worker.loader import Limits, load_record
from bulkinfer.worker.metrics import Meter
from PIL import Image
from timm.data import create_transform, resolve_data_config
from torchvision import transforms

from tests import pictures, plain_preparation
from tests.forms import only_first
from tests.networks import published, run
from tests.pictures import encode, noise, photo
from tests.plain_preparation import KERNELS, normalised, prepared, resized_size, upright_rgb

# The pixels of a recipe do not depend on these.
VALUE_RULES: dict[str, Any] = {"mean": (0, 0, 0), "std": (1, 1, 1), "channels": "RGB", "value_range": (0, 1)}


@cache
def recipes() -> dict[str, Recipe]:
    """Of every network that has one: what it is called here, and its recipe."""
    names = [*zoo.NETWORKS, *(f"timm:{name}" for name in dict.fromkeys([*timm.list_models(), *timm.list_pretrained()]))]
    found = {}
    for name in names:
        try:
            found[name] = zoo.find(name)[1].recipe
        except UsageError:  # it gives no classes, or wants what no recipe expresses
            continue
    return found


def first_with_each(values: dict[str, Recipe]) -> dict[str, Recipe]:
    """Every recipe once, under the name of the first network that has it."""
    names: dict[Recipe, str] = {}
    for name, recipe in values.items():
        names.setdefault(recipe, name)
    return {name: recipe for recipe, name in names.items()}


@cache
def all_geometries() -> dict[str, Recipe]:
    """Recipes that differ in what moves pixels."""
    return first_with_each({name: replace(recipe, crop_fraction=1.0, **VALUE_RULES) for name, recipe in recipes().items()})


@cache
def main_geometries() -> dict[str, Recipe]:
    """Those of our own list, and one of each further kind of timm's: they meet everything, the others take turns at it."""
    kinds: dict[tuple[str, str], str] = {}
    for name, rules in all_geometries().items():
        kinds.setdefault((rules.resize, rules.interpolation), name)
    return {name: rules for name, rules in all_geometries().items() if name in zoo.NETWORKS or name in kinds.values()}


@cache
def all_value_rules() -> dict[str, Recipe]:
    """Recipes that differ in what happens to the values of pixels."""
    plain: dict[str, Any] = {"height": 16, "width": 16, "resize": "exact", "resize_size": 16, "interpolation": "nearest"}
    return first_with_each({name: replace(recipe, crop_fraction=1.0, **plain) for name, recipe in recipes().items()})


PARTS = 4  # into which the long form splits what is not main, for as many processes
each_part = pytest.mark.parametrize("part", only_first(range(PARTS + 1)))


def part_of(everything: dict[str, Recipe], main: dict[str, Recipe], part: int) -> dict[str, Recipe]:
    """Part 0 is `main`, the others share out the rest of `everything`."""
    rest = [name for name in everything if name not in main]
    return {name: everything[name] for name in rest[part - 1 :: PARTS]} if part else main


@pytest.fixture
def geometries(part: int) -> dict[str, Recipe]:
    return part_of(all_geometries(), main_geometries(), part)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each picture lies in turn: a new one for every test takes longer than most of them."""
    return tmp_path_factory.mktemp("recipes")


@pytest.fixture(autouse=True)
def _decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a worker has it."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    prepare_decoder()


def by_the_product(data: bytes, rules: Recipe, folder: Path, *, reduce_to: int = 0) -> np.ndarray:
    """A file's way into its slot, as in a loader thread; int16."""
    (folder / "picture").write_bytes(data)
    record = Record(0, b"picture", os.fsencode(folder / "picture"))
    out = np.full((rules.height, rules.width, 3), 77, np.uint8)
    load_record(record, rules, Limits(10**8, 10**9, reduce_to), out, Meter())
    return out.astype(np.int16)


# Mean difference in grey levels. Bilinear weights can be so round (448 pixels to 512) that one pixel in eight lies right
# between two levels.
LARGEST_MEAN = {"bilinear": 0.15, "bicubic": 0.01}


def check(found: np.ndarray, expected: np.ndarray, rules: Recipe, size: tuple[int, int]) -> None:
    """Bit for bit where the crop cuts nothing off; elsewhere one grey level, or two in one pixel of a thousand."""
    apart = np.abs(found - expected)
    if resized_size(*size, rules) == (rules.width, rules.height):
        assert not apart.any(), size
    assert apart.max() <= 2, size
    assert (apart > 1).mean() <= 0.001, size
    assert apart.mean() <= LARGEST_MEAN[rules.interpolation], size


def turns(choices: Sequence[Any], rules: Recipe) -> Sequence[Any]:
    """All of them for a main geometry, else one, so that the others share them out."""
    if rules in main_geometries().values():
        return choices
    return [choices[list(all_geometries().values()).index(rules) % len(choices)]]


def test_the_plain_implementation_is_another_one() -> None:
    nodes = ast.walk(ast.parse(Path(plain_preparation.__file__).read_text()))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = [getattr(node, "module", None) or node.names[0].name for node in imports]
    assert not [name for name in modules if name.partition(".")[0] == "bulkinfer"]


def test_rules_that_networks_of_pretrainedmodels_and_lite_share() -> None:
    for name in zoo.NETWORKS:
        rules = recipes()[name]
        roundings = (rules.long_side_rounding, rules.crop_offset)
        assert (rules.resize, roundings, rules.orientation) == ("short_side", ("floor", "round"), "exif"), name


def test_every_recipe_of_timm_is_timms_own_transform() -> None:
    """By its numbers, for more than a thousand networks."""
    names = [name for name in recipes() if name.startswith("timm:")]
    assert len(names) > 1000
    for name in names:
        rules, facts = recipes()[name], timm.get_pretrained_cfg(name.removeprefix("timm:"))
        config = resolve_data_config(pretrained_cfg=facts.to_dict())
        resize, crop, _, values = create_transform(**config).transforms
        wanted = resize.size if isinstance(resize.size, int) else tuple(resize.size)
        side = rules.resize_size
        assert wanted == {"short_side": side, "exact": (side, side)}[rules.resize], name
        assert resize.interpolation.value == rules.interpolation, name
        assert tuple(crop.size) == (rules.height, rules.width), name
        assert values.mean.tolist() == pytest.approx(rules.mean), name
        assert values.std.tolist() == pytest.approx(rules.std), name
        assert (rules.channels, rules.value_range) == ("RGB", (0, 1)), name


@each_part
def test_the_plain_implementation_is_that_of_torchvision(subtests: pytest.Subtests, geometries: dict[str, Recipe]) -> None:
    for name, rules in geometries.items():
        with subtests.test(name):
            side = rules.resize_size if rules.resize == "short_side" else [rules.resize_size] * 2
            modes = transforms.InterpolationMode
            transform = transforms.Compose(
                [transforms.Resize(side, modes(rules.interpolation)), transforms.CenterCrop([rules.height, rules.width])]
            )
            for size in ((500, 333), (61, 94)):
                image = photo(*size)
                assert (np.asarray(transform(image)) == prepared(image, rules)).all()


@pytest.mark.parametrize("interpolation", KERNELS)
@pytest.mark.parametrize("size", [(420, 20), (20, 430), (700, 33), (9, 200)], ids=str)
def test_the_crop_of_an_extreme_picture_is_that_of_the_whole_one(size: tuple[int, int], interpolation: str) -> None:
    rules = replace(next(iter(all_geometries().values())), interpolation=interpolation, height=56, width=56, resize_size=64)
    image = photo(*size)
    whole = image.resize(resized_size(*size, rules), getattr(Image.Resampling, interpolation.upper()))
    left, top = round((whole.width - 56) / 2), round((whole.height - 56) / 2)
    expected = np.asarray(whole.crop((left, top, left + 56, top + 56))).astype(np.int16)
    apart = np.abs(prepared(image, rules) - expected)
    assert apart.max() <= 1
    assert apart.mean() < 0.01


# Sizes


def odd_sizes(rules: Recipe) -> list[tuple[int, int]]:
    """(width, height): as small as can be, as large as the crop and as the resized picture, one pixel off, and plain ones."""
    crop, side = rules.height, rules.resize_size
    around = [(crop, crop), (crop + 1, crop - 1), (crop - 1, crop), (side, side), (side + 1, side), (side, side - 1)]
    return [(1, 1), (2, 3), *around, *turns([(1, 9), (9, 1), (640, 480), (333, 500)], rules)]


@each_part
def test_pictures_of_every_size(subtests: pytest.Subtests, geometries: dict[str, Recipe], folder: Path) -> None:
    for name, rules in geometries.items():
        with subtests.test(name):
            for number, size in enumerate(odd_sizes(rules)):
                image = photo(*size, seed=number)
                check(by_the_product(bmp(image), rules, folder), prepared(image, rules), rules, size)


EXTREME_SIZES = [(1, 70_001), (70_003, 1), (66_000, 2), (3, 65_537), (1, 21), (43, 2)]


@each_part
def test_pictures_of_extreme_aspect_ratios(subtests: pytest.Subtests, geometries: dict[str, Recipe], folder: Path) -> None:
    for name, rules in geometries.items():
        with subtests.test(name):
            for number, size in enumerate(turns(EXTREME_SIZES, rules)):
                image = photo(*size, seed=number)
                check(by_the_product(bmp(image), rules, folder), prepared(image, rules), rules, size)


@each_part
def test_noise(subtests: pytest.Subtests, geometries: dict[str, Recipe], folder: Path) -> None:
    for name, rules in geometries.items():
        with subtests.test(name):
            image = noise(300, 217)
            check(by_the_product(bmp(image), rules, folder), prepared(image, rules), rules, image.size)


def bmp(image: Image.Image) -> bytes:
    """Uncompressed: nothing is lost and nothing takes long."""
    return encode(image, "BMP")


# Orientations and kinds of pixels


# numpy's way to what is stored, so that the EXIF orientation turns it upright: 6 says that it must be turned clockwise.
STORED = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.swapaxes(0, 1),
    6: lambda upright: np.rot90(upright, 1),
    7: lambda upright: upright[::-1, ::-1].swapaxes(0, 1),
    8: lambda upright: np.rot90(upright, -1),
}


@cache
def oriented(orientation: int) -> bytes:
    """photo(61, 38) as a PNG that must be turned."""
    stored = np.ascontiguousarray(STORED[orientation](np.asarray(photo(61, 38))))
    return pictures.oriented(Image.fromarray(stored), orientation, "PNG")


@each_part
def test_all_orientations(subtests: pytest.Subtests, geometries: dict[str, Recipe], folder: Path) -> None:
    for name, rules in geometries.items():
        with subtests.test(name):
            expected = prepared(photo(61, 38), rules)
            first = by_the_product(oriented(1), rules, folder)
            check(first, expected, rules, (61, 38))
            for orientation in range(2, 9):
                assert (by_the_product(oriented(orientation), rules, folder) == first).all(), orientation


@pytest.mark.parametrize("format", ["JPEG", "TIFF", "WEBP"])
def test_all_orientations_in_other_formats(subtests: pytest.Subtests, format: str, folder: Path) -> None:
    for name, rules in main_geometries().items():
        with subtests.test(name):
            for orientation in range(1, 9):
                data = pictures.oriented(photo(61, 38), orientation, format)
                image = upright_rgb(data)
                assert image.size == ((61, 38) if orientation < 5 else (38, 61))
                check(by_the_product(data, rules, folder), prepared(image, rules), rules, image.size)


def with_alpha(image: Image.Image, mode: str) -> Image.Image:
    image = image.convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return image.convert(mode)


@cache
def kinds_of_pixels() -> dict[str, bytes]:
    """A file of every mode that a format can hold."""
    image = photo(45, 31)
    grey16 = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257 + 40)
    return {
        "1": encode(image.convert("1")),
        "L": encode(image.convert("L")),
        "L JPEG": encode(image.convert("L"), "JPEG"),
        "LA": encode(with_alpha(image, "LA")),
        "P": encode(image.quantize(60)),
        "P transparent": encode(image.quantize(60), transparency=3),
        "P transparent GIF": encode(image.quantize(60), "GIF", transparency=3),
        "RGB": encode(image),
        "RGBA": encode(with_alpha(image, "RGBA")),
        "CMYK JPEG": pictures.cmyk_jpeg(),
        "CMYK JPEG without its marker": pictures.cmyk_jpeg(adobe_marker=False),
        "CMYK TIFF": encode(image.convert("CMYK"), "TIFF"),
        "YCbCr TIFF": encode(image.convert("YCbCr"), "TIFF"),
        "RGB JPEG": encode(image, "JPEG", keep_rgb=True),
        "I;16 PNG": encode(grey16),
        "I;16 TIFF": encode(grey16, "TIFF"),
        "I PGM": encode(Image.fromarray(np.asarray(grey16).astype(np.int32)), "PPM"),
    }


@each_part
def test_all_kinds_of_pixels(subtests: pytest.Subtests, geometries: dict[str, Recipe], folder: Path) -> None:
    for name, rules in geometries.items():
        with subtests.test(name):
            for kind in turns([*kinds_of_pixels()], rules):
                data = kinds_of_pixels()[kind]
                image = upright_rgb(data)
                check(by_the_product(data, rules, folder), prepared(image, rules), rules, image.size)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_kinds_of_pixels_of_unknown_range_are_error_rows(mode: str, folder: Path) -> None:
    data = encode(Image.new(mode, (40, 30), 7), "TIFF")
    with pytest.raises(RecordError, match="unsupported pixels: 32-bit"):
        by_the_product(data, next(iter(all_geometries().values())), folder)


# Decoders


@pytest.fixture
def decoders(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """`sizes`: what simplejpeg decoded to, one size per picture; with `is_off` it declines, and Pillow decodes."""
    seen: dict[str, Any] = {"sizes": [], "is_off": False}

    def watched(*arguments: Any) -> Image.Image | None:
        image = None if seen["is_off"] else turbo_decode(*arguments)
        seen["sizes"].append(image and image.size)
        return image

    monkeypatch.setattr("bulkinfer.images.decode.turbo_decode", watched)
    return seen


@cache
def jpegs() -> dict[str, bytes]:
    image = photo(533, 400)
    return {
        "plain": encode(image, "JPEG", quality=90),
        "progressive": encode(image, "JPEG", quality=90, progressive=True),
        "444": encode(image, "JPEG", quality=95, subsampling=0),
        "grey": encode(image.convert("L"), "JPEG", quality=90),
        "turned": pictures.oriented(image, 6, quality=90),
    }


@each_part
def test_jpegs_by_both_decoders(
    subtests: pytest.Subtests, geometries: dict[str, Recipe], decoders: dict[str, Any], folder: Path
) -> None:
    for name, rules in geometries.items():
        with subtests.test(name):
            for kind in turns([*jpegs()], rules):
                image = upright_rgb(jpegs()[kind])
                expected, found = prepared(image, rules), []
                for is_off in (False, True):
                    decoders["is_off"], decoders["sizes"] = is_off, []
                    found.append(by_the_product(jpegs()[kind], rules, folder))
                    assert all(size is None if is_off else sorted(size) == [400, 533] for size in decoders["sizes"])
                    assert decoders["sizes"]
                check(found[0], expected, rules, image.size)
                assert (found[0] == found[1]).all()


# What docs/how-to/decoding.md says of photographs with --decode fast: mean and largest difference in grey levels.
FAST_MEAN, FAST_LARGEST = 1, 60
SHORT_SIDES = (480, 960, 1601, 2048)


@each_part
def test_jpegs_of_reduced_size(
    subtests: pytest.Subtests, geometries: dict[str, Recipe], decoders: dict[str, Any], folder: Path
) -> None:
    for name, rules in geometries.items():
        with subtests.test(name):
            needed = rules.short_side_needed
            short_side = next(side for side in SHORT_SIDES if 5 * side >= 8 * needed)
            expected = prepared(upright_large(short_side), rules)
            apart = np.abs(by_the_product(large_jpeg(short_side), rules, folder, reduce_to=needed) - expected)
            assert needed <= min(decoders["sizes"][-1]) < short_side
            assert 0 < apart.mean() <= FAST_MEAN
            assert apart.max() <= FAST_LARGEST


def test_jpegs_too_small_to_be_reduced(subtests: pytest.Subtests, decoders: dict[str, Any], folder: Path) -> None:
    for name, rules in main_geometries().items():
        with subtests.test(name):
            decoders["sizes"] = []
            data = encode(photo(rules.resize_size * 3 // 2, rules.resize_size + 7), "JPEG", quality=90)
            image = upright_rgb(data)
            found = by_the_product(data, rules, folder, reduce_to=rules.short_side_needed)
            assert decoders["sizes"] == [image.size]
            check(found, prepared(image, rules), rules, image.size)


@cache
def large_jpeg(short_side: int) -> bytes:
    """Like a photograph, 4:3."""
    return encode(photo(short_side * 4 // 3, short_side), "JPEG", quality=90)


@cache
def upright_large(short_side: int) -> Image.Image:
    return upright_rgb(large_jpeg(short_side))


# Values


class Flat(torch.nn.Module):
    """Gives what it gets, a row per picture."""

    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:
        return images_NCHW.flatten(1)


def all_levels() -> np.ndarray:
    """1 x 16 x 16 x 3: every grey level once in every channel, in three orders."""
    random = np.random.default_rng(3)
    return np.stack([random.permutation(256) for _ in range(3)], -1).astype(np.uint8).reshape(1, 16, 16, 3)


@each_part
def test_values_inside_and_outside_the_graph(subtests: pytest.Subtests, part: int, tmp_path: Path) -> None:
    """In the graph that get_model makes for uint8, and by the worker for graphs that take float32."""
    first = dict(list(all_value_rules().items())[:1])
    for name, rules in part_of(all_value_rules(), first, part).items():
        with subtests.test(name):
            graph = published(Flat(), tmp_path / name.replace(":", "_"), rules, batch_size=1) / "model_1.onnx"
            expected = normalised(all_levels(), rules)
            inside = run(graph, all_levels())["logits"].reshape(expected.shape)
            bound = 1e-6 * max(1.0, *np.abs(np.divide(rules.mean, rules.std)), np.abs(expected).max())
            for found in (inside, normalise(all_levels(), rules)):
                apart = np.abs(found - expected)
                assert apart.max() <= bound
                assert apart.mean() <= bound / 4
