"""tiff.py: camera raw is told from other TIFFs by its directories. C02."""

from __future__ import annotations

import struct
import time

import pytest
from bulkinfer.errors import RecordError
from bulkinfer.images.decode import decode, prepare_decoder
from bulkinfer.images.header_limits import check_claims, count_frames
from PIL import Image

from tests.bombs import tiff, tiff_of
from tests.pictures import animated, camera_raw, encode, photo, solid


@pytest.fixture(autouse=True)
def _decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    prepare_decoder()


def reason(data: bytes) -> str:
    with pytest.raises(RecordError) as caught:
        decode(data, orientation="exif", max_pixels=10**8)
    return caught.value.message


def size(data: bytes) -> tuple[int, int]:
    picture = decode(data, orientation="exif", max_pixels=10**8)
    return picture.width, picture.height


@pytest.mark.parametrize("order", ["<", ">"])
def test_c02_a_thumbnail_beside_the_values_of_a_sensor(order: str) -> None:
    assert reason(camera_raw(order)) == "camera raw: only a thumbnail"


def test_c02_linear_values_and_several_sub_directories() -> None:
    data = camera_raw()
    assert reason(data.replace(struct.pack("<H", 32803), struct.pack("<H", 34892))) == "camera raw: only a thumbnail"
    at = len(data)
    entry = data.index(struct.pack("<HHL", 330, 4, 1))
    (sensor,) = struct.unpack_from("<L", data, entry + 8)
    several = data[:entry] + struct.pack("<HHLL", 330, 4, 2, at) + data[entry + 12 :] + struct.pack("<LL", 1 << 31, sensor)
    assert reason(several) == "camera raw: only a thumbnail"


def test_c02_the_values_of_a_sensor_on_a_later_page() -> None:
    data = camera_raw()
    entry = data.index(struct.pack("<HHL", 330, 4, 1))
    (sensor,) = struct.unpack_from("<L", data, entry + 8)
    chained = data[:entry] + struct.pack("<HHLLL", 331, 4, 1, 0, sensor) + data[entry + 16 :]
    assert struct.unpack_from("<L", data, entry + 12) == (0,), "where the next page would be named"
    assert reason(chained) == "camera raw: only a thumbnail"
    old_mark = chained.replace(struct.pack("<HHLL", 254, 4, 1, 1), struct.pack("<HHLHH", 255, 3, 1, 2, 0), 1)
    assert reason(old_mark) == "camera raw: only a thumbnail"
    not_reduced = old_mark.replace(struct.pack("<HHLHH", 255, 3, 1, 2, 0), struct.pack("<HHLHH", 255, 3, 1, 1, 0), 1)
    assert size(not_reduced) == (160, 120)


def test_c02_a_first_page_of_sensor_values() -> None:
    data = tiff_of(8, 8, (262, 3, 1, 32803))
    assert reason(data) == "unsupported format camera raw: the values of a sensor"


@pytest.mark.parametrize(
    "start",
    [b"II*\0\x10\0\0\0CR\2\0", b"FUJIFILMCCD-RAW 0201", b"\0\0\0\x18ftypcrx \0\0\0\1crx isom", b"IIRO", b"IIU\0", b"FOVb"],
)
def test_c58_camera_raw_of_other_containers(start: bytes) -> None:
    assert reason(start + bytes(600)) == "unsupported format camera raw"


def test_c02_a_reduced_first_page_without_a_sensor_is_a_picture() -> None:
    """Scanners write a thumbnail first as well; a pyramid has reduced pages in sub-directories."""
    no_raw = camera_raw().replace(struct.pack("<HHLHH", 262, 3, 1, 32803, 0), struct.pack("<HHLHH", 262, 3, 1, 2, 0))
    assert size(no_raw) == (160, 120)
    not_reduced = camera_raw().replace(struct.pack("<HHLL", 254, 4, 1, 1), struct.pack("<HHLL", 254, 4, 1, 0))
    assert size(not_reduced) == (160, 120)
    assert size(animated("TIFF")) == (48, 32)
    assert size(encode(solid((1, 2, 3), (30, 20)), "TIFF", big_tiff=True)) == (30, 20)


@pytest.mark.parametrize("value", [0, 7, 1 << 31])
def test_c02_directories_outside_the_file_do_not_matter(value: int) -> None:
    data = camera_raw()
    entry = data.index(struct.pack("<HHL", 330, 4, 1))
    assert size(data[: entry + 8] + struct.pack("<L", value) + data[entry + 12 :]) == (160, 120)
    assert reason(tiff((254, 4, 1, 1), (330, 4, 1 << 30, value))).startswith("corrupt TIFF")
    assert size(encode(photo(), "TIFF")) == (64, 48)


def big_directory(*tags: tuple[int, int, int, int], next_at: int = 0) -> bytes:
    """A directory of a BigTIFF: (tag, type, count, value or offset)."""
    return struct.pack("<Q", len(tags)) + b"".join(struct.pack("<HHQQ", *tag) for tag in tags) + struct.pack("<Q", next_at)


@pytest.mark.parametrize("outside", [1 << 40, 1 << 63, (1 << 64) - 1])
def test_c02_places_beyond_any_file_hide_no_sensor(outside: int) -> None:
    """A BigTIFF names places in 64 bits: in its list of sub-directories, and as its next page."""
    start = b"II+\0" + struct.pack("<HHQ", 8, 0, 16)
    first = len(start) + len(big_directory((254, 4, 1, 1), (330, 16, 2, 0)))
    sensor = big_directory((262, 3, 1, 32803), next_at=outside)
    listed = first + len(sensor)
    data = start + big_directory((254, 4, 1, 1), (330, 16, 2, listed)) + sensor + struct.pack("<QQ", outside, first)
    with pytest.raises(RecordError, match="camera raw: only a thumbnail"):
        check_claims(data, "TIFF", 10**8)
    lost_list = start + big_directory((254, 4, 1, 1), (330, 16, 2, outside), next_at=first) + sensor
    with pytest.raises(RecordError, match="camera raw: only a thumbnail"):
        check_claims(lost_list, "TIFF", 10**8)
    with pytest.raises(ValueError, match="a directory lies outside the file"):
        count_frames(lost_list, "TIFF", 1)


ENTRIES = 65_535


def full_tiff(next_at: int, *first: tuple[int, int, int, int], tail: bytes = b"") -> bytes:
    """A TIFF of one directory with as many entries as can be, at 8, and `tail` behind it."""
    tags = [(254, 4, 1, 1), *first, *[(65_000, 4, 1, 0)] * (ENTRIES - 1 - len(first))]
    return tiff(*tags, next_at=next_at, tail=tail)


@pytest.mark.parametrize(
    "data",
    [
        full_tiff(8),
        full_tiff(0, (330, 4, 64, 8 + 2 + 12 * ENTRIES + 4), tail=struct.pack("<L", 8) * 64),
        full_tiff(
            0, (330, 4, 64, 8 + 2 + 12 * ENTRIES + 4), tail=struct.pack("<64L", *range(10 + 120, 10 + 120 + 64 * 12, 12))
        ),
    ],
    ids=["its own next page", "64 times its own sub-directory", "sub-directories in one another"],
)
def test_c02_a_directory_is_not_read_again_and_again(data: bytes) -> None:
    start = time.process_time()
    check_claims(data, "TIFF", 10**8)
    assert time.process_time() - start < 1, "each reading of all entries takes some 0.04 s"
