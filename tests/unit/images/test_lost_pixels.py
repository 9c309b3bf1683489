"""lost_pixels.py: what a decoder makes up is an error row; bytes that cost no pixels change nothing. C27."""

from __future__ import annotations

import importlib.util
import io
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import RecordError
from bulkinfer.images import decode as decode_module
from bulkinfer.images import lost_pixels
from bulkinfer.images.decode import Picture, decode, prepare_decoder
from bulkinfer.images.jpeg import read_header
from bulkinfer.images.pillow_warnings import warning_counts
from PIL import Image

from tests.pictures import EOI, cmyk_jpeg, cut, encode, jpeg, oriented, photo

KINDS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_rows": 1},
    "444": {"subsampling": 0},
}
EARLY = "corrupt JPEG: premature end of data segment"
both_modes = pytest.mark.parametrize("at_least", [0, 60], ids=["exact", "fast"])


@pytest.fixture(autouse=True)
def _decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    prepare_decoder()


@pytest.fixture(params=["simplejpeg", "without"])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With simplejpeg, and as on a machine where it is missing."""
    if request.param == "without":
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "simplejpeg" else find(name))
        monkeypatch.setattr(decode_module, "turbo_decode", lambda *_: None)
    return str(request.param)


def decoded(data: bytes, at_least: int = 0) -> Picture:
    return decode(data, orientation="exif", max_pixels=10**8, at_least=at_least)


def reason(data: bytes, at_least: int = 0) -> str:
    with pytest.raises(RecordError) as caught:
        decoded(data, at_least)
    assert caught.value.stage == "decode"
    return caught.value.message


def pixels(data: bytes) -> np.ndarray[Any, Any]:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


@both_modes
@pytest.mark.parametrize("kind", KINDS)
def test_c27_pixel_data_that_ends_early(kind: str, at_least: int, asked: str) -> None:
    whole = jpeg(256, 256, **KINDS[kind])
    assert (pixels(whole) != pixels(cut(whole) + EOI)).any(axis=(1, 2)).sum() > 90  # Pillow takes it, and makes up rows
    assert reason(cut(whole) + EOI, at_least) == EARLY
    assert reason(oriented(photo(256, 256), 6)[:-300] + EOI, at_least) == EARLY
    assert decoded(whole, at_least).width == 256


@pytest.mark.parametrize("fraction", [0.5, 0.8, 0.98])
def test_c27_cmyk_and_grey_that_end_early(fraction: float, asked: str) -> None:
    grey = encode(photo(200, 150).convert("L"), "JPEG")
    for whole in (encode(photo(200, 150).convert("CMYK"), "JPEG"), grey):
        assert reason(cut(whole, fraction) + EOI) == EARLY
    assert decoded(cmyk_jpeg()).flags == decoded(grey).flags == ()


@both_modes
@pytest.mark.parametrize("kind", KINDS)
def test_c27_bytes_that_cost_no_pixels_stay_ok(kind: str, at_least: int, asked: str) -> None:
    whole = jpeg(256, 256, **KINDS[kind])
    for more in (b"\0\0", bytes(200), b"\xff" * 9, bytes(range(250)), b"\xff\0" * 40):
        for data in (whole[:-2] + more + EOI, whole + more, whole + more + EOI):
            picture = decoded(data, at_least)
            assert (picture.width, picture.flags) == (256, ())
            if not at_least:
                assert (np.asarray(picture.image) == pixels(whole)).all()


def stretches(data: bytes) -> list[int]:
    """Where each stretch of pixel data with restart markers ends."""
    start = data.index(b"\xff\xda")
    return [start + found.start() for found in re.finditer(rb"\xff[\xd0-\xd7\xd9]", data[start:])]


def test_c27_harmless_bytes_do_not_hide_a_later_loss(asked: str) -> None:
    """libjpeg tells of the first fault only."""
    whole = jpeg(256, 256, restart_marker_rows=1)
    first, second, third = stretches(whole)[:3]
    padded = whole[:first] + bytes(5) + whole[first:]
    assert (np.asarray(decoded(padded).image) == pixels(whole)).all()
    lost = whole[:first] + bytes(5) + whole[first : second + (third - second) // 2] + whole[third:]
    assert reason(lost) == EARLY


def test_c27_arithmetic_coding_may_leave_zeros_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that a sound file leaves out are no loss, so other bytes in their place prove nothing."""
    monkeypatch.setattr(lost_pixels, "_first_warning", lambda *_: None)
    short = cut(jpeg(256, 256)) + EOI
    header = read_header(short)
    with Image.open(io.BytesIO(short)) as image:
        lost_pixels.check_jpeg(short, replace(header, frame=0xC9), image)
        with pytest.raises(RecordError, match="premature end"):
            lost_pixels.check_jpeg(short, header, image)


@both_modes
def test_c27_data_that_no_code_stands_for(at_least: int) -> None:
    whole = jpeg(256, 256)
    assert reason(whole[:-60] + b"\xff\0" * 29 + EOI, at_least) == "corrupt JPEG: bad Huffman code"


def test_c27_a_missing_stretch_between_restarts() -> None:
    whole = jpeg(256, 256, restart_marker_rows=1)
    ends = stretches(whole)
    assert "instead of RST" in reason(whole[: ends[2]] + whole[ends[4] :])


