"""side_blocks.py: damaged or enormous blocks beside the pixels of a PNG or JPEG cost no pixels. C36."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from bulkinfer.errors import RecordError
from bulkinfer.images.decode import Picture, decode, prepare_decoder
from bulkinfer.images.pillow_warnings import warning_counts
from bulkinfer.images.side_blocks import without_side_blocks
from PIL import Image

from tests.bombs import chunk, deflated
from tests.pictures import BROKEN_EXIF, encode, jpeg, oriented, other_profile, photo

LARGE = deflated(3 << 20)
BROKEN = {
    "large_ztxt": chunk(b"zTXt", b"a\0\0" + LARGE),
    "large_itxt": chunk(b"iTXt", b"a\0\1\0\0\0" + LARGE),
    "large_icc": chunk(b"iCCP", b"a\0\0" + LARGE),
    "checksum_of_text": chunk(b"tEXt", b"a\0b")[:-4] + b"abcd",
    "checksum_of_profile": chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(99)))[:-4] + b"abcd",
    "method_of_text": chunk(b"zTXt", b"a\0\7" + zlib.compress(b"b")),
    "method_of_profile": chunk(b"iCCP", b"a\0\7" + zlib.compress(b"b")),
    "short_gamma": chunk(b"gAMA", b"\0"),
    "short_size": chunk(b"pHYs", b"\0\0"),
    "short_chromaticities": chunk(b"cHRM", b"\0\0"),
    "checksum_of_exif": chunk(b"eXIf", b"II*\0")[:-4] + b"abcd",
    "exif": chunk(b"eXIf", bytes(range(200))),
    "private": chunk(b"prVt", b"x")[:-4] + b"abcd",
    "many_private": chunk(b"prVt", b"") * 20_000,
}
SEGMENTS = {
    "short_jfif": (0xE0, b"JFIF\0\1"),
    "short_profile": (0xE2, b"ICC_PROFILE\0"),
    "pictures": (0xE2, b"MPF\0" + bytes(range(60))),
    "photoshop": (0xED, b"Photoshop 3.0\0" + b"8BIM\4\4\0"),
    "exif": (0xE1, b"Exif\0\0" + bytes(range(90))),
    "short_adobe": (0xEE, b"Adobe\0"),
    "comment": (0xFE, bytes(range(256))),
}


@pytest.fixture(autouse=True)
def _decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    prepare_decoder()


def decoded(data: bytes, colour: str = "stored") -> Picture:
    return decode(data, orientation="exif", max_pixels=10**8, colour=colour)


def with_chunk(data: bytes, block: bytes, place: str) -> bytes:
    at = 33 if place == "before" else len(data) - 12
    return data[:at] + block + data[at:]


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("kind", BROKEN)
def test_c36_a_broken_block_of_a_png_costs_no_pixels(kind: str, place: str) -> None:
    for image in (photo(31, 17), photo(31, 17).quantize(40), photo(31, 17).convert("L")):
        data = encode(image)
        picture = decoded(with_chunk(data, BROKEN[kind], place))
        assert (np.asarray(picture.image) == np.asarray(image.convert("RGB"))).all()
        assert picture.flags == ()


@pytest.mark.parametrize("kind", SEGMENTS)
def test_c36_a_broken_segment_of_a_jpeg_costs_no_pixels(kind: str) -> None:
    data, (marker, payload) = jpeg(), SEGMENTS[kind]
    segment = b"\xff" + bytes([marker]) + struct.pack(">H", len(payload) + 2) + payload
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(image)
    for broken in (data[:2] + segment + data[2:], data[:2] + segment + data[20:], data[:20] + segment * 1_100 + data[20:]):
        assert (np.asarray(decoded(broken).image) == expected).all()


def test_c36_what_is_in_order_stays() -> None:
    """Orientation, colour profile and frames beside a block that is not."""
    turned = with_chunk(oriented(photo(40, 24), 6, "PNG"), BROKEN["large_ztxt"], "before")
    assert decoded(turned).image.size == (24, 40)
    coloured = with_chunk(encode(photo(), icc_profile=other_profile()), BROKEN["large_ztxt"], "behind")
    assert decoded(coloured).flags == ("icc_profile",)
    moving = encode(photo(), save_all=True, append_images=[photo(seed=1)])
    assert decoded(with_chunk(moving, BROKEN["checksum_of_text"], "before")).frames == 2
    data = oriented(photo(40, 24), 6)
    short = b"\xff\xe0\0\7JFIF\0"
    assert decoded(data[:2] + short + data[2:]).image.size == (24, 40)


def test_c36_it_is_counted_and_a_sound_file_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded(with_chunk(encode(photo()), BROKEN["large_ztxt"], "before"))
    assert any("beside its pixels cannot be read" in kind for kind in warning_counts())
    monkeypatch.setattr("bulkinfer.images.decode.without_side_blocks", lambda *_: pytest.fail("taken apart"))
    assert decoded(encode(photo(), pnginfo=None)).width == decoded(jpeg()).width == 64


def test_c36_broken_pixels_are_still_an_error() -> None:
    data = with_chunk(encode(photo()), BROKEN["large_ztxt"], "before")
    with pytest.raises(RecordError, match=r"^truncated PNG: "):
        decoded(data[:-400])
    at = data.index(b"IDAT") + 40
    with pytest.raises(RecordError, match=r"^corrupt PNG: "):
        decoded(data[:at] + bytes(40) + data[at + 40 :])


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_c36_a_cut_file_has_no_blocks_that_reach_beyond_it(format: str) -> None:
    data = encode(photo(), format)
    for length in range(len(data)):
        kept = without_side_blocks(data[:length], format)
        assert kept is None or data.startswith(kept[:2])
    assert without_side_blocks(data, "GIF") is None


@pytest.mark.parametrize("format", ["WEBP", "TIFF", "AVIF", "JPEG2000", "GIF"])
def test_c36_other_formats_pass_over_their_side_blocks(format: str) -> None:
    """EXIF and profiles that cannot be read, in the formats that can hold them."""
    kept: list[dict[str, object]] = [{"icc_profile": b"no profile"}, {"comment": "x" * 60_000}]
    if format == "WEBP":
        kept += [{"exif": exif} for exif in BROKEN_EXIF.values()]
    if format == "TIFF":
        kept += [{"tiffinfo": {34665: 1 << 31}}, {"tiffinfo": {34665: 8, 700: b"<x"}}, {"tiffinfo": {33723: b"\1" * 99}}]
    for options in kept:
        picture = decoded(encode(photo(), format, **options))
        assert (picture.width, picture.flags) == (64, ())


def notices() -> int:
    return sum(count for kind, count in warning_counts().items() if "beside its pixels cannot be read" in kind)


def test_c36_a_block_is_told_of_only_where_its_picture_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    before = notices()
    with pytest.raises(RecordError, match=r"^truncated PNG: "):
        decoded(with_chunk(encode(photo()), BROKEN["large_ztxt"], "before")[:-400])
    assert notices() == before
    decoded(with_chunk(encode(photo()), BROKEN["large_ztxt"], "before"))
    assert notices() == before + 1


def test_c36_a_fault_of_the_pixels_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bulkinfer.images.decode.without_side_blocks", lambda *_: pytest.fail("taken apart"))
    with pytest.raises(RecordError, match=r"^truncated JPEG: "):
        decoded(encode(photo(), "JPEG", comment=b"hello")[:-300])

    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("bulkinfer.images.decode._decode_as", no_memory)
    with pytest.raises(RecordError, match="out of memory"):
        decoded(with_chunk(encode(photo()), BROKEN["private"], "before"))


def test_c36_a_block_between_pixels_is_taken_out() -> None:
    data = encode(photo())
    at, body = data.index(b"IDAT") - 4, data[data.index(b"IDAT") + 4 : -16]
    apart = data[:at] + chunk(b"IDAT", body[:99]) + chunk(b"tEXt", b"a\0b") + chunk(b"IDAT", body[99:]) + data[-12:]
    assert (np.asarray(decoded(apart).image) == np.asarray(photo())).all()
