"""decode.py: every kind of picture and of damage gives a picture or one error with its reason. Cases B.. are the bug log's."""

from __future__ import annotations

import importlib.util
import io
import logging
import os
import re
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from bulkinfer.errors import RecordError
from bulkinfer.files.magic_bytes import identify
from bulkinfer.images import pillow_warnings as decoder_notices
from bulkinfer.images.decode import Picture, decode, prepare_decoder, read_picture, warning_counts
from bulkinfer.images.heic import require_heif
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile, ImageOps, features

from tests import pictures
from tests.pictures import RED, cut, encode, jpeg, photo

MAX_PIXELS = 100_000_000
READABLE_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "JPEG2000", "AVIF", "PPM", "QOI")


@pytest.fixture(autouse=True)
def _decoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hooks as a worker has them; pytest puts the warnings machinery back after each test."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    decoder_notices._counts.clear()
    prepare_decoder()
    yield
    decoder_notices._counts.clear()


def decoded(data: bytes, orientation: str = "exif", max_pixels: int = MAX_PIXELS, at_least: int = 0) -> Picture:
    return decode(data, orientation=orientation, max_pixels=max_pixels, at_least=at_least)


def reason(data: bytes, max_pixels: int = MAX_PIXELS, at_least: int = 0) -> str:
    with pytest.raises(RecordError) as caught:
        decoded(data, max_pixels=max_pixels, at_least=at_least)
    assert caught.value.stage == "decode"
    assert caught.value.message.isprintable()
    return caught.value.message


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image).astype(np.int16)


def as_pillow(data: bytes) -> np.ndarray:
    """The independent reference: upright, then convert("RGB"), nothing else."""
    with Image.open(io.BytesIO(data)) as image:
        return pixels(ImageOps.exif_transpose(image).convert("RGB"))


# Truncated, corrupt, not a picture


def test_b01_truncated_jpeg() -> None:
    files = [jpeg(seed=seed) for seed in range(20)]
    files[7] = cut(files[7])
    assert [n for n, data in enumerate(files) if n != 7 and decoded(data).width != 64] == []
    assert reason(files[7]).startswith("truncated JPEG: ")


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}], ids=str)
def test_b01_a_jpeg_cut_anywhere_is_an_error(options: dict[str, object]) -> None:
    data = jpeg(48, 32, **options)
    reasons = [reason(data[:length]) for length in range(3, len(data))]
    assert {text.partition(":")[0] for text in reasons} == {"truncated JPEG"}


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("fraction", [0.3, 0.6, 0.9, 0.99])
def test_b01_a_jpeg_whose_tail_is_zeros_is_an_error(fraction: float, progressive: bool) -> None:
    assert reason(pictures.zero_tail(jpeg(progressive=progressive), fraction)).startswith("truncated JPEG: ")


def test_b01_bytes_behind_the_end_of_a_jpeg_do_no_harm() -> None:
    assert (pixels(decoded(jpeg() + bytes(99)).image) == as_pillow(jpeg())).all()


def test_b01_the_end_marker_of_a_thumbnail_does_not_count() -> None:
    sound = pictures.with_app1(jpeg(), b"Exif\0\0" + jpeg(16, 16))
    assert decoded(sound + b"\0").width == 64
    assert reason(pictures.zero_tail(sound, 0.9)) == "truncated JPEG: no end marker"


def test_b01_truncated_files_stay_refused_by_pillow() -> None:
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


@pytest.mark.parametrize("format", [name for name in READABLE_FORMATS if name not in ("GIF", "AVIF", "QOI")])
@pytest.mark.parametrize("fraction", [0.3, 0.6, 0.95])
def test_b01_other_truncated_formats(format: str, fraction: float) -> None:
    assert reason(cut(encode(photo(), format), fraction)).startswith(f"truncated {format}: ")


@pytest.mark.parametrize("format", ["GIF", "AVIF", "QOI"])
def test_b01_formats_that_do_not_tell_short_from_wrong(format: str) -> None:
    assert format in reason(cut(encode(photo(), format)))


