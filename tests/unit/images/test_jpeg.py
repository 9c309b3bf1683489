"""jpeg.py: Pillow's pixels to the bit at full size, sound pictures only, and what is left to Pillow."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL
import pytest
from bulkinfer.errors import RecordError, UsageError
from bulkinfer.images import decode as decode_module
from bulkinfer.images import jpeg as jpeg_module
from bulkinfer.images import pixel_memory
from bulkinfer.images.jpeg import eighths_for, read_header, reduced_size, require_turbo, turbo_agrees, turbo_decode
from PIL import Image

from tests import pictures
from tests.pictures import cut, encode, jpeg, noise, photo

KINDS = [
    {"subsampling": subsampling, "progressive": progressive, "restart_marker_rows": rows}
    for subsampling in (0, 1, 2)
    for progressive in (False, True)
    for rows in (0, 1)
]


@pytest.fixture
def fresh() -> Iterator[None]:
    """Whatever a test makes of the package, it is found anew before and after."""
    for found in (jpeg_module._turbo, turbo_agrees):
        found.cache_clear()
    yield
    for found in (jpeg_module._turbo, turbo_agrees):
        found.cache_clear()


def turbo(data: bytes, at_least: int = 0) -> Image.Image | None:
    with Image.open(io.BytesIO(data)) as opened:
        return turbo_decode(data, read_header(data), opened.size, at_least)


def by_pillow(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("size", [(1, 1), (7, 65), (64, 48), (65, 49), (333, 200)])
def test_full_size_is_pillow_to_the_bit(options: dict[str, object], size: tuple[int, int]) -> None:
    for image in (photo(*size), noise(*size), photo(*size).convert("L")):
        data = encode(image, "JPEG", quality=60, **options)
        found = turbo(data)
        assert found is not None
        assert (found.mode, found.size) == ("RGB", size)
        assert np.array_equal(np.asarray(found), by_pillow(data))


def test_a_jpeg_of_rgb_is_pillow_to_the_bit() -> None:
    data = encode(photo(), "JPEG", keep_rgb=True)
    found = turbo(data)
    assert found is not None
    assert np.array_equal(np.asarray(found), by_pillow(data))


def test_what_pillow_must_decode_is_left_to_it() -> None:
    lossless = bytearray(jpeg())
    lossless[lossless.index(b"\xff\xc0") + 1] = 0xC3
    for data in (cut(jpeg()), pictures.zero_tail(jpeg()), jpeg()[:-2], bytes(lossless)):
        assert turbo(data) is None
        assert turbo(data, at_least=10) is None


def test_a_file_that_ends_in_its_header_is_left_to_pillow() -> None:
    assert turbo_decode(jpeg()[:30], read_header(jpeg()), (64, 48), 0) is None
    with pytest.raises(IndexError):
        read_header(jpeg()[:30])


@pytest.mark.parametrize(
    ("short_side", "at_least", "eighths"),
    [
        (480, 282, 5),
        (480, 300, 5),
        (480, 301, 8),
        (427, 282, 8),
        (564, 282, 4),
        (563, 282, 5),
        (3000, 282, 1),
        (2255, 282, 2),
        (480, 0, 8),
        (200, 282, 8),
        (63, 7, 8),
        (64, 8, 1),
    ],
)
def test_the_smallest_sufficient_size(short_side: int, at_least: int, eighths: int) -> None:
    assert eighths_for(short_side, at_least) == eighths


@pytest.mark.parametrize("eighths", [1, 2, 4, 5])
@pytest.mark.parametrize("options", KINDS, ids=str)
def test_reduced_pictures(eighths: int, options: dict[str, object]) -> None:
    width, height = 643, 485
    data = jpeg(width, height, **options)
    found = turbo(data, at_least=height * eighths // 8)
    assert found is not None
    assert found.size == reduced_size((width, height), eighths)
    box = (0, 0, width, height)
    expected = np.asarray(Image.fromarray(by_pillow(data)).resize(found.size, Image.Resampling.BOX, box), np.int16)
    assert np.abs(np.asarray(found) - expected).mean() < 4


def test_powers_of_two_are_what_pillow_drafts() -> None:
    for eighths, scale in ((1, 8), (2, 4), (4, 2)):
        data = jpeg(640, 480)
        found = turbo(data, at_least=480 * eighths // 8)
        with Image.open(io.BytesIO(data)) as drafted:
            drafted.draft("RGB", (640 // scale, 480 // scale))
            assert found is not None
            assert np.array_equal(np.asarray(found), np.asarray(drafted))


def test_memory_is_used_again_only_when_no_picture_is_in_it() -> None:
    first, second = jpeg(seed=1), jpeg(seed=2)
    kept = turbo(first)
    assert kept is not None
    expected = by_pillow(first)
    for _ in range(3):
        part = turbo(second)
        assert part is not None
        assert np.array_equal(np.asarray(kept), expected), "overwritten while in use"
    del kept, part
    address = pixel_memory._of_thread.canvas.memory.ctypes.data
    turbo(first)
    assert pixel_memory._of_thread.canvas.memory.ctypes.data == address


def test_memory_of_very_large_pictures_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixel_memory, "_MAX_KEPT_BYTES", 64 * 48 * 4)
    turbo(jpeg())
    before = len(pixel_memory._of_thread.canvas.memory)
    turbo(jpeg(1000, 1000))
    assert len(pixel_memory._of_thread.canvas.memory) == before


def test_exif_may_hold_a_whole_jpeg() -> None:
    data = pictures.with_app1(jpeg(), b"Exif\0\0" + jpeg(16, 16, progressive=True))
    header = read_header(data)
    assert (header.frame, header.size, header.is_plain) == (0xC0, (64, 48), False)
    assert data[header.scan_at : header.scan_at + 2] == b"\xff\xda"
    assert header.scan_at > data.rindex(b"\xff\xc0")


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_a_header_says_what_pillow_says(options: dict[str, object]) -> None:
    for image in (photo(65, 49), photo(65, 49).convert("L")):
        header = read_header(encode(image, "JPEG", comment=b"made here", icc_profile=b"p" * 100_000, **options))
        assert (header.frame, header.size, header.is_plain) == (0xC2 if options["progressive"] else 0xC0, (65, 49), True)


def test_headers_that_hold_more_are_not_plain() -> None:
    exif = Image.Exif()
    exif[274] = 6
    odd = bytearray(jpeg())
    odd[odd.index(b"\xff\xc0") + 10] = ord("R")  # the first component's number
    for data in (
        encode(photo(), "JPEG", exif=exif), encode(photo(), "JPEG", keep_rgb=True), encode(photo(), "JPEG", xmp=b"<x/>"),
        pictures.cmyk_jpeg(), encode(photo(), "MPO", save_all=True, append_images=[photo(seed=1)]), bytes(odd),
        jpeg().replace(b"JFIF", b"JFXX"), jpeg().replace(b"\xff\xc0", b"\xff\xc3"),
    ):  # fmt: skip
        assert not read_header(data).is_plain


def test_no_damage_to_a_header_shows_by_who_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any bytes of the header changed or cut out: the same pixels, or the same sentence, as with Pillow opening every file."""
    random = np.random.default_rng(7)
    read = decode_module._jpeg_header

    def outcome(data: bytes) -> tuple[object, ...]:
        try:
            picture = decode_module.decode(data, orientation="exif", max_pixels=10**6)
        except RecordError as error:
            return (str(error),)
        return (picture.format, picture.frames, picture.width, picture.height, picture.flags, picture.image.tobytes())

    decode_module.prepare_decoder()
    plain = 0
    for number in range(1500):
        data = bytearray(jpeg(40, 30, progressive=bool(number % 2), subsampling=number % 3))
        at = int(random.integers(2, read_header(bytes(data)).scan_at + 4))
        if number % 5 == 0:
            del data[at : at + int(random.integers(1, 6))]
        else:
            for place in range(at, at + int(random.integers(1, 3))):
                data[place] = random.choice([0, 1, 2, 3, 0x10, 0xC0, 0xC2, 0xD8, 0xE1, 0xFF, int(random.integers(256))])
        with monkeypatch.context() as patched:
            patched.setattr(
                decode_module, "_jpeg_header", lambda data: (found := read(data)) and replace(found, is_plain=False)
            )
            expected = outcome(bytes(data))
        assert outcome(bytes(data)) == expected, bytes(data)
        found = read(bytes(data))
        plain += bool(found and found.is_plain)
    assert plain > 300


