"""header_limits.py and the limits of jpeg.py: files that would take too much memory or time are rows, soon and cheaply."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bulkinfer.errors import RecordError
from bulkinfer.images import header_limits as claims
from bulkinfer.images.header_limits import check_claims, count_frames
from bulkinfer.images.jpeg import check_scans, check_skipped, read_header
from PIL import Image

from tests import bombs, pictures
from tests.bombs import BOMBS, gif, gif_picture
from tests.pictures import encode, jpeg, photo
from tests.rules.source import ROOT

MAX_PIXELS = 100_000_000
MOST_MEMORY_BYTES = 120_000_000  # of the worst: text of a PNG, 64 MB of which Pillow keeps
ADDRESS_SPACE_BYTES = (
    4 << 30
)  # beyond it the process is out of memory, which is a row as well, but not the one that is expected

# What each becomes. "ok" is a row with a picture: what is too much in it is left alone.
EXPECTED = {
    "png_size": "too large: 2147483647x2147483647 = ",
    "png_pixels": "too large: 14000x14000 = ",
    "png_ztxt": "ok 1",
    "png_many_ztxt": "ok 1",
    "png_itxt": "ok 1",
    "png_icc": "ok 1",
    "png_exif": "ok",
    "png_private_chunks": "ok 1",
    "png_private_chunks_behind": "ok 1",
    "png_empty_pixel_chunks": "corrupt PNG: more than 1000000 chunks",
    "apng_frames_claimed": "ok 1 broken_frames",
    "apng_frames": "ok 20001",
    "gif_screen": "too large: 65535x65535 = ",
    "gif_picture": "too large: 65535x65535 = ",
    "gif_frames": "ok 1 broken_frames",
    "gif_comment": "corrupt GIF: more than 1000000 blocks before its first picture",
    "gif_comments": "corrupt GIF: more than 1000000 blocks before its first picture",
    "tiff_size": "too large: 2147483648x2147483648 = ",
    "tiff_tile": "corrupt TIFF: tiles of 65535x65535 pixels",
    "tiff_strips": "corrupt TIFF: 1000000 strips or tiles",
    "tiff_entries": "corrupt TIFF: its header cannot be read",
    "tiff_frames": "ok 1 broken_frames",
    "tiff_frames_loop": "ok 3",
    "jpeg_size": "too large: 65535x65535 = ",
    "jpeg_scans": "corrupt JPEG: more than 3814 scans of 262144 pixels",
    "jpeg_empty_scans": "corrupt JPEG: more than 238 scans of 4194304 pixels",
    "jpeg_segments": "ok 1",
    "jpeg_exif_segments": "ok 1",
    "jpeg_padding": "corrupt JPEG: more than 65536 bytes of padding before its pixels",
    "jpeg_zeros": "corrupt JPEG: more than 65536 bytes in no segment before its pixels",
    "jpeg_zeros_behind_a_segment": "corrupt JPEG: more than 65536 bytes in no segment before its pixels",
    "jpeg_escaped_bytes": "corrupt JPEG: more than 65536 bytes in no segment before its pixels",
    "jpeg_bare_markers": "corrupt JPEG: more than 1000 segments before its pixels",
    "jpeg_segments_between_scans": "corrupt JPEG: more than 100000 segments behind the beginning of its pixels",
    "jpeg_restarts": "corrupt JPEG: more than 4 restart markers in a scan",
    "jpeg_too_many_segments": "corrupt JPEG: more than 1000 segments before its pixels",
    "webp_canvas": "too large: 65536x65535 = ",
    "jpeg2000_channels": "corrupt JPEG2000: 16384 channels",
    "jpeg2000_tiles": "corrupt JPEG2000: 65025 tiles",
    "jpeg2000_size": "too large: 60000x60000 = ",
    "qoi_size": "too large: 2147483648x2147483648 = ",
    "bmp_size": "too large: 2147483647x2147483647 = ",
    "bmp_rle_size": "too large: 100000x100000 = ",
    "ppm_size": "too large: 4000000000x4000000000 = ",
    "ppm_comments": "corrupt PPM: more than 10000 comments",
    "ppm_blanks": "corrupt PPM: more than 65536 bytes before its pixels",
    "ppm_comment": "corrupt PPM: more than 65536 bytes before its pixels",
    "avif_size": "corrupt AVIF: its header cannot be read",
}

_DECODE_FILES = """
import json, sys
from pathlib import Path
from bulkinfer.images.decode import decode, prepare_decoder
from bulkinfer.errors import RecordError
def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
prepare_decoder()
before = peak()
for path in sys.argv[1:]:
    data = Path(path).read_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    try:
        picture = decode(data, orientation="exif", max_pixels=100_000_000)
        told = " ".join(["ok", str(picture.frames), *picture.flags])
    except RecordError as error:
        told = error.message
    print(json.dumps([Path(path).name, told, peak() - before - len(data)]), flush=True)
