"""A picture in small, as the job decodes it; one that cannot be shown has a reason."""

from __future__ import annotations

from pathlib import Path

from bulkinfer.insight.thumbnail import ThumbnailReader
from PIL import Image

from tests import pictures
from tests.commands import run_here
from tests.launches import write_photos


def test_it_is_turned_and_limited_as_in_the_job(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    Image.new("RGB", (400, 200)).save(tmp_path / "turned.jpg", exif=exif)
    for orientation, size in (("exif", (50, 100)), ("stored", (100, 50))):
        image = ThumbnailReader(tmp_path, {"recipe": {"orientation": orientation}}, 100).read(b"turned.jpg", 0)
        assert isinstance(image, Image.Image)
        assert image.size == size
    assert ThumbnailReader(tmp_path, {"max_pixels": 1000}, 100).read(b"turned.jpg", 0) == (
        "too large: 400x200 = 80000 pixels, limit 1000"
    )


def test_what_cannot_be_read_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "page.png").write_bytes(pictures.HTML_PAGE)
    reader = ThumbnailReader(tmp_path, {}, 100)
    assert reader.read(b"page.png", 0) == "not a picture: HTML page"
    assert str(reader.read(b"gone.png", 0)).startswith("file not found")


def test_a_manifest_that_cannot_be_opened(tmp_path: Path) -> None:
    """Even the administrator cannot open a loop of links."""
    write_photos(tmp_path / "photos", 2)
    assert run_here("partition_dataset", "--data_dir", "photos", "--partitions", 1, cwd=tmp_path).returncode == 0
    manifest = tmp_path / "datasets" / "0" / "manifest.parquet"
    manifest.unlink()
    manifest.symlink_to(manifest.name)
    found = ThumbnailReader(tmp_path / "datasets", {}, 100).read(b"000-black.png", 0)
    assert isinstance(found, str)
    assert "manifest.parquet" in found
