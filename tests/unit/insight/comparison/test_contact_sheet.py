"""A contact sheet: thumbnails, and what stands for a picture that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

from bulkinfer.errors import RunError
from bulkinfer.insight.comparison.contact_sheet import Tile, draw_sheet

from tests import pictures


def test_a_bad_picture_costs_one_tile(tmp_path: Path) -> None:
    red = pictures.encode(pictures.solid(pictures.RED, (900, 300)))
    pictures.write_files(tmp_path, {"red.png": red, "page.jpg": pictures.HTML_PAGE, "big.png": red})

    def gone() -> bytes:
        raise RunError("the manifest is missing")

    def tile(name: str) -> Tile:
        return Tile(lambda: os.fsencode(tmp_path / name), (f"{name} " * 20, "A: 1 red 0.9", "B: 2 lime \n 0.8"))

    sheet, num_read = draw_sheet([tile("red.png"), tile("page.jpg"), Tile(gone, ("x",)), tile("absent.png")])
    assert num_read == 1
    assert sheet.getpixel((12 + 100, 12 + 100)) == pictures.RED  # 200 x 67 pixels in the middle of its tile
    assert sheet.getpixel((12 + 100, 12 + 20)) == (255, 255, 255)
    assert sheet.getpixel((12 + 212 + 100, 12 + 20)) == (225, 225, 225)


def test_rows_of_six(tmp_path: Path) -> None:
    pictures.write_files(tmp_path, {"a.png": pictures.encode(pictures.solid())})
    tiles = [Tile(lambda: os.fsencode(tmp_path / "a.png"), ("a",))] * 8
    sheet, num_read = draw_sheet(tiles)
    assert num_read == 8
    assert (sheet.width, sheet.height) == (12 + 6 * 212, 12 + 2 * (200 + 16 + 12))