"""


def decoded_in_a_child(files: dict[str, bytes], folder: Path) -> dict[str, tuple[str, int]]:
    """What became of each file, and how far above that of an idle decoder the peak of memory was, the file itself apart.

    In one process, in two minutes at most.
    """
    pictures.write_files(folder, files)
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))  # noqa: E731
    child = subprocess.run(
        [sys.executable, "-c", _DECODE_FILES, *(str(folder / name) for name in files)], capture_output=True, text=True,
        cwd=ROOT, timeout=300, check=False, preexec_fn=limit,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr[-2000:]
    assert child.stderr == ""
    return {name: (told, rise) for name, told, rise in map(json.loads, child.stdout.splitlines())}


@pytest.fixture(scope="module")
def became(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, int]]:
    return decoded_in_a_child({name: make() for name, make in BOMBS.items()}, tmp_path_factory.mktemp("bombs"))


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_one_row_in_little_memory(name: str, became: dict[str, tuple[str, int]]) -> None:
    told, rise = became[name]
    assert told.startswith(EXPECTED[name])
    assert rise < MOST_MEMORY_BYTES


@pytest.mark.parametrize("format", ["PNG", "GIF", "WEBP", "TIFF", "JPEG2000", "PPM", "BMP", "QOI", "AVIF"])
def test_a_sound_file_passes_and_the_limit_is_inclusive(format: str) -> None:
    data = encode(photo(40, 30), format)
    check_claims(data, format, 40 * 30)
    if format in ("PNG", "GIF", "WEBP", "JPEG2000"):
        with pytest.raises(RecordError, match="too large: 40x30 = 1200 pixels, limit 1199"):
            check_claims(data, format, 1199)


@pytest.mark.parametrize("options", [{"lossless": True}, {"exact": True, "save_all": True}, {"quality": 5}], ids=str)
def test_each_kind_of_webp_says_its_size(options: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match="too large: 41x30"):
        check_claims(encode(photo(41, 30), "WEBP", **options), "WEBP", 1000)


def test_a_big_tiff_is_read_like_a_small_one() -> None:
    pages = {"save_all": True, "append_images": [photo(40, 30)]}
    data = encode(photo(40, 30), "TIFF", big_tiff=True, **pages)
    assert data[2] == 43
    check_claims(data, "TIFF", 1200)
    assert count_frames(data, "TIFF", 1) == 2


def test_usual_tiles_are_fine_under_a_small_limit() -> None:
    data = bombs.tiff_of(8, 8, (322, 3, 1, 512), (323, 3, 1, 512), (324, 4, 1, 200), (325, 4, 1, 64))
    check_claims(data, "TIFF", 64)


@pytest.mark.parametrize("format", ["GIF", "TIFF"])
def test_frames_are_those_that_pillow_counts(format: str) -> None:
    data = pictures.animated(format)
    for length in (len(data), len(data) - 1):
        with Image.open(io.BytesIO(data[:length])) as image:
            assert count_frames(data[:length], format, 1) == image.n_frames == 3


def test_frames_of_a_gif_with_everything_in_it() -> None:
    comment, loop = b"!\xfe\3abc\0", b"!\xff\x0bNETSCAPE2.0\3\1\0\0\0"
    data = gif(comment, loop, gif_picture(), b"\0\0", comment, bombs.GIF_DISPOSED, gif_picture(4, 4), comment)
    assert count_frames(data, "GIF", 1) == 2
    assert count_frames(data[:-40], "GIF", 1) == 1


@pytest.mark.parametrize("between", [bytes(60_000), b"\xff\0" * 30_000, b"\xff" * 60_000, b"\xff\xd0" * 500])
def test_a_few_bytes_between_the_segments_of_a_jpeg_do_no_harm(between: bytes) -> None:
    check_skipped(bombs.jpeg_with(b"\xff\xe5\0\2" + between))


def test_comments_in_a_ppm() -> None:
    data = b"P6 #a\n#b\r 200\n#c\n 200 #d\n255\n" + bytes(120_000)
    check_claims(data, "PPM", MAX_PIXELS)
    with Image.open(io.BytesIO(data)) as image:
        assert image.size == (200, 200)


@pytest.mark.parametrize("claimed", [0, 2**31, 2**32])
def test_no_row_can_hold_so_many_frames(claimed: int) -> None:
    with pytest.raises(ValueError, match="pictures"):
        count_frames(b"", "PNG", claimed)


@pytest.mark.parametrize("format", ["PNG", "GIF", "WEBP", "TIFF", "JPEG2000"])
def test_a_header_that_is_cut_is_left_to_the_decoder(format: str) -> None:
    data = encode(photo(40, 30), format)
    for length in range(60):
        check_claims(data[:length], format, MAX_PIXELS)


def test_a_progressive_jpeg_of_usual_scans_passes() -> None:
    data = jpeg(160, 120, progressive=True)
    check_scans(data, read_header(data))


def test_only_the_scans_of_the_picture_itself_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind its end may stand other pictures and films; in a comment between scans, anything."""
    monkeypatch.setattr("bulkinfer.images.jpeg._FEW_SCANS", 12)
    monkeypatch.setattr("bulkinfer.images.jpeg._MOST_SCANNED", 1)
    data, scan = jpeg(160, 120, progressive=True), b"\xff\xda\0\x08\1\1\0\1\5\0"
    comment = b"\xff\xfe\0\x0e" + scan + b"\xff\xd9"
    at = data.rindex(b"\xff\xda")
    check_scans(data + scan * 99, read_header(data))
    check_scans(data[:at] + comment + data[at:], read_header(data))
    with pytest.raises(RecordError, match="more than 12 scans"):
        check_scans(data[:at] + comment + scan * 9 + data[at:], read_header(data))


def test_a_large_colour_profile_is_not_too_many_segments() -> None:
    data = encode(photo(), "JPEG", icc_profile=os.urandom(255 * 65_519))
    assert read_header(data).size == (64, 48)


def test_limits_are_those_of_the_bombs() -> None:
    assert set(EXPECTED) == set(BOMBS)
    assert claims.MOST_FRAMES < 120_000  # of tiff_frames