def test_b02_three_bad_files_give_three_reasons() -> None:
    bad = [cut(jpeg()), cut(encode(photo(), "PNG")), pictures.HTML_PAGE]
    found = [reason(data).partition(":")[0] for data in bad]
    assert found == ["truncated JPEG", "truncated PNG", "not a picture"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("empty.jpg", "empty file"),
        ("page.jpg", "not a picture: HTML page"),
        ("._001.jpg", "not a picture: AppleDouble file"),
        ("pointer.png", "not a picture: Git LFS pointer"),
        ("phone.jpg", "corrupt HEIC: its header cannot be read"),
        ("clip.jpg", "not a picture: MPEG-4 or QuickTime video"),
        ("drawing.png", "unsupported format SVG"),
        ("noise.png", "not a picture: starts with c8 c9 ca cb cc cd ce cf"),
    ],
)
def test_b14_b49_each_thing_that_is_no_picture_is_named(name: str, expected: str) -> None:
    assert reason(pictures.NOT_PICTURES[name]) == expected


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (bytes(64), "zero bytes"),
        (b"hello world", "starts with 68 65 6c 6c 6f 20 77 6f ('hello wo')"),
        (b"\xff\xd8", "starts with ff d8"),
        (b"RIFF\0\0\0\0WAVEfmt ", "RIFF file (sound or video)"),
        (b"<?xml version='1.0'?><html>", "HTML page"),
        (b"<?xml version='1.0'?><rss>", "XML document"),
        (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avif" + bytes(9), "AVIF"),
        (b"\0\0\0\x1cftypxxxx\0\0\0\0yyyy" + bytes(9), "MPEG-4 file"),
        (b"%PDF-1.7\n", "PDF document"),
        (b"Plain text, no picture", "starts with 50 6c 61 69 6e 20 74 65 ('Plain te')"),
    ],
)
def test_first_bytes(head: bytes, expected: str) -> None:
    assert identify(head).name == expected


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=64), st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM"]))
def test_any_bytes_give_a_record_error(data: bytes, start: bytes) -> None:
    with pytest.raises(RecordError):
        decoded(start + data)


def test_a_format_that_this_pillow_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "check", lambda _feature: False)
    assert reason(pictures.cut(encode(photo(), "AVIF"), 0.1)) == "unsupported format AVIF: this Pillow was built without it"


# Formats, channels, depths


@pytest.mark.parametrize("format", READABLE_FORMATS)
def test_b04_content_decides_and_the_real_format_is_recorded(format: str) -> None:
    data = encode(photo(), format)
    picture = decoded(data)
    assert (picture.format, picture.width, picture.height, picture.image.mode) == (format, 64, 48, "RGB")
    assert (pixels(picture.image) == as_pillow(data)).all()


def test_b04_heic_is_unsupported_which_is_not_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pillow_heif" else find(name))
    install = "it needs pillow-heif (extra heic), which is not installed: pip install pillow-heif"
    assert reason(pictures.HEIC_STUB) == f"unsupported format HEIC: {install}"


@pytest.mark.parametrize("bits", [12, 16])
def test_c58_jpegs_of_more_than_8_bits_are_unsupported(bits: int) -> None:
    data = jpeg()
    at = data.index(b"\xff\xc0") + 4
    assert reason(data[:at] + bytes([bits]) + data[at + 1 :]) == f"unsupported: {bits}-bit JPEG"


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("compression", [None, "tga_rle"])
def test_c58_tga_is_unsupported(mode: str, compression: str | None) -> None:
    assert reason(encode(photo().convert(mode), "TGA", compression=compression)) == "unsupported format TGA"


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB"])
def test_c58_pcx_is_unsupported(mode: str) -> None:
    assert reason(encode(photo().convert(mode), "PCX")) == "unsupported format PCX"