def tiff_halves(image: Image.Image, compression: str) -> tuple[bytes, bytes]:
    """A TIFF, and the same with half of the bytes of its middle strip replaced."""
    data = encode(image, "TIFF", compression=compression)
    fill = b"\0\5" if compression == "tiff_ccitt" else b"\5"  # zeros end a fax, of which libtiff says nothing to Pillow
    with Image.open(io.BytesIO(data)) as opened:
        tags: Any = opened.tag_v2  # type: ignore[attr-defined]
        middle = len(tags[273]) // 2
        at, size = tags[273][middle], tags[279][middle]
    return data, data[: at + size // 2] + (fill * size)[: size - size // 2] + data[at + size :]


@pytest.mark.parametrize("compression", ["jpeg", "group3", "group4", "tiff_ccitt", "tiff_lzw", "packbits"])
def test_c27_strips_of_a_tiff_that_end_early(compression: str) -> None:
    is_fax = compression in ("group3", "group4", "tiff_ccitt")
    whole, halved = tiff_halves(photo(256, 256).convert("1" if is_fax else "RGB"), compression)
    assert decoded(whole).flags == ()
    told = reason(halved)
    assert told.startswith("corrupt TIFF: ")
    assert not is_fax or told == "corrupt TIFF: lines of a fax that cannot be read"
    assert decoded(whole).flags == ()  # nothing is left of it for the thread's next picture


def test_c27_a_tiff_of_jpegs_whose_strips_have_no_pixels() -> None:
    whole, _ = tiff_halves(photo(256, 256), "jpeg")
    with Image.open(io.BytesIO(whole)) as opened:
        size = opened.tag_v2[279][1]  # type: ignore[attr-defined]
    halved = whole.replace(struct.pack("<L", size), struct.pack("<L", size // 2))
    assert "remature end" in reason(halved)


def with_strips(data: bytes, places: list[int], sizes: list[int]) -> bytes:
    """A little-endian TIFF with another list of strips, at its end."""
    count, at = len(places), len(data)
    entries, lists = int.from_bytes(data[4:8], "little") + 2, struct.pack(f"<{2 * count}L", *places, *sizes)
    changed = bytearray(data + lists)
    for entry in range(entries, entries + 12 * struct.unpack_from("<H", data, entries - 2)[0], 12):
        tag = struct.unpack_from("<H", data, entry)[0]
        if tag in (273, 279):
            struct.pack_into("<HHLL", changed, entry, tag, 4, count, at + 4 * count * (tag == 279))
    return bytes(changed)


def strips(data: bytes) -> tuple[list[int], list[int]]:
    with Image.open(io.BytesIO(data)) as opened:
        tags: Any = opened.tag_v2  # type: ignore[attr-defined]
        return list(tags[273]), list(tags[279])


def test_c27_only_the_strips_of_the_picture_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, and no byte twice, however long the list of strips is."""
    whole = encode(photo(256, 256), "TIFF", compression="jpeg")
    places, sizes = strips(whole)
    looked: list[int] = []
    monkeypatch.setattr(lost_pixels, "_first_warning", lambda data, _: looked.append(len(data)) or "")
    assert decoded(whole).width == 256
    expected = list(looked)
    assert len(expected) == len(places) == 3
    looked.clear()
    assert decoded(with_strips(whole, places + places[:1] * 10_000, sizes + sizes[:1] * 10_000)).width == 256
    assert looked == expected
    looked.clear()
    assert decoded(with_strips(whole, places, [len(whole) - place for place in places])).width == 256
    assert len(looked) == len(expected)
    assert sum(looked) < 2 * len(whole) + 700 * len(looked)  # the tables are beside each
    looked.clear()
    assert decoded(with_strips(whole, places[:1] * len(places), sizes[:1] * len(places))).width == 256
    assert looked == expected[:1]


def test_c27_the_size_in_a_strip_has_the_limit_on_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = encode(photo(256, 256), "TIFF", compression="jpeg")
    with Image.open(io.BytesIO(whole)) as opened:
        opened.load()
        monkeypatch.setattr(lost_pixels, "read_header", lambda data: replace(read_header(data), size=(20_000, 20_000)))
        with pytest.raises(RecordError, match="too large: 20000x20000"):
            lost_pixels.check_tiff_jpegs(whole, opened, 10**8)
        monkeypatch.setattr(lost_pixels, "_MOST_TABLE_BYTES", 99)
        with pytest.raises(RecordError, match="bytes of JPEG tables, limit 99"):
            lost_pixels.check_tiff_jpegs(whole, opened, 10**8)


@pytest.mark.parametrize(
    "short", [lambda: encode(photo(), "GIF"), lambda: encode(photo(), "PNG"), lambda: encode(photo(), "WEBP", lossless=True)]
)
def test_c27_other_decoders_refuse_themselves(short: Callable[[], bytes]) -> None:
    """Their ends without their pixels: each is an error of the decoder, not a warning."""
    data = short()
    tail = {b"GIF": b"\0;", b"\x89PN": data[-12:]}.get(data[:3], b"")
    body = cut(data, 0.6) + tail
    if data[:4] == b"RIFF":
        body += bytes(len(body) % 2)
        body = b"RIFF" + struct.pack("<L", len(body) - 8) + body[8:16] + struct.pack("<L", len(body) - 20) + body[20:]
    assert re.match("(corrupt|truncated) ", reason(body))


def test_c27_a_sound_picture_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_pixels, "_first_warning", lambda *_: pytest.fail("a second look"))
    for data in (jpeg(), jpeg(progressive=True), oriented(photo(), 6), encode(photo().convert("L"), "JPEG"), encode(photo())):
        assert decoded(data).width in (64, 48)


def test_c27_a_missing_simplejpeg_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert lost_pixels._first_warning(jpeg(), 3) is None
    assert any("simplejpeg is not installed" in kind for kind in warning_counts())
