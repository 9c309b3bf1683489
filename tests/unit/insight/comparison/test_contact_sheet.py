"""A contact sheet: thumbnails, and what stands for a picture that cannot be read."""

from __future__ import annotations

from pathlib import Path

from bulkinfer.insight.comparison.contact_sheet import THUMB, Tile, draw_sheet
from bulkinfer.insight.thumbnail import ThumbnailReader

from tests import pictures


def test_a_bad_picture_costs_one_tile(tmp_path: Path) -> None:
    red = pictures.encode(pictures.solid(pictures.RED, (900, 300)))
    pictures.write_files(tmp_path, {"red.png": red, "page.jpg": pictures.HTML_PAGE, "big.png": red})

    def tile(name: str) -> Tile:
        return Tile(name.encode(), 0, (f"{name} " * 20, "A: 1 red 0.9", "B: 2 lime \n 0.8"))

    sheet, num_read = draw_sheet([tile("red.png"), tile("page.jpg"), tile("absent.png")], ThumbnailReader(tmp_path, {}, THUMB))
    assert num_read == 1
    assert sheet.getpixel((12 + 100, 12 + 100)) == pictures.RED  # 200 x 67 pixels in the middle of its tile
    assert sheet.getpixel((12 + 100, 12 + 20)) == (255, 255, 255)
    assert sheet.getpixel((12 + 212 + 100, 12 + 20)) == (225, 225, 225)


def test_rows_of_six(tmp_path: Path) -> None:
    pictures.write_files(tmp_path, {"a.png": pictures.encode(pictures.solid())})
    tiles = [Tile(b"a.png", 0, ("a",))] * 8
    sheet, num_read = draw_sheet(tiles, ThumbnailReader(tmp_path, {}, THUMB))
    assert num_read == 8
    assert (sheet.width, sheet.height) == (12 + 6 * 212, 12 + 2 * (200 + 16 + 12))