@pytest.mark.parametrize(
    "data", [b"\n" * 200, b"\0\0\2\0\1\0" + bytes(40), b"\0\1" + bytes(300), b"\x08\x07\x12\x05torch" + bytes(40)]
)
def test_c58_other_bytes_are_neither(data: bytes) -> None:
    assert reason(data).startswith("not a picture: ")


def heic(image: Image.Image, **options: object) -> bytes:
    require_heif()
    return encode(image, "HEIF", **options)


def test_c58_heic_is_decoded() -> None:
    data = heic(photo(300, 200), quality=95)
    assert identify(data).name == "HEIC"
    picture = decoded(data)
    assert (picture.format, picture.frames, picture.width, picture.height, picture.flags) == ("HEIC", 1, 300, 200, ())
    assert np.abs(pixels(picture.image) - pixels(photo(300, 200))).mean() < 10
    several = heic(photo(300, 200), save_all=True, append_images=[photo(64, 64)])
    assert (decoded(several).frames, decoded(several).width) == (2, 300)


def test_c58_heic_is_bounded_by_the_size_of_any_of_its_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    data = heic(photo(300, 200))
    assert reason(data, 300 * 200 - 1).startswith("too large: ")
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("a decoder saw it"))
    at = data.index(b"ispe") + 8
    larger = data[:at] + struct.pack(">LL", 60_000, 60_000) + data[at + 8 :]
    assert reason(larger) == "too large: 60000x60000 = 3600000000 pixels, limit 100000000"


def test_c58_heic_of_many_boxes_is_refused() -> None:
    """Their sizes are looked at, however many boxes stand before them."""
    data = heic(photo(300, 200))
    start = int.from_bytes(data[:4], "big")
    free = b"\0\0\0\x08free"
    assert reason(data[:start] + free * 10_000 + data[start:]) == "corrupt HEIC: more than 10000 boxes"


def test_c58_damaged_heic_is_an_error_and_broken_exif_is_not() -> None:
    data = heic(photo(300, 200))
    for fraction in (0.05, 0.3, 0.9):
        assert re.match("(truncated|corrupt) HEIC: ", reason(cut(data, fraction)))
    for exif in pictures.BROKEN_EXIF.values():
        assert decoded(heic(photo(300, 200), exif=exif)).width == 300


@pytest.mark.parametrize("adobe_marker", [True, False])
def test_b05_cmyk_jpeg(adobe_marker: bool) -> None:
    data = pictures.cmyk_jpeg(adobe_marker=adobe_marker)
    picture = decoded(data)
    assert (pixels(picture.image) == as_pillow(data)).all()
    assert np.abs(pixels(picture.image)[16, [8, 56]] - [(220, 40, 30), (20, 90, 200)]).max() <= 4


def test_b10_16_bit_grey_is_scaled_and_flagged() -> None:
    picture = decoded(pictures.grey16_png())
    assert picture.flags == ("scaled_16bit",)
    assert pixels(picture.image)[0].tolist() == [[k, k, k] for k in range(256)]


def test_b10_16_bit_rgb_is_the_control() -> None:
    picture = decoded(pictures.rgb16_png())
    assert picture.flags == ()
    assert pixels(picture.image)[1].tolist() == [[k, k, k] for k in range(256)]


@pytest.mark.parametrize("mode", ["I;16", "I;16B"])
def test_b10_16_bit_tiff_in_both_byte_orders(mode: str) -> None:
    ramp = (np.arange(256, dtype=np.uint16) * 257).astype(">u2" if mode == "I;16B" else "<u2")
    picture = decoded(encode(Image.frombytes(mode, (256, 1), ramp.tobytes()), "TIFF"))
    assert (pixels(picture.image)[0, :, 1] == np.arange(256)).all()


