"""A contact sheet: thumbnails of pictures with what two jobs answered, drawn with Pillow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from bulkinfer.config import LaunchConfig
from bulkinfer.errors import BulkinferError
from bulkinfer.images.decode import decode, prepare_decoder, read_picture

_COLUMNS = 6
_THUMB, _GAP, _LINE, _TEXT = 200, 12, 16, 12  # pixels
_WHITE, _BLACK, _GREY = (255, 255, 255), (20, 20, 20), (225, 225, 225)


class Tile(NamedTuple):
    """One picture of the sheet: finds its path when it is drawn, and the lines below it."""

    path: Callable[[], bytes]
    lines: tuple[str, ...]


def draw_sheet(tiles: Sequence[Tile], max_pixels: int = LaunchConfig.max_pixels) -> tuple[Image.Image, int]:
    """The sheet, and how many of its pictures could be read; the others are grey. There must be at least one tile.

    Pictures of more than `max_pixels` are not read. Changes how Pillow decodes in this process: see prepare_decoder.
    """
    prepare_decoder()
    font = ImageFont.load_default(_TEXT)
    height = _THUMB + _LINE * max(len(tile.lines) for tile in tiles)
    columns, rows = min(_COLUMNS, len(tiles)), -(-len(tiles) // _COLUMNS)
    sheet = Image.new("RGB", (_GAP + columns * (_THUMB + _GAP), _GAP + rows * (height + _GAP)), _WHITE)
    draw, num_read = ImageDraw.Draw(sheet), 0
    for number, tile in enumerate(tiles):
        x, y = _GAP + number % _COLUMNS * (_THUMB + _GAP), _GAP + number // _COLUMNS * (height + _GAP)
        thumb, reason = _thumbnail(tile, max_pixels)
        if thumb is None:
            draw.rectangle((x, y, x + _THUMB, y + _THUMB), _GREY)
            draw.text((x + 6, y + _THUMB // 2), _fitted(reason, font, _THUMB - 12), _BLACK, font, anchor="lm")
        else:
            num_read += 1
            sheet.paste(thumb, (x + (_THUMB - thumb.width) // 2, y + (_THUMB - thumb.height) // 2))
        for line, text in enumerate(tile.lines):
            draw.text((x, y + _THUMB + 2 + line * _LINE), _fitted(text, font, _THUMB), _BLACK, font)
    return sheet, num_read


def _thumbnail(tile: Tile, max_pixels: int) -> tuple[Image.Image | None, str]:
    """The picture, no side longer than a thumbnail's; or None and why not. One bad picture costs one tile."""
    try:
        data = read_picture(tile.path(), LaunchConfig.max_file_bytes)
        image = decode(data, orientation="exif", max_pixels=max_pixels, at_least=_THUMB).image.copy()
    except BulkinferError as error:
        return None, str(error)
    image.thumbnail((_THUMB, _THUMB))
    return image, ""


def _fitted(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """The end of a text that is too wide, where file names differ; characters that show nothing as `?`."""
    text = "".join(character if character.isprintable() else "?" for character in text)
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"...{text}") > width:
        text = text[1:]
    return f"...{text}"
