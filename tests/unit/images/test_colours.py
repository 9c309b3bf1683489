"""colours.py: embedded profiles, alpha, and that nothing changes for recipes that ask for neither. C59."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from bulkinfer.errors import RecordError
from bulkinfer.images import colours
from bulkinfer.images.decode import Picture, decode, prepare_decoder
from bulkinfer.images.heic import require_heif
from bulkinfer.images.pillow_warnings import warning_counts
from bulkinfer.images.profile_digest import Kept, content_digest
from PIL import Image, ImageCms, features

from tests import pictures
from tests.pictures import BLUE, GREEN, RED, encode, grey_profile, other_profile, photo, solid, srgb_profile

FORMATS = ["PNG", "JPEG", "TIFF", "WEBP", "AVIF", "HEIF", "JPEG_progressive", "JPEG_turned"]


@pytest.fixture(autouse=True)
def _decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    prepare_decoder()


def decoded(data: bytes, colour: str = "stored", **options: Any) -> Picture:
    return decode(data, orientation="exif", max_pixels=10**8, colour=colour, **options)


def centre(picture: Picture) -> tuple[int, ...]:
    return tuple(np.asarray(picture.image)[picture.image.height // 2, picture.image.width // 2].tolist())


def written(image: Image.Image, format: str, profile: bytes) -> bytes:
    require_heif()
    name, _, kind = format.partition("_")
    if kind == "turned":
        return pictures.oriented(image, 6, "JPEG", icc_profile=profile)
    options: dict[str, Any] = {"lossless": True} if name == "WEBP" else {"progressive": kind == "progressive"}
    return encode(image, name, icc_profile=profile, **(options if name in ("WEBP", "JPEG") else {}))


@pytest.mark.parametrize("format", FORMATS)
def test_c59_a_profile_that_is_not_srgb_is_flagged_and_its_pixels_stay(format: str) -> None:
    plain, with_srgb, other = (
        decoded(written(solid(RED), format, profile)) for profile in (b"", srgb_profile(), other_profile())
    )
    assert (plain.flags, with_srgb.flags, other.flags) == ((), (), ("icc_profile",))
    assert (np.asarray(other.image) == np.asarray(plain.image)).all()
    assert (np.asarray(with_srgb.image) == np.asarray(plain.image)).all()


@pytest.mark.parametrize("at_least", [0, 64])
@pytest.mark.parametrize("format", FORMATS)
def test_c59_colour_srgb_converts(format: str, at_least: int) -> None:
    """Red and green have changed places in the profile."""
    picture = decoded(written(solid(RED, (640, 480)), format, other_profile()), "srgb", at_least=at_least)
    assert np.abs(np.subtract(centre(picture), GREEN)).max() <= 4
    assert (picture.flags, picture.image.mode) == ((), "RGB")
    same = decoded(written(photo(), format, srgb_profile()), "srgb")
    assert (np.asarray(same.image) == np.asarray(decoded(written(photo(), format, b"")).image)).all()


def test_c59_colour_srgb_is_what_imagecms_gives() -> None:
    source = photo()
    with io.BytesIO(other_profile()) as file:
        intent = ImageCms.Intent.RELATIVE_COLORIMETRIC
        expected = ImageCms.profileToProfile(source, ImageCms.ImageCmsProfile(file), ImageCms.createProfile("sRGB"), intent)
    assert expected is not None
    assert (np.asarray(decoded(encode(source, icc_profile=other_profile()), "srgb").image) == np.asarray(expected)).all()


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_c59_grey_with_a_profile(format: str) -> None:
    data = encode(Image.new("L", (64, 64), 64), format, icc_profile=grey_profile())
    assert (decoded(data).flags, centre(decoded(data))) == (("icc_profile",), (64, 64, 64))
    picture = decoded(data, "srgb")
    assert picture.flags == ()
    assert np.abs(np.subtract(centre(picture), 137)).max() <= 2  # a quarter of the light


def test_c59_cmyk_with_a_profile() -> None:
    ink = Image.new("CMYK", (64, 64), (255, 0, 0, 0))
    data = encode(ink, "TIFF", icc_profile=pictures.cmyk_profile())
    assert (decoded(data).flags, centre(decoded(data))) == (("icc_profile",), (0, 255, 255))
    picture = decoded(data, "srgb")
    assert picture.flags == ()
    assert max(centre(picture)) - min(centre(picture)) <= 4  # its inks have no colour
    assert 100 < centre(picture)[0] < 220


@pytest.mark.parametrize("colour", ["stored", "srgb"])
@pytest.mark.parametrize("profile", [b"no profile", other_profile()[:200], bytes(400)], ids=["text", "cut", "zeros"])
def test_c59_a_profile_that_cannot_be_read_is_none(profile: bytes, colour: str) -> None:
    for format in ("PNG", "JPEG"):
        data = encode(solid(RED), format, icc_profile=profile + colour.encode())  # one that this process has not seen yet
        assert (decoded(data, colour).flags, np.abs(np.subtract(centre(decoded(data, colour)), RED)).max() < 3) == ((), True)
    assert any("colour profile" in kind for kind in warning_counts())


def test_c59_a_profile_of_other_channels_is_ignored_and_flagged() -> None:
    data = encode(solid(RED), icc_profile=pictures.cmyk_profile())
    for colour in ("stored", "srgb"):
        assert (decoded(data, colour).flags, centre(decoded(data, colour))) == (("icc_profile",), RED)


def test_c59_without_littlecms_srgb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "check", lambda _name: False)
    assert decoded(encode(photo()), "srgb").flags == ()
    with pytest.raises(RecordError, match="built without LittleCMS"):
        decoded(encode(photo(), icc_profile=other_profile()), "srgb")


def test_c59_profiles_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(photo(), "JPEG", icc_profile=other_profile())
    decoded(data)
    monkeypatch.setattr(colours, "_largest_difference", lambda *_: pytest.fail("compared again"))
    assert decoded(data).flags == ("icc_profile",)


def dated(profile: bytes, number: int) -> bytes:
    """The profile with another date, and another digest in it."""
    return profile[:24] + bytes([7, 208, 0, 1, 0, number] * 2) + profile[36:84] + bytes([number]) * 16 + profile[100:]


def retold(profile: bytes, text: bytes) -> bytes:
    """The profile with another description at its end."""
    at = profile.index(b"desc", 128)
    size = len(profile) + len(text)
    entry = b"desc" + struct.pack(">LL", len(profile), len(text))
    return struct.pack(">L", size) + profile[4:at] + entry + profile[at + 12 :] + text


@pytest.mark.parametrize("colour", ["stored", "srgb"])
def test_c59_profiles_that_move_colours_alike_are_compared_once(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that differ in a date, a digest or a text."""
    for profile in (srgb_profile(), other_profile()):
        first = decoded(encode(photo(), "JPEG", icc_profile=profile), colour)
        with monkeypatch.context() as patched:
            patched.setattr(ImageCms, "buildTransform", lambda *_: pytest.fail("built again"))
            for number in range(60):
                for other in (dated(profile, number), retold(profile, b"text\0\0\0\0" + bytes([65 + number] * 4 * number))):
                    again = decoded(encode(photo(), "JPEG", icc_profile=other), colour)
                    assert (again.flags, again.image.tobytes()) == (first.flags, first.image.tobytes())