def test_b10_16_bit_pgm() -> None:
    picture = decoded(encode(Image.new("I", (2, 2), 40_000), "PPM"))
    assert picture.flags == ("scaled_16bit",)
    assert (pixels(picture.image) == 40_000 >> 8).all()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("I", "32-bit integers, range unknown"), ("F", "32-bit floats, range unknown"), ("LAB", "Lab colours")],
)
def test_b10_pixels_without_a_known_range_fail_openly(mode: str, expected: str) -> None:
    assert reason(encode(Image.new(mode, (4, 4)), "TIFF")) == f"unsupported pixels: {expected}"


def test_b11_grey_jpeg_becomes_three_equal_channels() -> None:
    data = encode(photo().convert("L"), "JPEG")
    image = pixels(decoded(data).image)
    assert (image == image[..., :1]).all()
    assert (image == as_pillow(data)).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK", "YCbCr"])
def test_every_mode_is_converted_as_pillow_does(mode: str) -> None:
    """16-bit apart (see B10): there Pillow clips."""
    source = photo(31, 17)
    if mode in ("LA", "RGBA"):
        source.putalpha(Image.linear_gradient("L").resize(source.size))
    source = (
        Image.fromarray(np.asarray(source.convert("L")).astype(np.uint16) * 257) if mode == "I;16" else source.convert(mode)
    )
    data = encode(source, "TIFF" if mode in ("CMYK", "YCbCr") else "PNG")
    picture = decoded(data)
    assert picture.image.mode == "RGB"
    expected = as_pillow(encode(photo(31, 17).convert("L"))) if mode == "I;16" else as_pillow(data)
    assert (pixels(picture.image) == expected).all()


@pytest.mark.parametrize("transparency", [3, bytes(range(0, 250, 5))], ids=["one", "table"])
def test_palette_with_transparency_drops_it(transparency: int | bytes) -> None:
    palette = photo().quantize(50)
    data = encode(palette, "PNG", transparency=transparency)
    assert (pixels(decoded(data).image) == pixels(palette.convert("RGB"))).all()


def test_palette_with_alpha_mode_pa() -> None:
    data = encode(photo().convert("RGBA").quantize(40), "GIF", transparency=2)
    assert (pixels(decoded(data).image) == as_pillow(data)).all()


# Animations


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "MPO", "TIFF", "AVIF"])
def test_b13_first_frame_only_and_the_count(format: str) -> None:
    picture = decoded(pictures.animated(format))
    assert (picture.format, picture.frames, picture.flags) == (format, 3, ())
    assert np.abs(pixels(picture.image) - RED).max() <= 1


def test_b13_apng_hidden_default_image_is_what_png_readers_show() -> None:
    picture = decoded(pictures.apng_with_hidden_default())
    assert (picture.image.getpixel((0, 0)), picture.frames) == (RED, 3)


def test_b13_broken_pages_behind_a_sound_first_one() -> None:
    picture = decoded(cut(pictures.animated("TIFF")))
    assert (picture.frames, picture.flags) == (1, ("broken_frames",))
    assert picture.image.getpixel((0, 0)) == RED
    assert any("frames of TIFF" in kind for kind in warning_counts())


# Orientation and EXIF


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(orientation: int, format: str) -> None:
    source = photo(40, 24)
    data = pictures.oriented(source, orientation, format, **({"lossless": True} if format == "WEBP" else {}))
    upright, stored = decoded(data), decoded(data, "stored")
    assert (pixels(upright.image) == as_pillow(data)).all()
    assert (upright.width, upright.height) == ((24, 40) if orientation >= 5 else (40, 24)) == upright.image.size
    assert (stored.width, stored.height) == (40, 24)
    assert np.abs(pixels(stored.image) - pixels(source)).mean() < (10 if format == "JPEG" else 0.001)


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_exif_orientation_of_compressed_and_grey_tiff(orientation: int) -> None:
    source = photo(40, 24).convert("L")
    data = pictures.oriented(source, orientation, "TIFF", compression="tiff_lzw")
    assert (pixels(decoded(data).image) == as_pillow(data)).all()
    assert (pixels(decoded(data, "stored").image) == pixels(source.convert("RGB"))).all()


