"""A contact sheet: thumbnails of pictures with what two jobs answered, drawn with Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from bulkinfer.insight.thumbnail import ThumbnailReader

THUMB = 200  # pixels of the longer side of a thumbnail
_COLUMNS = 6
_GAP, _LINE, _TEXT = 12, 16, 12  # pixels
_WHITE, _BLACK, _GREY = (255, 255, 255), (20, 20, 20), (225, 225, 225)


class Tile(NamedTuple):
    """One picture of the sheet: its key and partition, and the lines below it."""

    key: bytes
    partition: int
    lines: tuple[str, ...]


def draw_sheet(tiles: Sequence[Tile], reader: ThumbnailReader) -> tuple[Image.Image, int]:
    """The sheet, and how many of its pictures could be read; the others are grey. There must be at least one tile.

    `reader` gives pictures with no side longer than THUMB.
    """
    font = ImageFont.load_default(_TEXT)
    height = THUMB + _LINE * max(len(tile.lines) for tile in tiles)
    columns, rows = min(_COLUMNS, len(tiles)), -(-len(tiles) // _COLUMNS)
    sheet = Image.new("RGB", (_GAP + columns * (THUMB + _GAP), _GAP + rows * (height + _GAP)), _WHITE)
    draw, num_read = ImageDraw.Draw(sheet), 0
    for number, tile in enumerate(tiles):
        x, y = _GAP + number % _COLUMNS * (THUMB + _GAP), _GAP + number // _COLUMNS * (height + _GAP)
        thumb = reader.read(tile.key, tile.partition)
        if isinstance(thumb, str):
            draw.rectangle((x, y, x + THUMB, y + THUMB), _GREY)
            draw.text((x + 6, y + THUMB // 2), _fitted(thumb, font, THUMB - 12), _BLACK, font, anchor="lm")
        else:
            num_read += 1
            sheet.paste(thumb, (x + (THUMB - thumb.width) // 2, y + (THUMB - thumb.height) // 2))
        for line, text in enumerate(tile.lines):
            draw.text((x, y + THUMB + 2 + line * _LINE), _fitted(text, font, THUMB), _BLACK, font)
    return sheet, num_read


def _fitted(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """The end of a text that is too wide, where file names differ; characters that show nothing as `?`."""
    text = "".join(character if character.isprintable() else "?" for character in text)
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"...{text}") > width:
        text = text[1:]
    return f"...{text}"
