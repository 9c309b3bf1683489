"""tools/bench/picture_folder.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tools.bench.picture_folder import fill, of_one_size, usable_jpegs


def test_only_jpegs_that_all_read_alike(tmp_path: Path) -> None:
    image, turned = Image.new("RGB", (8, 6)), Image.Exif()
    turned[274] = 6
    (tmp_path / "deep").mkdir()
    image.save(tmp_path / "b.jpg")
    image.save(tmp_path / "deep" / "a.JPEG")
    image.save(tmp_path / "turned.jpg", exif=turned)
    image.save(tmp_path / "c.png")
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    (tmp_path / "png.jpg").write_bytes((tmp_path / "c.png").read_bytes())
    found, left_out = usable_jpegs(tmp_path)
    assert [path.name for path in found] == ["b.jpg", "a.JPEG"]
    assert left_out == 3


def test_a_folder_without_jpegs_is_told(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--data_dir"):
        usable_jpegs(tmp_path)


def test_pictures_come_again_and_again(tmp_path: Path) -> None:
    pictures = [tmp_path / "x.jpg", tmp_path / "y.jpg"]
    for path in pictures:
        path.write_text(path.stem)
    folder = fill(tmp_path / "many", pictures, 5)
    assert [(path.name, path.read_text()) for path in sorted(folder.iterdir())] == [
        ("000000.jpg", "x"),
        ("000001.jpg", "y"),
        ("000002.jpg", "x"),
        ("000003.jpg", "y"),
        ("000004.jpg", "x"),
    ]


def test_pictures_of_one_size(tmp_path: Path) -> None:
    Image.new("RGB", (900, 300), "red").save(tmp_path / "wide.jpg")
    Image.new("L", (50, 80), 200).save(tmp_path / "small.jpg")
    made = of_one_size(tmp_path / "made", [tmp_path / "wide.jpg", tmp_path / "small.jpg"])
    assert [path.name for path in sorted(made.iterdir())] == ["000000.jpg", "000001.jpg"]
    for path in made.iterdir():
        with Image.open(path) as image:
            assert (image.size, image.mode) == ((640, 480), "RGB")