@pytest.mark.parametrize("value", [0, 9, 4711])
def test_orientations_that_do_not_exist_are_normal(value: int) -> None:
    assert (pixels(decoded(pictures.oriented(photo(), value, "PNG")).image) == pixels(photo())).all()


@pytest.mark.parametrize("kind", pictures.BROKEN_EXIF)
def test_b07_broken_exif_is_an_ok_row_of_normal_orientation(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    data = pictures.with_app1(jpeg(), pictures.BROKEN_EXIF[kind])
    assert (pixels(decoded(data).image) == as_pillow(jpeg())).all()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("error", [SyntaxError("not a TIFF file"), struct.error("unpack"), ValueError(), KeyError(274)])
def test_b07_whatever_reading_exif_raises_the_row_is_ok(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def getexif(_image: Image.Image) -> None:
        raise error

    monkeypatch.setattr(Image.Image, "getexif", getexif)
    assert decoded(pictures.with_app1(jpeg(), b"Exif\0\0damaged")).width == 64
    assert any(type(error).__name__ in kind for kind in warning_counts())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SyntaxError("bad header"), "corrupt JPEG: bad header"),
        (struct.error("unpack requires 4 bytes"), "corrupt JPEG: unpack requires 4 bytes"),
        (Image.DecompressionBombError("bomb"), "corrupt JPEG: bomb"),
        (
            OSError("image file is truncated (3 bytes\nnot processed)"),
            "truncated JPEG: image file is truncated (3 bytes not processed)",
        ),
        (EOFError(), "truncated JPEG: EOFError"),
        (MemoryError(), "out of memory"),
        (RecursionError(), "corrupt JPEG: RecursionError"),
    ],
)
def test_b07_whatever_the_decoder_raises_is_one_row(error: Exception, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_image: ImageFile.ImageFile) -> None:
        raise error

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    assert reason(pictures.cmyk_jpeg()) == expected  # a kind of JPEG that Pillow itself decodes


def test_b07_an_interrupt_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_image: ImageFile.ImageFile) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    with pytest.raises(KeyboardInterrupt):
        decoded(pictures.cmyk_jpeg())


# Warnings: counted, never printed


WARNS = pictures.with_app1(jpeg(), pictures.BROKEN_EXIF["entries_missing"])


