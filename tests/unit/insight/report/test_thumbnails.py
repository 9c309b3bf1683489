"""Small pictures as data: addresses."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from bulkinfer.insight.report.row_scan import Sample
from bulkinfer.insight.report.thumbnails import Thumbnails
from PIL import Image

from tests.reports import draw_shape


def test_a_picture_is_small_and_shows_what_it_shows(tmp_path: Path) -> None:
    draw_shape("circle", "#00798c", 600).save(tmp_path / "circle.png")
    found = Thumbnails(tmp_path, {}).of(Sample(b"circle.png", 0))
    head, _, data = found.source.partition(",")
    assert head == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        assert image.size == (found.width, found.height) == (176, 176)
        centre = image.getpixel((88, 88))
    assert isinstance(centre, tuple)
    assert max(abs(one - other) for one, other in zip(centre, (0, 0x79, 0x8C), strict=True)) < 12
    assert len(data) < 20_000


def test_one_bad_picture_costs_one_thumbnail(tmp_path: Path) -> None:
    (tmp_path / "page.png").write_text("<html><body>no picture</body></html>")
    draw_shape("square", "#000", 200).save(tmp_path / "large.png")
    thumbnails = Thumbnails(tmp_path, {"max_pixels": 10_000})
    assert thumbnails.of(Sample(b"page.png", 0)).reason == "not a picture: HTML page"
    assert thumbnails.of(Sample(b"gone.png", 0)).reason.startswith("file not found")
    assert thumbnails.of(Sample(b"large.png", 0)).reason == "too large: 200x200 = 40000 pixels, limit 10000"