def test_it_agrees_here(fresh: None) -> None:
    """What CI installs is what is meant; a pair that disagreed would lose speed, not correctness."""
    assert turbo_agrees()


def test_one_pixel_of_difference_and_it_is_not_used(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import simplejpeg

    plain = simplejpeg.decode_jpeg

    def other(*arguments: object, **options: object) -> np.ndarray:
        found: np.ndarray = plain(*arguments, **options)
        found[5, 5, 1] ^= 1
        return found

    monkeypatch.setattr(simplejpeg, "decode_jpeg", other)
    assert not turbo_agrees()
    assert turbo(jpeg()) is None


def test_without_the_package_pillow_decodes_and_fast_is_refused(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert turbo(jpeg()) is None
    assert turbo(jpeg(640, 480), at_least=100) is None
    with pytest.raises(UsageError, match=r"--decode fast needs simplejpeg, which is not installed: pip install"):
        require_turbo()


def test_what_fast_lacks_is_named(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    old = rf"Pillow 11\.3 or newer, {re.escape(PIL.__version__)} is installed: pip install --upgrade \.$"
    monkeypatch.delattr(Image, "fromarrow")
    with pytest.raises(UsageError, match=f"^--decode fast needs {old}"):
        require_turbo()
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=f"^--decode fast needs simplejpeg, which is not installed, and {old}"):
        require_turbo()


def test_with_the_package_fast_is_taken() -> None:
    require_turbo()
    found = turbo(jpeg(640, 480), at_least=100)
    assert found is not None
    assert found.size == (160, 120)


@pytest.mark.parametrize("content", ["raise ImportError('libjpeg')", "raise RuntimeError('boom')", ""])
def test_a_package_that_is_broken_is_none(content: str, fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "simplejpeg.py").write_text(content)
    monkeypatch.delitem(sys.modules, "simplejpeg", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert turbo(jpeg()) is None
    with pytest.raises(UsageError, match=r"--decode fast needs simplejpeg, and the one installed does not load: "):
        require_turbo()
    monkeypatch.delitem(sys.modules, "simplejpeg", raising=False)