def test_b07_warnings_of_many_threads_are_counted_and_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    threads = [threading.Thread(target=lambda: [decoded(WARNS) for _ in range(25)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert capfd.readouterr() == ("", "")
    counts = warning_counts()
    assert any(kind.startswith("UserWarning: Corrupt EXIF data") for kind in counts)
    assert all(count >= 100 and count % 100 == 0 for count in counts.values())  # none lost, whichever thread it came from


def test_warnings_of_others_go_where_they_went_before() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        prepare_decoder()
        warnings.warn("mine", UserWarning, stacklevel=1)
        decoded(WARNS)
    assert [str(warning.message) for warning in seen] == ["mine"]
    assert "mine" not in str(warning_counts())


def test_preparing_again_changes_nothing() -> None:
    hook, filters, handlers = warnings.showwarning, list(warnings.filters), list(logging.getLogger("PIL").handlers)
    prepare_decoder()
    assert (warnings.showwarning, warnings.filters, logging.getLogger("PIL").handlers) == (hook, filters, handlers)


def test_log_messages_of_pillow_are_counted_and_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("PIL.TiffImagePlugin").error("More samples per pixel than can be decoded: %s", 9)
    logging.getLogger("PIL.PngImagePlugin").debug("STREAM")
    assert warning_counts() == {"More samples per pixel than can be decoded: N": 1}
    assert capfd.readouterr() == ("", "")


def test_libtiff_does_not_write_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    data = bytearray(encode(photo(), "TIFF", compression="tiff_deflate"))
    data[12:40] = bytes(28)
    assert reason(bytes(data)) == "corrupt TIFF: decoder error -2"
    assert capfd.readouterr() == ("", "")


def test_kinds_of_warnings_are_bounded() -> None:
    for n in range(200):
        decoder_notices.count_notice(f"about {chr(0x4E00 + n)}")
    assert len(warning_counts()) == 51
    assert next(iter(warning_counts().items())) == ("other decoder warnings", 150)


def test_decoding_unprepared_is_our_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(AssertionError, match="prepare_decoder"):
        decoded(jpeg())


# Size


def test_b08_too_large_is_refused_by_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda _image: pytest.fail("pixels were decoded"))
    assert reason(pictures.bit_png(14_000, 14_000)) == "too large: 14000x14000 = 196000000 pixels, limit 100000000"
    assert reason(pictures.bit_png(10_000, 10_000), 99_999_999) == "too large: 10000x10000 = 100000000 pixels, limit 99999999"


def test_b08_the_limit_is_inclusive() -> None:
    assert decoded(jpeg(), max_pixels=64 * 48).width == 64
    assert reason(jpeg(), 64 * 48 - 1) == "too large: 64x48 = 3072 pixels, limit 3071"


def test_b08_memory_of_the_largest_legal_picture_is_bounded() -> None:
    """100 million pixels: one byte each as Pillow decodes them, four as RGB. In a process of its own: peaks only ever rise."""
    child = subprocess.run(
        [sys.executable, "-c", DECODE_STDIN], input=pictures.bit_png(10_000, 10_000), capture_output=True, check=False
    )
    assert child.stderr == b""
    assert 400e6 < int(child.stdout) < 600e6


DECODE_STDIN = """
import sys
from bulkinfer.images.decode import decode, prepare_decoder
def peak():  # not getrusage: its peak is that of the parent, where that was larger
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
prepare_decoder()
data = sys.stdin.buffer.read()
before = peak()
decode(data, orientation="exif", max_pixels=100_000_000)
print(peak() - before)
"""


def test_b08_the_limit_counts_the_whole_picture_where_it_would_be_reduced() -> None:
    data = jpeg(640, 480)
    assert decoded(data, at_least=60, max_pixels=640 * 480).width == 640
    assert reason(data, 640 * 480 - 1, at_least=60) == "too large: 640x480 = 307200 pixels, limit 307199"


# Reduced sizes


@pytest.mark.parametrize("orientation", range(1, 9))
def test_b64_a_reduced_picture_keeps_the_facts_of_the_whole_one(orientation: int) -> None:
    data = pictures.oriented(photo(304, 200), orientation)
    for mode in ("exif", "stored"):
        whole, reduced = decoded(data, mode), decoded(data, mode, at_least=90)
        assert (reduced.width, reduced.height, reduced.format) == (whole.width, whole.height, whole.format)
        assert sorted(reduced.image.size) == [100, 152]
        shrunk = whole.image.resize(reduced.image.size, Image.Resampling.BOX)
        assert np.abs(pixels(shrunk) - pixels(reduced.image)).mean() < 4


@pytest.mark.parametrize("orientation", range(1, 9))
def test_b64_a_turned_picture_whose_reduced_size_has_a_rest_is_decoded_whole(orientation: int) -> None:
    """301 pixels are 150 and a half in halves: turned by 180 degrees, the half would come first, and move the picture by it."""
    data = pictures.oriented(photo(301, 200), orientation)
    assert sorted(decoded(data, "exif", at_least=90).image.size) == ([100, 151] if orientation == 1 else [200, 301])
    assert sorted(decoded(data, "stored", at_least=90).image.size) == [100, 151]


@pytest.mark.parametrize("format", [name for name in READABLE_FORMATS if name != "JPEG"])
def test_b64_other_formats_are_decoded_exactly(format: str) -> None:
    data = encode(photo(300, 200), format)
    assert (pixels(decoded(data, at_least=65).image) == as_pillow(data)).all()


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}], ids=str)
def test_b64_a_jpeg_cut_anywhere_is_the_same_error_in_both_modes(options: dict[str, object]) -> None:
    data = jpeg(160, 120, quality=50, **options)
    assert decoded(data, at_least=30).image.size != (160, 120)
    for length in range(3, len(data), 5):
        for broken in (data[:length], data[:length].ljust(len(data), b"\0")):
            assert reason(broken, at_least=30) == reason(broken)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([{}, {"progressive": True}, {"subsampling": 0}]))