def test_c59_forty_profiles_in_rotation_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [encode(photo().convert("L"), icc_profile=grey_profile(256 + 8 * number)) for number in range(40)]
    flags = [decoded(data).flags for data in files]
    assert flags.count(("icc_profile",)) > 30
    monkeypatch.setattr(ImageCms, "buildTransform", lambda *_: pytest.fail("built again"))
    assert [decoded(data).flags for data in files] == flags


def test_c59_a_curve_or_a_matrix_makes_another_profile() -> None:
    assert content_digest(srgb_profile()) == content_digest(dated(retold(srgb_profile(), b"text\0\0\0\0new\0"), 3))
    found = {content_digest(each) for each in (srgb_profile(), other_profile(), grey_profile(), grey_profile(300))}
    assert len(found) == 4
    assert None not in found


def test_c59_profiles_out_of_order_have_no_content() -> None:
    whole = srgb_profile()
    tags = int.from_bytes(whole[128:132], "big")
    for damaged in (whole[:-1], whole[:140], b"", whole[:128] + b"\xff" * 4 + whole[132:]):
        assert content_digest(damaged) is None
    beyond = whole[:136] + b"\xff" * 4 + whole[140:]
    all_of_it = whole[:132] + b"".join(
        struct.pack(">4sLL", b"t%03d" % number, number, len(whole) - number) for number in range(tags)
    ) + whole[132 + 12 * tags :]  # fmt: skip
    texts = whole[132:136] in (b"desc", b"cprt")
    assert texts or content_digest(beyond) is None
    assert content_digest(all_of_it) is None


def test_c59_no_more_is_kept_than_the_bound() -> None:
    kept = Kept[int](3)
    for number in range(9):
        kept.keep(bytes([number % 5]), number)
    assert [kept.get(bytes([number])) for number in range(5)].count(None) == 2
    assert kept.get(bytes([3])) == 8


# Alpha


def half_seen(mode: str) -> tuple[Image.Image, dict[str, Any]]:
    """Red on the left, and nothing on the right, where the hidden colour is blue."""
    image = solid(RED, (64, 32))
    image.paste(BLUE, (32, 0, 64, 32))
    mask = Image.new("L", (64, 32), 255)
    mask.paste(0, (32, 0, 64, 32))
    if mode == "RGBA":
        image.putalpha(mask)
    elif mode == "LA":
        image = image.convert("L")
        image.putalpha(mask)
    elif mode == "P":
        image = image.quantize(2)
        return image, {"transparency": image.getpixel((63, 0))}
    elif mode == "RGB":
        return image, {"transparency": BLUE}
    return image, {}


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB"])
def test_c59_alpha_is_dropped_or_laid_over_a_colour(mode: str) -> None:
    image, options = half_seen(mode)
    data = encode(image, "PNG", **options)
    shown, hidden = (RED, BLUE) if mode != "LA" else ((76,) * 3, (29,) * 3)
    assert [decoded(data).image.getpixel((x, 5)) for x in (5, 60)] == [shown, hidden]
    over = decoded(data, alpha_over=(255, 250, 245))
    assert [over.image.getpixel((x, 5)) for x in (5, 60)] == [shown, (255, 250, 245)]


def test_c59_alpha_in_between_and_in_other_formats() -> None:
    image = solid(RED)
    image.putalpha(Image.new("L", image.size, 51))  # a fifth
    for format in ("PNG", "WEBP", "TIFF", "AVIF"):
        data = encode(image, format, **({"lossless": True} if format == "WEBP" else {}))
        found = centre(decoded(data, alpha_over=(0, 255, 0)))
        assert np.abs(np.subtract(found, (51, 204, 0))).max() <= 3
    with_profile = encode(image, "PNG", icc_profile=other_profile())
    assert np.abs(np.subtract(centre(decoded(with_profile, "srgb", alpha_over=(0, 0, 255))), (0, 51, 204))).max() <= 3


def test_c59_opaque_pictures_are_not_changed() -> None:
    for format in ("PNG", "JPEG", "BMP"):
        data = encode(photo(), format)
        assert (np.asarray(decoded(data, alpha_over=(1, 2, 3)).image) == np.asarray(decoded(data).image)).all()