def test_b64_damage_is_seen_alike_in_both_modes(seed: int, options: dict[str, object]) -> None:
    random = np.random.default_rng(seed)
    data = bytearray(jpeg(160, 120, quality=50, **options))
    for _ in range(random.integers(1, 4)):
        data[random.integers(2, len(data))] = random.integers(256)
    told = []
    for at_least in (0, 30):
        try:
            picture = decoded(bytes(data), at_least=at_least)
            told.append(str((picture.format, picture.frames, picture.width, picture.height, picture.flags)))
        except RecordError as error:
            told.append(error.message)
    assert told[0] == told[1]


# Reading


def test_read_picture(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"12345")
    assert read_picture(os.fsencode(tmp_path / "a.jpg"), 5) == b"12345"


def test_b17_names_that_are_not_utf8(tmp_path: Path) -> None:
    for name in (b"caf\xe9.png", "e\u0301.png".encode(), "\u00e9.png".encode(), b"n" * 251 + b".png", b'a\nb,".png'):
        path = os.fsencode(tmp_path) + b"/" + name
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY), "wb") as file:
            file.write(name)
        assert read_picture(path, 1000) == name


def read_failure(path: Path | bytes, max_file_bytes: int = 1000) -> tuple[str, str]:
    with pytest.raises(RecordError) as caught:
        read_picture(os.fsencode(path), max_file_bytes)
    return caught.value.stage, caught.value.message


def test_a_file_that_memory_does_not_hold_costs_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> bytes:
        raise MemoryError

    (tmp_path / "a.jpg").write_bytes(b"12345")
    monkeypatch.setattr("bulkinfer.images.decode._read", full)
    assert read_failure(tmp_path / "a.jpg") == ("read", "out of memory")


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(1001))
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    missing = ("read", "file not found (or a link to a file that is not there)")
    assert read_failure(tmp_path / "missing") == missing
    assert read_failure(tmp_path / "link") == missing
    assert read_failure(tmp_path) == ("read", "is a directory")
    assert read_failure(tmp_path / "pipe") == ("read", "not a regular file")
    assert read_failure(tmp_path / "big") == ("read", "too large: 1001 bytes, limit 1000")
    assert read_failure(tmp_path / "loop") == ("read", "too many levels of symbolic links")
    assert read_failure(os.fsencode(tmp_path) + b"/" + b"n" * 300) == ("read", "file name too long")


def test_b49_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert read_failure(tmp_path / "empty") == ("decode", "empty file")


def test_a_path_that_no_file_can_have() -> None:
    assert read_failure(b"/photos/a\0b.png") == ("read", "a path with a zero byte in it names no file")


def test_permission_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, whom modes do not stop."""

    def refuse(*_arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert read_failure(b"x") == ("read", "permission denied")


def test_a_file_that_grows_while_it_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "growing"
    monkeypatch.setattr("bulkinfer.images.decode._PART_BYTES", 100)
    status = os.stat_result((0o100644, 0, 0, 1, 0, 0, 500, 0, 0, 0))
    for size in (1500, 1001):
        path.write_bytes(bytes(size))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", lambda _descriptor: status)
            assert read_failure(path) == ("read", "too large: it grew beyond the limit, 1000 bytes, while it was read")
    for size in (1000, 501, 500, 200):  # up to its new end; or it shrank
        path.write_bytes(bytes(range(250)) * 4)
        os.truncate(path, size)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", lambda _descriptor: status)
            data = read_picture(os.fsencode(path), 1000)
        assert data == (bytes(range(250)) * 4)[:size]
